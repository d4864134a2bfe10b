# SPDX-License-Identifier: Apache-2.0
"""A comparison on a terminal, within its width, or in lines of fixed width if piped.

Differing properties come first, each text once with its runs; then settings and figures, a column for each run, or a
row if there are more than six runs or the terminal is narrow; equal properties come last. Wide tables are split into
blocks, each with the runs in its first column.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll_analysis.verdict.findings import Verdict
from atoll_dashboards.compare.sheets import (
    Cell,
    Sheet,
    headline,
    legend,
    listed_runs,
    not_counted,
    sheet_of_groups,
    sheet_of_runs,
    unlike,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from atoll_dashboards.compare.comparison import Comparison

_PIPED = 100  # characters a line where nobody's terminal says
_WIDEST_NAME = 34  # longer keys are folded
_WIDEST_TEXT = 24  # of a setting that stands in a column
_GAP = 2  # between columns
_STYLES = {Verdict.VALID: "", Verdict.CAVEATS: "yellow", Verdict.INVALID: "red"}


def print_comparison(comparison: "Comparison", *, each_run: bool = False) -> None:
    """Print a comparison. If runs are grouped, figures of single runs are printed for few runs or on request."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    width = None if terminal or "COLUMNS" in os.environ else _PIPED
    console = Console(highlight=False, markup=False, width=width)  # brackets in paths and names are theirs
    if terminal:
        _print(comparison, console, each_run=each_run)
        return
    with console.capture() as captured:
        _print(comparison, console, each_run=each_run)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _print(comparison: "Comparison", console: "Console", *, each_run: bool) -> None:
    console.print(headline(comparison), style="bold")
    console.print(_runs_table(comparison))
    if told := unlike(comparison):
        console.print("\nnot alike", style="bold")
        console.print(_grid([row for name, texts in told for row in _unlike_rows(name, texts)]))
    runs = sheet_of_runs(comparison)
    if comparison.sampled:
        console.print("\nover seeds: median, least \N{EN DASH} greatest", style="bold")
        groups = sheet_of_groups(comparison)
        _print_sheet(groups, console)
        for sentence in (*legend(groups), *not_counted(comparison)):
            console.print(sentence, style="dim")
        if runs.many and not each_run:
            console.print("figures of every run: --per-run, --out, --json", style="dim")
    if not comparison.sampled or not runs.many or each_run:
        console.print("\nevery run" if comparison.sampled else "", style="bold")
        _print_sheet(runs, console)
    console.print("\nalike", style="bold")
    console.print(_grid([(f"  {name}", text) for name, text in comparison.likeness.alike]))


def _runs_table(comparison: "Comparison") -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    runs = listed_runs(comparison)
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    for run in runs:
        said = Text("; ".join((run.verdict, *(run.reasons or run.caveats))), style=_STYLES[Verdict(run.verdict)])
        seed = [f"seed {run.seed}"] if run.seed else []
        grid.add_row(f"  {run.group}  {run.number}" if run.group else f"  {run.number}", run.label, *seed, said)
    for column in grid.columns:
        column.overflow = "fold"
    return grid


def _unlike_rows(name: str, texts: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    for place, (which, text) in enumerate(texts):
        yield ("" if place else f"  {name}", which, text)


def _grid(rows: Sequence[Sequence[str]]) -> "Table":
    """Columns of which the last one is wrapped."""
    from rich.table import Table

    grid = Table.grid(padding=(0, _GAP, 0, 0))
    for place in range(len(rows[0]) if rows else 0):
        last = place == len(rows[0]) - 1
        grid.add_column(style="" if place else "dim", no_wrap=not last, overflow="fold" if last else "ellipsis")
    for row in rows:
        grid.add_row(*row)
    return grid


def _print_sheet(sheet: Sheet, console: "Console") -> None:
    """Print a column for each subject if they fit, with differences below the figures if space is short."""
    if not sheet.many:
        for tell in (_beside, _below):
            if _figures_end(sheet, tell) <= console.width:
                console.print(_columns(sheet, tell))
                return
    for block in _blocks(sheet, console.width):
        console.print(block)
    if sheet.equal:
        told = "; ".join(f"{name}: {number}" for name, number in sheet.equal)
        console.print(f"the same of all: {told}", style="dim")


def _beside(cell: Cell) -> str:
    return "\n".join(filter(None, (" ".join(filter(None, (cell.number, cell.difference))), cell.spread)))


def _below(cell: Cell) -> str:
    return "\n".join(filter(None, (cell.number, cell.spread, cell.difference)))


def _figures_end(sheet: Sheet, tell: Callable[[Cell], str]) -> int:
    return _name_width(sheet) + len(sheet.subjects) * (_GAP + _figure_width(sheet, tell))


def _name_width(sheet: Sheet) -> int:
    return min(_WIDEST_NAME, max(len(name) for name, _ in (*sheet.texts, *sheet.figures)))


def _figure_width(sheet: Sheet, tell: Callable[[Cell], str]) -> int:
    return max((_widest(tell(cell)) for _, cells in sheet.figures for cell in cells), default=0)


def _columns(sheet: Sheet, tell: Callable[[Cell], str]) -> "Table":
    """Make a column for each subject; texts are wrapped to the width that figures leave."""
    from rich.table import Table

    table = Table(box=None, padding=(0, _GAP, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("", style="dim", overflow="fold", width=_name_width(sheet))
    for subject in sheet.subjects:
        table.add_column(subject, justify="right", overflow="fold", min_width=_figure_width(sheet, tell))
    for name, texts in sheet.texts:
        table.add_row(name, *texts)
    for name, cells in sheet.figures:
        table.add_row(name, *map(tell, cells))
    return table


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a table whose rows are subjects."""

    name: str
    cells: tuple[str, ...]
    width: int
    text: bool  # rather than figures


def _blocks(sheet: Sheet, width: int) -> Iterator["Table"]:
    """Make a row for each subject, in tables no wider than ``width``; short texts are repeated in each."""
    lead = [_Column("", sheet.subjects, max(map(len, sheet.subjects)), text=True)]
    texts = [_text_column(name, texts) for name, texts in sheet.texts]
    rest = [_figure_column(name, cells) for name, cells in sheet.unequal]
    if _breadth([*lead, *texts]) <= width // 2:
        lead += texts
    else:
        rest = [*texts, *rest]
    while rest:
        taken = next((many for many in range(len(rest), 1, -1) if _breadth([*lead, *rest[:many]]) <= width), 1)
        yield _rows(lead + rest[:taken])
        rest = rest[taken:]


def _text_column(name: str, texts: tuple[str, ...]) -> _Column:
    longest = max(map(len, (*_parts(name), *texts)))
    width = min(_WIDEST_TEXT, longest)
    return _Column(_folded(name, width), texts, width, text=True)


def _folded(name: str, width: int) -> str:
    """Wrap a name to lines of that width, broken between parts of its key."""
    lines: list[str] = []
    for part in _parts(name):
        if lines and len(lines[-1] + part) <= width:
            lines[-1] += part
        else:
            lines.append(part.lstrip())
    return "\n".join(lines)


def _parts(name: str) -> list[str]:
    return re.findall(r"[. ]?[^. ]+", name)


def _figure_column(name: str, cells: tuple[Cell, ...]) -> _Column:
    told = tuple(map(_below, cells))
    return _Column(name, told, max(map(_widest, (*name.split(), *told))), text=False)


def _breadth(columns: Sequence[_Column]) -> int:
    return sum(column.width + _GAP for column in columns) - _GAP


def _rows(columns: Sequence[_Column]) -> "Table":
    from rich.table import Table

    table = Table(box=None, padding=(0, _GAP, 0, 0), header_style="dim", pad_edge=False)
    for column in columns:
        justify = "left" if column.text else "right"
        table.add_column(column.name, width=column.width, justify=justify, vertical="top", overflow="fold")
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*row)
    return table


def _widest(text: str) -> int:
    return max(map(len, text.split("\n")))
