# SPDX-License-Identifier: Apache-2.0
"""Runs that are alike but for their seed, as samples of one thing: how many, their median, the least and the greatest.

One seed has one answer for one version and one set of options, and which packet meets a full queue is chance: what a
setting does shows in the distribution over seeds (docs/comparing.md).
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
        """Whether a value can lie between the least and the greatest of both."""
        return self.least <= other.greatest and other.least <= self.greatest


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that are alike but for their seed. Runs are counted from 0, in the order of the comparison."""

    name: str  # a letter
    runs: tuple[int, ...]
    samples: tuple[int, ...]  # the valid ones that no earlier one is equal to
    invalid: tuple[int, ...]
    again: tuple[tuple[int, int], ...]  # a run, and the earlier one that it repeats to the byte

    def spread(self, figures: Sequence[float | None]) -> Spread | None:
        """Of a figure of all runs compared; None: no sample measured it."""
        measured = [found for run in self.samples if (found := figures[run]) is not None]
        if not measured:
            return None
        return Spread(len(measured), median(measured), min(measured), max(measured))


def group(kinds: Sequence[object], valid: Sequence[bool], measured: Sequence[object]) -> tuple[Group, ...]:
    """Groups of the runs of one kind each, in the order of their first runs.

    ``measured``: all that a run measured; equal ones are one sample, as virtual time makes of one seed. All sequences
    have an entry a run.
    """
    found: dict[int, list[int]] = {}
    for run, kind in enumerate(kinds):
        found.setdefault(kinds.index(kind), []).append(run)
    return tuple(_group(letters(number), runs, valid, measured) for number, runs in enumerate(found.values()))


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
