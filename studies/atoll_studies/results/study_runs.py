# SPDX-License-Identifier: Apache-2.0
"""The points of a study with their attempts: the figures of runs, the warm-up, and how many repetitions are taken."""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from atoll_analysis.figures.run_figures import figure_limits, measured_figures
from atoll_analysis.run_directory import RunDir
from atoll_analysis.summary import Summary
from atoll_core.description.raw_study import DEFAULT_ATTEMPTS, MSER_5
from atoll_core.errors import RunDirError
from atoll_core.platforms import VIRTUAL
from atoll_studies.statistics.estimates import Limits
from atoll_studies.statistics.stopping import Decision, Stop, decide
from atoll_studies.statistics.warm_up import PILOT_REPETITIONS, TRIMMED_FIGURES, WarmUp, find_warm_up, trimmed_figures
from atoll_studies.study_directory import FAILED, Attempt, Provenance, StudyDirectory


@dataclass(frozen=True, slots=True)
class PointRuns:
    """A point and the attempts at it, in the order of their beginning."""

    id: str
    configuration: int
    repetition: int
    seed: int
    attempts: Sequence[Attempt]

    @property
    def chosen(self) -> Attempt | None:
        """The attempt whose figures count."""
        return next((attempt for attempt in self.attempts if attempt.is_usable), None)


def points_of(directory: StudyDirectory, listed_points: Sequence[Mapping[str, Any]]) -> list[PointRuns]:
    """The points that study.json lists, block by block. Raises RunDirError."""
    repetitions: Counter[int] = Counter()
    points: list[PointRuns] = []
    for point in listed_points:
        identity, number = point["id"], point["configuration"]
        points.append(PointRuns(identity, number, repetitions[number], point["seed"], directory.attempts(identity)))
        repetitions[number] += 1
    return points


def run_figures(attempt: Attempt, warm_up: WarmUp) -> dict[str, float | None]:
    """All figures of an attempt's run, time averages without the warm-up. Raises RunDirError, RunError.

    An attempt that does not count may lack tables, or be shorter than the warm-up: its time averages are then None.
    """
    figures = measured_figures(attempt.path, cast("Summary", RunDir.open(attempt.path).summary()))
    if not warm_up.seconds:
        return figures
    try:
        return {**figures, **trimmed_figures(attempt.path, warm_up.seconds)}
    except RunDirError:
        if attempt.is_usable:
            raise
        return {**figures, **dict.fromkeys(TRIMMED_FIGURES)}


def _limits(attempt: Attempt, warm_up: WarmUp, figure: str) -> Limits | None:
    """A figure, or its limits; None: not measured."""
    value = run_figures(attempt, warm_up).get(figure)
    if value is not None:
        return Limits(value, value)
    limits = figure_limits(cast("Summary", RunDir.open(attempt.path).summary())).get(figure)
    return None if limits is None else Limits(*limits)


def warm_up_of(rule: str | None, points: Sequence[PointRuns]) -> WarmUp:
    """The warm-up of a study by the runs that there are. Raises RunDirError."""
    pilot: dict[int, list[Path]] = {}
    for point in points:
        if point.repetition < PILOT_REPETITIONS and point.chosen is not None:
            pilot.setdefault(point.configuration, []).append(point.chosen.path)
    return find_warm_up(rule, pilot)


def decisions(
    stop: Stop, warm_up: WarmUp, points: Sequence[PointRuns], ended: Callable[[PointRuns], bool]
) -> dict[int, Decision]:
    """The result of the looks at each configuration. ``ended``: whether no further attempt at a point is made.

    A warm-up that is found depends on the runs of all configurations, so that no look takes place before these ended.
    """
    is_warmed_up = warm_up.rule != MSER_5 or all(ended(p) for p in points if p.repetition < PILOT_REPETITIONS)
    results: dict[int, Decision] = {}
    for number in dict.fromkeys(point.configuration for point in points):
        runs = sorted((point for point in points if point.configuration == number), key=lambda point: point.repetition)
        runs = list(itertools.takewhile(ended, runs)) if is_warmed_up else []
        values = [None if point.chosen is None else _limits(point.chosen, warm_up, stop.figure) for point in runs]
        results[number] = decide(stop, values, len(runs))
    return results


def out_of_tries(attempts: Sequence[Attempt], limit: int, platform: str) -> bool:
    """Whether no further attempt is made after these, of which none is usable.

    A failed run is tried again up to the limit. So is an invalid one in real time; in virtual time it would be equal.
    """
    return len(attempts) >= limit or (platform == VIRTUAL and any(attempt.outcome != FAILED for attempt in attempts))


def settled(study: Mapping[str, Any]) -> Callable[[PointRuns], bool]:
    """Whether ``--resume`` makes no attempt at a point, by study.json: it has a usable run, or is out of tries."""
    required = Provenance(**study["provenance"]) if study.get("provenance") else None

    def is_settled(point: PointRuns) -> bool:
        attempts = [attempt for attempt in point.attempts if required in (None, attempt.provenance)]
        return bool(point.chosen) or out_of_tries(attempts, study.get("attempts", DEFAULT_ATTEMPTS), study["platform"])

    return is_settled


def ended(
    stop: Stop, points: Sequence[PointRuns], is_settled: Callable[[PointRuns], bool]
) -> Callable[[PointRuns], bool]:
    """Whether a sweep was done with a point: it is settled, or a run after a later look shows that this took place.

    Such a point has no run if its attempts left none, killed for example.
    """
    last_look: dict[int, int] = {}  # by configuration: repetitions before the last look that took place
    for point in points:
        if point.attempts and point.repetition >= stop.least:
            before = point.repetition - (point.repetition - stop.least) % stop.step
            last_look[point.configuration] = max(before, last_look.get(point.configuration, 0))
    return lambda point: point.repetition < last_look.get(point.configuration, 0) or is_settled(point)
