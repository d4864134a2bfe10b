# SPDX-License-Identifier: Apache-2.0
"""The search for a queue's capacity: bisection by criteria that are monotone in the capacity. Pure.

A larger queue helps some criteria and harms the others, so each criterion has one boundary between capacities that meet
it and those that do not. One run measures all criteria. The best capacity is the smallest one of those that leave the
fewest criteria unmet. The search ends when no other capacity can be the best one.

Runs are noisy. All capacities have the same seeds (common random numbers, Glasserman and Yao 1992, Management Science
38(6)), and a criterion is judged by the median over the seeds. More than half of the seeds come first: if they agree,
the others cannot move the median to the other side, and are not made (curtailed sampling, Eisenberg and Ghosh 1980,
Annals of Statistics 8(5)). At the best capacity and the one before it all are made. The error comes from the seeds:
each has a best capacity of its own, which lies between two capacities of the search, and the median of these has an
interval of order statistics.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from atoll_studies.statistics.estimates import Estimate, Limits, limited, quantile_estimate

HELPED = ("transfer", "oscillation", "utilisation")
"""Criteria that a larger queue helps to meet."""

VOICE = "voice"

HARMED = ("standing queue", VOICE)
"""Criteria that a larger queue may break."""

CRITERIA = (*HELPED, *HARMED)


@dataclass(frozen=True, slots=True)
class QueueSearch:
    """The rule of a study: find the capacity of a queue that meets criteria."""

    over: str  # the setting
    capacities: tuple[int, ...]  # bytes, ascending
    criteria: tuple[str, ...]
    repetitions: int  # at most, of one capacity

    @property
    def box(self) -> str:
        """The box of the link whose queue it is."""
        return self.over.split(".")[1]

    @property
    def majority(self) -> int:
        """Repetitions that decide if they agree."""
        return self.repetitions // 2 + 1

    @property
    def most_capacities(self) -> int:
        """Capacities that a search takes at most: the largest, a bisection for each measured criterion, the best."""
        bisection = (len(self.capacities) - 1).bit_length()
        measured = [criterion for criterion in self.criteria if criterion != VOICE]
        return min(len(self.capacities), 2 + len(measured) * bisection)


class End(StrEnum):
    """Why a search has ended, or that it has not."""

    FOUND = "found"
    OPEN = "more runs needed"
    NO_RUN = "no valid run of a capacity"
    CONTRADICTORY = "capacities contradict each other"


@dataclass(frozen=True, slots=True)
class Judgement:
    """Capacities with the criteria that they do not meet."""

    unmet: Mapping[int, Collection[str]]  # by capacity that has runs
    split: Collection[int] = ()  # capacities whose seeds disagree
    largest_for_voice: float = float("inf")  # which is computed, not measured


@dataclass(frozen=True, slots=True)
class Step:
    """A capacity that was tried, or got its other repetitions, and the capacities that remained possible behind it."""

    capacity: int
    repetitions: int
    unmet: tuple[str, ...]
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class SearchPath:
    """A search as far as its runs go."""

    steps: tuple[Step, ...]
    taken: Mapping[int, int]  # repetitions by capacity, those that are missing too
    end: End

    @property
    def last_steps(self) -> dict[int, Step]:
        """The last step of each capacity, ascending."""
        return dict(sorted({step.capacity: step for step in self.steps}.items()))

    @property
    def best(self) -> int | None:
        """The capacity that was found."""
        return self.steps[-1].low if self.end is End.FOUND else None


Judge = Callable[[Mapping[int, int]], Judgement | None]
"""Judges capacities by their first repetitions; None while runs are missing. One without a valid run is left out."""


def replay(search: QueueSearch, judge: Judge) -> SearchPath:
    """Replay a search. It uses the runs that it asked for and no others, so interruptions do not change it."""
    taken = {search.capacities[-1]: search.repetitions}
    capacity = search.capacities[-1]
    steps: list[Step] = []
    while judgement := judge(taken):
        if len(judgement.unmet) < len(taken):
            return SearchPath(tuple(steps), taken, End.NO_RUN)
        possible = possible_capacities(search, judgement)
        unmet = tuple(name for name in search.criteria if name in judgement.unmet[capacity])
        steps.append(Step(capacity, taken[capacity], unmet, possible[0], possible[-1]))
        following = _following(search, judgement, taken, possible)
        if following is None:
            return SearchPath(tuple(steps), taken, End.FOUND)
        capacity, repetitions = following
        if len({*taken, capacity}) > search.most_capacities:
            return SearchPath(tuple(steps), taken, End.CONTRADICTORY)
        taken = {**taken, capacity: repetitions}
    return SearchPath(tuple(steps), taken, End.OPEN)


def _following(
    search: QueueSearch, judgement: Judgement, taken: Mapping[int, int], possible: Sequence[int]
) -> tuple[int, int] | None:
    """The next capacity and its repetitions; None: the search has ended."""
    incomplete = [capacity for capacity in sorted(taken) if taken[capacity] < search.repetitions]
    if split := [capacity for capacity in incomplete if capacity in judgement.split]:
        return split[0], search.repetitions
    if len(possible) > 1:
        for criterion in search.criteria:
            if unknown := [each for each in possible if is_unmet(criterion, each, judgement) is None]:
                return unknown[len(unknown) // 2], search.majority
    best = possible[0]
    before = max((capacity for capacity in taken if capacity < best), default=best)
    unconfirmed = [each for each in (best, before) if taken.get(each, 0) < search.repetitions]
    return (unconfirmed[0], search.repetitions) if unconfirmed else None


def possible_capacities(search: QueueSearch, judgement: Judgement) -> list[int]:
    """The capacities that may be the best one, ascending."""
    least: dict[int, int] = {}
    most: dict[int, int] = {}
    for capacity in search.capacities:
        states = [is_unmet(criterion, capacity, judgement) for criterion in search.criteria]
        least[capacity] = states.count(True)
        most[capacity] = least[capacity] + states.count(None)
    bound = min((most[capacity], capacity) for capacity in search.capacities)
    return [capacity for capacity in search.capacities if (least[capacity], capacity) <= bound]


def is_unmet(criterion: str, capacity: int, judgement: Judgement) -> bool | None:
    """Whether a capacity does not meet a criterion, by its own runs or those of the next ones; None: not known."""
    if criterion == VOICE:
        return capacity > judgement.largest_for_voice
    if capacity in judgement.unmet:
        return criterion in judgement.unmet[capacity]
    smaller = max((each for each in judgement.unmet if each < capacity), default=None)
    larger = min((each for each in judgement.unmet if each > capacity), default=None)
    harder, easier = (smaller, larger) if criterion in HELPED else (larger, smaller)
    if harder is not None and criterion not in judgement.unmet[harder]:
        return False
    if easier is not None and criterion in judgement.unmet[easier]:
        return True
    return None


def best_interval(search: QueueSearch, seeds: Sequence[Judgement]) -> Estimate:
    """The median of the best capacities of the seeds, each known by its limits. At least one seed."""
    possible = [possible_capacities(search, seed) for seed in seeds]
    return limited(quantile_estimate, [Limits(each[0], each[-1]) for each in possible])
