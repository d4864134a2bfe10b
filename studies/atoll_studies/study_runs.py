# SPDX-License-Identifier: Apache-2.0
"""The runs of a study as its estimates take them: the usable run of each point, its figures, and how many are taken."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from atoll_analysis.run_directory import RunDir
from atoll_analysis.summary import Summary
from atoll_dashboards.compare.comparison import FIGURES
from atoll_studies.stopping import Decision, Stop, decide
from atoll_studies.study_directory import FAILED, Attempt
from atoll_studies.warm_up import PILOT, WarmUp, find_warm_up, trimmed_figures

Figures = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class PointRuns:
    """A point and the attempts at it, in the order of their beginning."""

    id: str
    configuration: int
    repetition: int
    seed: int
    attempts: Sequence[Attempt]

    @property
    def usable(self) -> Attempt | None:
        """The attempt whose figures count."""
        return next((each for each in self.attempts if each.usable), None)


def run_figures(path: Path, warm_up: WarmUp) -> Figures:
    """All figures of a run, time averages without the warm-up. Raises RunDirError, RunError."""
    summary = cast("Summary", RunDir.open(path).summary())
    found = {name: _number(read(summary)) for name, (_, _, read) in FIGURES.items()}
    return {**found, **trimmed_figures(path, warm_up.seconds)} if warm_up.seconds else found


def warm_up_of(rule: str | None, points: Sequence[PointRuns]) -> WarmUp:
    """The warm-up of a study by the runs that there are. Raises RunDirError."""
    pilot: dict[int, list[Path]] = {}
    for each in points:
        if each.repetition < PILOT and each.usable is not None:
            pilot.setdefault(each.configuration, []).append(each.usable.path)
    return find_warm_up(rule, pilot)


def decisions(
    stop: Stop, warm_up: WarmUp, points: Sequence[PointRuns], ended: Callable[[PointRuns], bool]
) -> dict[int, Decision]:
    """The result of the looks at each configuration. ``ended``: whether no further attempt at a point is made."""
    found: dict[int, Decision] = {}
    for number in dict.fromkeys(each.configuration for each in points):
        own = sorted((each for each in points if each.configuration == number), key=lambda each: each.repetition)
        first = next((index for index, each in enumerate(own) if not ended(each)), len(own))
        values = [
            None if each.usable is None else run_figures(each.usable.path, warm_up)[stop.figure] for each in own[:first]
        ]
        found[number] = decide(stop, values, first)
    return found


def first_attempt_figures(point: PointRuns, warm_up: WarmUp) -> Figures:
    """The figures of the first attempt at a point, whatever its verdict; empty if it did not come to its end."""
    first = point.attempts[0]
    return {} if first.outcome == FAILED else run_figures(first.path, warm_up)


def _number(found: float | None) -> float | None:
    return None if found is None else float(found)
