# SPDX-License-Identifier: Apache-2.0
"""Groups of runs that differ in their seed only: number of samples, median, minimum and maximum.

A seed gives one result for one version and one set of options, and depends on chance: which packet meets a full queue.
The effect of a setting is seen in the distribution over seeds (docs/comparing.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

LEAST_SAMPLES = 3
"""Of two samples a median says no more than the two do."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over the samples of a group that measured it."""

    samples: int
    median: float
    least: float
    greatest: float

    def overlaps(self, other: "Spread") -> bool:
        """Return whether the ranges of both overlap."""
        return self.least <= other.greatest and other.least <= self.greatest


@dataclass(frozen=True, slots=True)
class Pairs:
    """A figure of two groups, paired by seed. A seed is the same load in both, so pairs differ less by chance."""

    seeds: int  # that both groups measured it with
    higher: int  # of them, those with which it is higher in the second group
    lower: int


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that differ in their seed only. Runs are counted from 0, in the order of the comparison."""

    name: str  # a letter
    runs: tuple[int, ...]
    samples: tuple[int, ...]  # the valid ones that no earlier one is equal to
    invalid: tuple[int, ...]
    again: tuple[tuple[int, int], ...]  # a run, and the earlier one whose figures it repeats

    def spread(self, figures: Sequence[float | None]) -> Spread | None:
        """Return the spread of a figure; None: no sample measured it."""
        measured = [found for run in self.samples if (found := figures[run]) is not None]
        if not measured:
            return None
        return Spread(len(measured), median(measured), min(measured), max(measured))


def group(kinds: Sequence[object], valid: Sequence[bool], measured: Sequence[object]) -> tuple[Group, ...]:
    """Return groups of runs of one kind each, in the order of their first runs; groups without a sample come last.

    Other groups are compared with the first one.

    ``measured``: identifies a run's measurement; runs with equal ones are one sample, as repeated runs of one seed in
    virtual time are. All sequences have an entry a run.
    """
    found: dict[int, list[int]] = {}
    for run, kind in enumerate(kinds):
        found.setdefault(kinds.index(kind), []).append(run)
    ordered = sorted(found.values(), key=lambda runs: not any(valid[run] for run in runs))
    return tuple(_group(letters(number), runs, valid, measured) for number, runs in enumerate(ordered))


def pairs(first: Group, then: Group, figures: Sequence[float | None], seeds: Sequence[str]) -> Pairs:
    """Pair the values of a figure by seed. Of several samples of a seed in a group, their median is used."""
    before, after = _by_seed(first, figures, seeds), _by_seed(then, figures, seeds)
    both = [(before[seed], after[seed]) for seed in before if seed in after]
    return Pairs(len(both), sum(a < b for a, b in both), sum(a > b for a, b in both))


def _by_seed(of: Group, figures: Sequence[float | None], seeds: Sequence[str]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for run in of.samples:
        measured = figures[run]
        if measured is not None:
            found.setdefault(seeds[run], []).append(measured)
    return {seed: median(some) for seed, some in found.items()}


def letters(number: int) -> str:
    """``A`` to ``Z``, then ``AA``, as spreadsheets call columns."""
    rest, last = divmod(number, 26)
    return (letters(rest - 1) if rest else "") + chr(ord("A") + last)


def _group(name: str, runs: Sequence[int], valid: Sequence[bool], measured: Sequence[object]) -> Group:
    samples: list[int] = []
    again: list[tuple[int, int]] = []
    for run in (run for run in runs if valid[run]):
        equal = next((earlier for earlier in samples if measured[earlier] == measured[run]), None)
        if equal is None:
            samples.append(run)
        else:
            again.append((run, equal))
    invalid = tuple(run for run in runs if not valid[run])
    return Group(name, tuple(runs), tuple(samples), invalid, tuple(again))
