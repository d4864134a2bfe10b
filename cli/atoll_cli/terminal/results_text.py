# SPDX-License-Identifier: Apache-2.0
"""Results on a terminal, within its width, or in lines of fixed width if piped.

A table that is too wide is split, each part with the texts of its rows in front.
"""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from rich.console import Console
from rich.table import Table as RichTable

from atoll_analysis.verdict.findings import Verdict
from atoll_cli.terminal.output import results_console
from atoll_studies.results.results import Results
from atoll_studies.study_directory import FAILED
from atoll_studies.views.tables import Table, headline, tables

_PIPED_WIDTH = 120  # characters a line where no terminal and no COLUMNS says
_GAP = 2  # between columns
_STYLES = {Verdict.VALID.value: "", Verdict.CAVEATS.value: "yellow", Verdict.INVALID.value: "red", FAILED: "red"}


def print_results(results: Results, *, per_run: bool = False) -> None:
    """Print results. Of many runs of few configurations the figures of each are printed on request."""
    with results_console(_PIPED_WIDTH) as console:
        _print(results, console, per_run=per_run)


def _print(results: Results, console: Console, *, per_run: bool) -> None:
    console.print(headline(results), style="bold")
    for number, table in enumerate(tables(results, each_run=per_run)):
        if number or table.title or table.columns:
            console.print(f"\n{table.title}" if table.title else "", style="bold")
        if table.columns:
            for part in _split(table, console.width):
                _print_part(part, console)
        else:
            console.print(_text_grid(table))
        for note in table.notes:
            for line in textwrap.wrap(note, console.width, break_long_words=False, break_on_hyphens=False):
                console.print(line, style="dim", soft_wrap=True)  # a path is one line


def _text_grid(table: Table) -> RichTable:
    """Texts in columns of which the last one is wrapped."""
    grid = RichTable.grid(padding=(0, _GAP, 0, 0))
    for index in range(table.text_columns):
        is_last = index == table.text_columns - 1
        grid.add_column(style="" if index else "dim", no_wrap=not is_last, overflow="fold" if is_last else "ellipsis")
    for row, verdict in zip(table.rows, table.verdicts or ("",) * len(table.rows), strict=True):
        grid.add_row(f"  {row[0]}", *row[1:], style=_STYLES.get(verdict, ""))
    return grid


def _split(table: Table, width: int) -> Iterator[Table]:
    """The table, or parts of it that are no wider than ``width``, each with the first columns."""
    unwrapped = _with_cells(table, range(len(table.columns)), lambda cell: cell.replace("\n", " "))
    if sum(_widest(column) for column in _columns(unwrapped)) <= width + _GAP:
        yield unwrapped
        return
    table = replace(table, columns=tuple(_fold(column[0], _widest(column[1:])) for column in _columns(table)))
    min_widths = _narrowest_columns(table)
    lead_columns = table.text_columns if sum(min_widths[: table.text_columns]) <= width // 2 else 1
    index = lead_columns
    while index < len(min_widths):
        end, used_width = index + 1, sum(min_widths[:lead_columns]) + min_widths[index]
        while end < len(min_widths) and used_width + min_widths[end] <= width + _GAP:
            used_width += min_widths[end]
            end += 1
        part = _with_cells(table, (*range(lead_columns), *range(index, end)), str)
        yield replace(part, text_columns=lead_columns + max(0, min(end, table.text_columns) - index))
        index = end


def _with_cells(table: Table, indices: Sequence[int], change: Callable[[str], str]) -> Table:
    """Some columns of a table, each of their cells as a function makes it."""
    sections = tuple(
        (name, tuple(tuple(change(row[index]) for index in indices) for row in rows)) for name, rows in table.sections
    )
    return replace(table, columns=tuple(change(table.columns[index]) for index in indices), sections=sections)


def _columns(table: Table) -> Iterator[tuple[str, ...]]:
    return zip(table.columns, *table.rows, strict=True)


def _widest(column: Iterable[str]) -> int:
    """The width of a column whose lines are not wrapped, with the gap behind it."""
    return max(len(line) for cell in column for line in cell.split("\n")) + _GAP


def _narrowest_columns(table: Table) -> list[int]:
    """The widths of columns whose headings and texts are wrapped at each space, with the gaps behind them."""
    widths: list[int] = []
    for index, column in enumerate(_columns(table)):
        wrapped_count = len(column) if index < table.text_columns else 1
        wrapped_cells = [cell.replace(" ", "\n") for cell in column[:wrapped_count]]
        widths.append(_widest((*wrapped_cells, *column[wrapped_count:])))
    return widths


def _fold(heading: str, width: int) -> str:
    """A long key broken between its parts, if these are wider than the column otherwise is."""
    lines = [""]
    for part in re.findall(r"\.?[^.]+", heading):
        if len(lines[-1] + part) > width - _GAP and lines[-1]:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _print_part(table: Table, console: Console) -> None:
    """Print columns at their narrowest, and wider from the left on where there is room; each section below its heading.

    Figures are never wrapped.
    """
    columns, min_widths = list(_columns(table)), _narrowest_columns(table)
    spare_width = console.width + _GAP - sum(min_widths)
    widths: list[int] = []
    for column, min_width in zip(columns, min_widths, strict=True):
        extra = max(0, min(spare_width, _widest(column) - min_width))
        spare_width -= extra
        widths.append(min_width + extra - _GAP)
    for number, (section, rows) in enumerate(table.sections):
        grid = RichTable(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim", show_header=not number)
        for index, (column, width) in enumerate(zip(columns, widths, strict=True)):
            justify = "left" if index < table.text_columns else "right"
            style = "" if index else "dim"
            grid.add_column(column[0], style=style, justify=justify, overflow="fold", width=width)
        if section and not number:
            console.print(grid)  # the headings alone
            grid.show_header = False
        if section:
            console.print(section, style="bold")
        for row in rows:
            grid.add_row(*row)
        console.print(grid)
