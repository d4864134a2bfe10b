# SPDX-License-Identifier: Apache-2.0
"""Contents of a comparison, independent of its form (terminal, Markdown, page): texts, and tables as values.

Runs are named by numbers; groups of runs that differ in their seed only, by letters. Each column of a table is a
subject (a run or a group). With many subjects, a form makes them rows.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from atoll_dashboards.compare.seed_groups import LEAST_SAMPLES, pairs
from atoll_dashboards.compare.similarity import SEED, Rows, grouped
from atoll_dashboards.report.number_format import NOT_MEASURED

if TYPE_CHECKING:
    from atoll_dashboards.compare.comparison import ComparedFigure, Comparison
    from atoll_dashboards.compare.seed_groups import Group, Spread

MOST_COLUMNS = 6  # of subjects; more of them are rows
_BROADEST = 60  # characters of texts in front of figures, where subjects are rows
_LONGEST = 40  # characters of a setting in a table; longer ones are listed, each text once


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure of one subject."""

    number: str  # of a group the median
    difference: str = ""  # from the first subject's; of a group as legend() says
    spread: str = ""  # of a group, least to greatest


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table: texts and figures of subjects, all tuples in the order of the subjects."""

    subjects: tuple[str, ...]
    texts: Rows
    figures: tuple[tuple[str, tuple[Cell, ...]], ...]  # by name with unit

    @property
    def many(self) -> bool:
        """Whether there are too many subjects for a column each."""
        return len(self.subjects) > MOST_COLUMNS

    @property
    def tables(self) -> tuple["Sheet", ...]:
        """The sheet itself, or two sheets of texts and of figures if the texts are long."""
        breadth = sum(max(map(len, texts)) for _, texts in self.texts)
        if not self.many or breadth <= _BROADEST or not self.figures:
            return (self,)
        return replace(self, figures=()), replace(self, texts=())

    @property
    def unequal(self) -> tuple[tuple[str, tuple[Cell, ...]], ...]:
        """The figures that differ between subjects."""
        return tuple(row for row in self.figures if not self._equal(row[1]))

    @property
    def equal(self) -> tuple[tuple[str, str], ...]:
        """The figures that are equal for all subjects, with their values."""
        return tuple((name, cells[0].number) for name, cells in self.figures if self._equal(cells))

    def _equal(self, cells: tuple[Cell, ...]) -> bool:
        return len({(cell.number, cell.spread) for cell in cells}) == 1 and not cells[0].spread


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run where the runs are listed."""

    number: str
    group: str  # empty where groups are not spoken of
    label: str
    seed: str  # empty where it is the same for all
    verdict: str
    reasons: tuple[str, ...]
    caveats: tuple[str, ...]


def listed_runs(comparison: "Comparison") -> list[ListedRun]:
    """Return the runs, each with the part of its path in which it differs from the others."""
    paths = [os.path.abspath(run) for run in comparison.runs]  # noqa: PTH100 (Path.absolute keeps `..`)
    common = os.path.commonpath([str(Path(path).parent) for path in paths])
    letter = {run: each.name for each in comparison.groups for run in each.runs} if comparison.sampled else {}
    seeds = comparison.seeds if _many_seeds(comparison) else ("",) * len(paths)
    return [
        ListedRun(by_number([run]), letter.get(run, ""), os.path.relpath(path, common), seed, verdict, reasons, caveats)
        for run, (path, seed, verdict, reasons, caveats) in enumerate(
            zip(paths, seeds, comparison.verdicts, comparison.reasons, comparison.caveats, strict=True)
        )
    ]


def headline(comparison: "Comparison") -> str:
    """Return the number of runs, and whether something other than settings may cause differences."""
    if len(comparison.runs) == 1:
        return "1 run"
    told = comparison.likeness
    differing = [*(["settings"] if told.settings else []), *(["seeds"] if _many_seeds(comparison) else [])]
    if any(name != SEED for name, _ in told.unlike):
        beside = "different in more than their settings"
    else:
        beside = (
            f"alike but for their {' and '.join(differing)}" if differing else "identical in all recorded properties"
        )
    return f"{len(comparison.runs)} runs, {beside}"


def unlike(comparison: "Comparison") -> list[tuple[str, list[tuple[str, str]]]]:
    """Return differing properties outside of the tables: each text with the runs or groups it applies to."""
    rows = [row for row in comparison.likeness.unlike if row[0] != SEED]
    rows += [row for row in comparison.likeness.settings if not _is_short(row[1])]
    if comparison.sampled:
        first = [each.runs[0] for each in comparison.groups]
        names = [each.name for each in comparison.groups]
        return [
            (name, [(" ".join(names[place] for place in places), text) for places, text in grouped(_of(texts, first))])
            for name, texts in rows
        ]
    return [(name, [(by_number(places), text) for places, text in grouped(texts)]) for name, texts in rows]


def sheet_of_runs(comparison: "Comparison") -> Sheet:
    """Make a table of runs, without differences if there are many runs."""
    seed: Rows = ((SEED, comparison.seeds),) if _many_seeds(comparison) else ()
    verdicts: Rows = (("verdict", comparison.verdicts),) if set(comparison.verdicts) != {"valid"} else ()
    few = len(comparison.runs) <= MOST_COLUMNS
    return Sheet(
        subjects=tuple(by_number([run]) for run in range(len(comparison.runs))),
        texts=(*seed, *_short(comparison), *verdicts),
        figures=tuple((each.heading, tuple(_run_cells(each, differences=few))) for each in comparison.figures),
    )


def sheet_of_groups(comparison: "Comparison") -> Sheet:
    """Make a table of groups: median, minimum and maximum of each figure."""
    groups = comparison.groups
    first = [each.runs[0] for each in groups]
    return Sheet(
        subjects=tuple(each.name for each in groups),
        texts=(
            *((name, tuple(_of(texts, first))) for name, texts in _short(comparison)),
            ("runs", tuple(by_number(each.runs) for each in groups)),
            ("samples", tuple(f"{len(each.samples)}" for each in groups)),
        ),
        figures=tuple((each.heading, tuple(_group_cells(each, comparison))) for each in comparison.figures),
    )


def legend(sheet: Sheet) -> list[str]:
    """Return the meaning of the differences in a table of groups, if it has any."""
    differences = [cell.difference for _, cells in sheet.figures for cell in cells]
    told = [("(", "(+1.0%): the ranges overlap"), ("/", "4/5: of 5 seeds that both have, 4 differ in that direction")]
    return [meaning for mark, meaning in told if any(mark in each for each in differences)]


def not_counted(comparison: "Comparison") -> list[str]:
    """Return the reasons why groups have fewer samples than runs, a line each."""
    invalid = sorted(run for each in comparison.groups for run in each.invalid)
    again = sorted(pair for each in comparison.groups for pair in each.again)
    equal = ", ".join(f"{by_number([run])} ({by_number([earlier])})" for run, earlier in again)
    return [
        *([f"not counted, invalid: {by_number(invalid)}"] if invalid else []),
        *([f"not counted, equal to an earlier run in every figure: {equal}"] if again else []),
    ]


def by_number(runs: Iterable[int]) -> str:
    """Format run indices, counted from 0 and ascending, as numbers from 1: ``#1 #3-5``."""
    parts: list[str] = []
    for _, some in groupby(enumerate(runs), key=lambda pair: pair[1] - pair[0]):
        row = [run + 1 for _, run in some]
        parts += [f"#{row[0]}-{row[-1]}"] if len(row) > 2 else [f"#{number}" for number in row]
    return " ".join(parts)


def _many_seeds(comparison: "Comparison") -> bool:
    return len(set(comparison.seeds)) > 1


def _short(comparison: "Comparison") -> Rows:
    return tuple(row for row in comparison.likeness.settings if _is_short(row[1]))


def _is_short(texts: Iterable[str]) -> bool:
    return max(map(len, texts)) <= _LONGEST


def _of(texts: tuple[str, ...], runs: Iterable[int]) -> list[str]:
    return [texts[run] for run in runs]


def _run_cells(figure: "ComparedFigure", *, differences: bool) -> Iterator[Cell]:
    first = figure.values[0]
    for place, found in enumerate(figure.values):
        yield Cell(figure.text(found), figure.difference(first, found) if place and differences else "")


def _group_cells(figure: "ComparedFigure", comparison: "Comparison") -> Iterator[Cell]:
    first = comparison.groups[0]
    for group in comparison.groups:
        spread = group.spread(figure.values)
        if spread is None:
            yield Cell(NOT_MEASURED)
            continue
        difference = "" if group is first else _difference(figure, group, comparison)
        fewer = f" n={spread.samples}" if spread.samples < len(group.samples) else ""
        yield Cell(figure.text(spread.median), difference, f"{_range(figure, spread)}{fewer}".strip())


def _difference(figure: "ComparedFigure", group: "Group", comparison: "Comparison") -> str:
    """Return the difference of the medians of a group and the first one, in brackets if their ranges overlap."""
    first = comparison.groups[0]
    before, then = first.spread(figure.values), group.spread(figure.values)
    if before is None or then is None:
        return ""
    told = figure.difference(before.median, then.median)
    if not told or told == "=":
        return told
    paired = pairs(first, group, figure.shown, comparison.seeds)
    agree = paired.higher if told.startswith("+") else paired.lower
    seeds = f" {agree}/{paired.seeds}" if paired.seeds >= LEAST_SAMPLES else ""
    return (f"({told})" if before.overlaps(then) else told) + seeds


def _range(figure: "ComparedFigure", spread: "Spread") -> str:
    least, greatest = figure.text(spread.least), figure.text(spread.greatest)
    return "" if least == greatest else f"{least}\N{EN DASH}{greatest}"
