# SPDX-License-Identifier: Apache-2.0
"""A comparison of runs on a terminal, as Markdown and as an HTML page.

Runs go by number. What they are not alike in comes first, each text once with the runs of which it holds; then a column
a run for settings and figures, from the second run on with the difference from the first; what is alike comes last.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from atoll_dashboards.likeness import grouped

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from atoll_dashboards.compare import Comparison

_MOST_COLUMNS = 6  # of runs; more of them are rows
_WIDEST = 1000  # characters
_WIDEST_NAME = 34  # characters; longer keys are folded

Rows = list[tuple[str, ...]]


def labels(comparison: "Comparison") -> list[str]:
    """What each run is: the part of its path in which it differs from others."""
    runs = [os.path.abspath(run) for run in comparison.runs]  # noqa: PTH100 (Path.absolute keeps `..`)
    common = os.path.commonpath([str(Path(run).parent) for run in runs])
    return [os.path.relpath(run, common) for run in runs]


def headline(comparison: "Comparison") -> str:
    """How many runs there are, and whether something else than settings may be behind a difference."""
    beside = "not alike in more than their settings" if comparison.likeness.unlike else "alike but for their settings"
    return f"{len(comparison.runs)} runs, {beside}" if len(comparison.runs) > 1 else "1 run"


def print_comparison(comparison: "Comparison") -> None:
    """Print it to standard output: a column a run, or a row a run when there are many."""
    from rich.console import Console

    console = Console(highlight=False, markup=False)  # brackets in paths and names are theirs
    console.print(headline(comparison), style="bold")
    console.print(_runs_table(comparison))
    if comparison.likeness.unlike:
        console.print("\nnot alike", style="bold")
        console.print(_unlike_table(comparison))
    console.print()
    if _is_upright(comparison):
        console.print(_columns_table(comparison, console))
    else:
        _print_rows(comparison, console)
    console.print("\nalike", style="bold")
    console.print(_grid([(f"  {name}", text) for name, text in comparison.likeness.alike]))


def markdown(comparison: "Comparison") -> str:
    """A Markdown document: lists of what is not alike and alike, a table of settings and figures between them."""
    runs = zip(labels(comparison), comparison.verdicts, comparison.reasons, strict=True)
    lines = [f"{headline(comparison)}.", ""]
    for number, (label, verdict, reasons) in enumerate(runs, start=1):
        lines += [f"- #{number} `{label}`: {verdict}", *(f"  - {reason}" for reason in reasons)]
    lines += ["", *_unlike_lines(comparison)]
    rows = [("", *_numbers(comparison)), *_rows(comparison, " ")]
    head, *body = rows if _is_upright(comparison) else list(zip(*rows, strict=True))
    lines += [_line(head), "|---|" + "---:|" * (len(head) - 1), *map(_line, body), ""]
    lines += ["Alike:", "", *(f"- {name}: {text}" for name, text in comparison.likeness.alike)]
    return "\n".join(lines) + "\n"


def page(comparison: "Comparison") -> str:
    """One HTML page that needs nothing but itself."""
    from atoll_dashboards.pages import rendered

    runs = [
        {"number": number, "label": label, "verdict": verdict, "reasons": reasons}
        for number, (label, verdict, reasons) in enumerate(
            zip(labels(comparison), comparison.verdicts, comparison.reasons, strict=True), start=1
        )
    ]
    unlike = [
        (name, [(_by_number(places), text) for places, text in grouped(texts)])
        for name, texts in comparison.likeness.unlike
    ]
    return rendered(
        "compare.html.j2",
        headline=headline(comparison),
        runs=runs,
        unlike=unlike,
        settings=comparison.likeness.settings,
        figures=[(each.heading, each.cells()) for each in comparison.figures],
        alike=comparison.likeness.alike,
        wide=not _is_upright(comparison),
    )


FORMS = {".md": markdown, ".html": page}
"""What makes a comparison's text, by how the name of its file ends."""


def _is_upright(comparison: "Comparison") -> bool:
    return len(comparison.runs) <= _MOST_COLUMNS


def _numbers(comparison: "Comparison") -> list[str]:
    return [_by_number([run]) for run in range(len(comparison.runs))]


def _by_number(runs: Iterable[int]) -> str:
    """Runs, counted from 0, as people count them: ``#1 #3``."""
    return " ".join(f"#{run + 1}" for run in runs)


def _rows(comparison: "Comparison", between: str) -> Rows:
    """Name and one text a run: settings, verdict, figures. ``between``: a figure and its difference."""
    return [
        *((name, *texts) for name, texts in comparison.likeness.settings),
        ("verdict", *comparison.verdicts),
        *((each.heading, *(between.join(filter(None, cell)) for cell in each.cells())) for each in comparison.figures),
    ]


def _grid(rows: Sequence[Sequence[str]]) -> "Table":
    """Columns of which the last one is wrapped."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2, 0, 0))
    for place in range(len(rows[0]) if rows else 0):
        last = place == len(rows[0]) - 1
        grid.add_column(style="" if place else "dim", no_wrap=not last, overflow="fold" if last else "ellipsis")
    for row in rows:
        grid.add_row(*row)
    return grid


def _runs_table(comparison: "Comparison") -> "RenderableType":
    from rich.text import Text

    runs = zip(_numbers(comparison), labels(comparison), comparison.verdicts, comparison.reasons, strict=True)
    grid = _grid([])
    for _ in range(3):
        grid.add_column(overflow="fold")
    for number, label, verdict, reasons in runs:
        said = Text("; ".join((verdict, *reasons)), style="" if verdict == "valid" else "red")
        grid.add_row(f"  {number}", label, said)
    return grid


def _unlike_table(comparison: "Comparison") -> "RenderableType":
    rows: Rows = []
    for name, texts in comparison.likeness.unlike:
        for place, (places, text) in enumerate(grouped(texts)):
            rows.append(("" if place else f"  {name}", _by_number(places), text))
    return _grid(rows)


def _unlike_lines(comparison: "Comparison") -> list[str]:
    if not comparison.likeness.unlike:
        return []
    lines = ["Not alike:", ""]
    for name, texts in comparison.likeness.unlike:
        said = "; ".join(f"{_by_number(runs)} {text}" for runs, text in grouped(texts))
        lines.append(f"- {name}: {said}")
    return [*lines, ""]


def _columns_table(comparison: "Comparison", console: "Console") -> "RenderableType":
    """A column a run; differences go below figures where the terminal is too narrow for them beside."""
    table = _table(comparison, " ")
    if console.measure(table, options=console.options.update(width=_WIDEST)).maximum <= console.width:
        return table
    return _table(comparison, "\n")


def _table(comparison: "Comparison", between: str) -> "Table":
    from rich.table import Table

    rows = _rows(comparison, between)
    figures = [number for each in comparison.figures for number, _ in each.cells()]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", style="dim", overflow="fold", width=min(_WIDEST_NAME, max(len(row[0]) for row in rows)))
    for number in _numbers(comparison):
        table.add_column(number, justify="right", overflow="fold", min_width=max(map(len, figures), default=0))
    for row in rows:
        table.add_row(*row)
    return table


def _print_rows(comparison: "Comparison", console: "Console") -> None:
    """A row a run: a line too long for the terminal can be read, columns squeezed to a letter cannot."""
    from rich.table import Table

    head, *body = zip(*[("run", *_numbers(comparison)), *_rows(comparison, " ")], strict=True)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for place, name in enumerate(head):
        table.add_column(name, justify="right" if place else "left", no_wrap=True)
    for row in body:
        table.add_row(*row)
    console.width = max(console.width, console.measure(table, options=console.options.update(width=_WIDEST)).maximum)
    console.print(table)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
