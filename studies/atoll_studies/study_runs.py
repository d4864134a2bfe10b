# SPDX-License-Identifier: Apache-2.0
"""The points of a study with their attempts: the figures of runs, the warm-up, and how many repetitions are taken."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_figures import measured
from atoll_analysis.summary import Summary
from atoll_studies.stopping import Decision, Stop, decide
from atoll_studies.study_directory import Attempt, StudyDirectory
from atoll_studies.warm_up import PILOT, WarmUp, find_warm_up, trimmed_figures


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


def points_of(directory: StudyDirectory, listed: Sequence[Mapping[str, Any]]) -> list[PointRuns]:
    """The points that study.json lists, block by block. Raises RunDirError."""
    repetitions: Counter[int] = Counter()
    found: list[PointRuns] = []
    for each in listed:
        number = each["configuration"]
        attempts = directory.attempts(each["id"])
        found.append(PointRuns(each["id"], number, repetitions[number], each["seed"], attempts))
        repetitions[number] += 1
    return found


def run_figures(path: Path, warm_up: WarmUp) -> dict[str, float | None]:
    """All figures of a run, time averages without the warm-up. Raises RunDirError, RunError."""
    found = measured(path, cast("Summary", RunDir.open(path).summary()))
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


def tried(points: Sequence[PointRuns]) -> Callable[[PointRuns], bool]:
    """Whether a sweep is done with a point, by the runs: there is an attempt at it, or at a later one of its kind."""
    last: dict[int, int] = {}
    for each in points:
        if each.attempts:
            last[each.configuration] = max(each.repetition, last.get(each.configuration, 0))
    return lambda each: each.repetition <= last.get(each.configuration, -1)
