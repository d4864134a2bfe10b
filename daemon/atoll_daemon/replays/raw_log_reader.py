# SPDX-License-Identifier: Apache-2.0
"""Metric points of a run without recorded metrics, made from counters of links and delay boxes, and from events."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

from atoll_analysis.run_directory.directory import COUNTERS_FILE
from atoll_analysis.run_directory.migrations import migrated_event
from atoll_core.errors import RunDirError
from atoll_core.lab.box_kind import BoxKind
from atoll_core.lab.network import Network
from atoll_core.metrics.line_protocol import MetricPoint
from atoll_testbed.metrics.metric_points import FIGURES_OF_CHECKS, box_kinds, box_points, class_names, event_point

_EVENTS = "events.jsonl"
_READ_BYTES = 1 << 18  # at a time: about twenty seconds of a link's counters

_Line = dict[str, Any]
_PointsOf = Callable[[_Line], Iterator[MetricPoint]]


class RawLogTail:
    """Reads a run's counters and events as line protocol, also while the files grow, as SpoolTail reads a spool."""

    def __init__(self, run: Path, network: Network) -> None:
        """Raises RunDirError if the run has no counters."""
        classes = class_names(network)
        self._run = run
        # Events first: a client that resumes after the last counters has received all earlier events.
        sources: tuple[tuple[str, _PointsOf], ...] = (
            (_EVENTS, _event_points),
            (COUNTERS_FILE, partial(_counter_points, classes, box_kinds(network))),
        )
        self._files: list[tuple[IO[bytes], _PointsOf]] = []
        try:
            for name, points_of in sources:
                self._files.append(((run / name).open("rb"), points_of))
        except OSError as error:
            self.close()
            raise RunDirError(f"{error.filename}: cannot read counters or events: {error.strerror}") from None

    def close(self) -> None:
        """Close the files."""
        for file, _ in self._files:
            file.close()

    def frames(self) -> Iterator[bytes]:
        """Points of the complete lines that were not read before. Raises RunDirError if they are damaged."""
        for file, points_of in self._files:
            while lines := _whole_lines(file):
                try:
                    found = [point.line()[0] for line in lines for point in points_of(json.loads(line))]
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    raise RunDirError(
                        f"{file.name}: a line of this file is damaged: {_problem(error)}; the run cannot be replayed"
                    ) from None
                if frame := "".join(f"{line}\n" for line in found if line is not None):
                    yield frame.encode()


def _problem(error: Exception) -> str:
    return f"key {error} is missing" if isinstance(error, KeyError) else str(error)


def _counter_points(classes: dict[int, str], kinds: dict[str, BoxKind], line: _Line) -> Iterator[MetricPoint]:
    return box_points(line["box"], line, classes, kinds) if line["type"] == "counters" else iter(())


def _event_points(line: _Line) -> Iterator[MetricPoint]:
    kind = str(line["type"])
    if kind not in FIGURES_OF_CHECKS:
        yield event_point(kind, int(line["t_ns"]), migrated_event(line))


def _whole_lines(file: IO[bytes]) -> list[bytes]:
    """The next complete lines."""
    lines = file.readlines(_READ_BYTES)
    if lines and not lines[-1].endswith(b"\n"):
        file.seek(-len(lines.pop()), 1)
    return lines
