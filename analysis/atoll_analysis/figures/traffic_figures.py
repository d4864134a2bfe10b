# SPDX-License-Identifier: Apache-2.0
"""Figures of flows, bursts, standing queues, chains and coders as comparisons and studies show them.

None of them is in the summary of a run that an older version analysed; they are not measured there.
"""

from collections.abc import Callable
from typing import Any, cast

from atoll_analysis.figures.flow_classes import BOUNDS_BYTES
from atoll_analysis.summary import ChainFigures, Summary
from atoll_core.experiment.experiment import MAIN
from atoll_core.units import Size

_Read = Callable[[Summary], float | None]

_CLASSES = (*(f"to {Size(bound)}" for bound in BOUNDS_BYTES), f"over {Size(BOUNDS_BYTES[-1])}")


def _value(part: str, figure: str, factor: float = 1) -> _Read:
    """Return how to read a figure of a part of the summary, multiplied by a factor."""

    def read(summary: Summary) -> float | None:
        found = cast("dict[str, Any]", summary.get(part) or {}).get(figure)
        return None if found is None else factor * found

    return read


def _of_class(number: int, name: str, percentile: str) -> _Read:
    def read(summary: Summary) -> float | None:
        classes = cast("list[dict[str, dict[str, float] | None]]", summary.get("flow_classes") or [])
        found = classes[number][name] if classes else None
        return found[percentile] if found else None

    return read


def _of_bursts(figure: str, factor: float = 1) -> _Read:
    """Return how to read a figure of the slowest link's bursts; None if it lost nothing."""

    def read(summary: Summary) -> float | None:
        bursts = cast("dict[str, dict[str, Any]]", summary.get("loss_bursts") or {})
        found = bursts.get(summary["bottleneck"] or "")
        return factor * found[figure] if found and found["lost"] else None

    return read


def _goodput_of_chains(*, main: bool) -> _Read:
    """Return how to read the goodput of the main chain, or of all branches; None in a run without branches."""

    def read(summary: Summary) -> float | None:
        chains = cast("dict[str, ChainFigures]", summary.get("chains") or {})
        found = [chain["goodput_mbit_s"] for name, chain in chains.items() if (name == MAIN) == main]
        known = [each for each in found if each is not None]
        return sum(known) if known and len(known) == len(found) else None

    return read


def _of_boxes(counter: str) -> _Read:
    """Return how to read a counter, summed over all boxes that have it; None if no box has it."""

    def read(summary: Summary) -> float | None:
        found = [box[counter] for box in (summary.get("boxes") or {}).values() if counter in box]
        return sum(found) if found else None

    return read


def _residual(figure: str) -> _Read:
    """Return how to read a figure of the packets that stayed lost behind coders, of the chain that comes first."""

    def read(summary: Summary) -> float | None:
        for bursts in cast("dict[str, dict[str, Any]]", summary.get("residual_bursts") or {}).values():
            return bursts[figure]
        return None

    return read


TRAFFIC_FIGURES: dict[str, tuple[str, int, _Read]] = {
    **{f"ping sojourn p{percent}": ("ms", 2, _value("ping_sojourn", f"p{percent}_ms")) for percent in (50, 95, 99)},
    "standing queue": ("%", 2, _value("standing_queue", "share", 100)),
    "standing queue height": ("ms", 2, _value("standing_queue", "mean_ms")),
    "queue full and empty": ("%", 2, _value("regime", "swinging_share", 100)),
    "losses in bursts": ("%", 1, _of_bursts("burst_share", 100)),
    "longest loss burst": ("packets", 0, _of_bursts("longest")),
    **{
        f"flow time p{percent}, {sizes}": ("s", 3, _of_class(number, "completion_s", f"p{percent}"))
        for number, sizes in enumerate(_CLASSES)
        for percent in (50, 95)
    },
    **{
        f"flow rate p50, {sizes}": ("Mbit/s", 3, _of_class(number, "rate_mbit_s", "p50"))
        for number, sizes in enumerate(_CLASSES)
    },
    "flows in the initial window": ("%", 2, _value("initial_window", "flows_share", 100)),
    "bytes in the initial window": ("%", 2, _value("initial_window", "bytes_share", 100)),
    "open flows": ("", 1, _value("concurrency", "mean")),
    "long flows": ("", 2, lambda summary: summary.get("long_flows_mean")),
    "goodput of the main chain": ("Mbit/s", 3, _goodput_of_chains(main=True)),
    "goodput of branches": ("Mbit/s", 3, _goodput_of_chains(main=False)),
    "repair packets sent": ("packets", 0, _of_boxes("repair_packets")),
    "repair packets useful": ("packets", 0, _of_boxes("useful_repair_packets")),
    "repair packets dropped": ("packets", 0, _of_boxes("dropped_repair_packets")),
    "packets recovered": ("packets", 0, _of_boxes("recovered_packets")),
    "packets lost behind coders": ("packets", 0, _residual("lost")),
    "longest burst behind coders": ("packets", 0, _residual("longest")),
}
"""By name: unit, digits after the point, and how it is read from the summary. Classes are those of flow sizes."""
