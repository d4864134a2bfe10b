# SPDX-License-Identifier: Apache-2.0
"""The counters that kinds of boxes declare, as tables of a report: one for each kind."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from atoll_analysis.summary import Summary
from atoll_core.codec import from_json
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.metrics.metrics_schema import MetricField
from atoll_dashboards.report.number_format import count, octets


@dataclass(frozen=True, slots=True)
class BoxTable:
    """The counters of the boxes of one kind. ``rows``: name and meaning of a counter, its sum at each of ``boxes``."""

    kind: str
    boxes: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[str, ...]], ...]


def box_tables(summary: Summary, manifest: Mapping[str, Any], experiment: Experiment) -> tuple[BoxTable, ...]:
    """The tables of a run, in the order of its lab. Boxes that are off, or whose kind counts nothing, are in none."""
    counted = summary.get("boxes", {})
    if not counted:
        return ()
    boxes = [box for box in experiment.as_used(from_json(Network, manifest["network"])).boxes if box.name in counted]
    return tuple(
        BoxTable(
            kind.name,
            names := tuple(box.name for box in boxes if box.kind == kind),
            tuple(
                (each.name, each.what, tuple(_text(counted[name].get(each.name), each) for name in names))
                for each in kind.counters
            ),
        )
        for kind in dict.fromkeys(box.kind for box in boxes if box.kind.counters)
    )


def _text(number: int | None, counter: MetricField) -> str:
    """``None``: the program of the run's version did not count it."""
    return octets(number) if counter.unit == "bytes" else count(number, "" if counter.unit == "1" else counter.unit)
