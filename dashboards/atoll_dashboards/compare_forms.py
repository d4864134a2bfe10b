# SPDX-License-Identifier: Apache-2.0
"""A comparison of runs on a terminal, as Markdown and as an HTML page."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.model.errors import UsageError
from atoll.rundir.files import replace_text

if TYPE_CHECKING:
    from atoll_dashboards.compare import Comparison

_MOST_COLUMNS = 4  # of runs; more of them are rows
_WIDEST = 1000  # characters
_WHERE = ("place", "backend")

Rows = list[tuple[str, ...]]


def rows_of(comparison: "Comparison") -> Rows:
    """Name and one text a run: where it ran, what it was asked differently, its verdict, its figures.

    With a row a run there is no room for what hardly anybody asks of many runs: the origin beyond place and backend.
    """
    origins = [
        row for row in comparison.origins if _is_upright(comparison) or (row[0] in _WHERE and len(set(row[1])) > 1)
    ]
    return [
        *((name, *texts) for name, texts in (*origins, *comparison.settings)),
        ("verdict", *comparison.verdicts),
        *((each.name, *each.texts()) for each in comparison.figures),
    ]


def labels(comparison: "Comparison") -> list[str]:
    """The runs by number, and below each what it is: the part of its path in which it differs from others."""
    runs = [os.path.abspath(run) for run in comparison.runs]  # noqa: PTH100 (Path.absolute keeps `..`)
    common = os.path.commonpath([str(Path(run).parent) for run in runs])
    return [os.path.relpath(run, common) for run in runs]


def print_comparison(comparison: "Comparison") -> None:
    """Print it to standard output: a column a run, or a row a run when there are many."""
    from rich.console import Console
    from rich.table import Table

    rows = [("run", *labels(comparison)), *rows_of(comparison)]
    upright = _is_upright(comparison)
    head, *body = rows if upright else _turned(rows)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for place, name in enumerate(head):
        style, side = ("dim" if not place and upright else ""), ("right" if place else "left")
        table.add_column(name, style=style, justify=side, overflow="fold")
    for row in body:
        table.add_row(*row)
    console = Console(highlight=False)
    if not upright:  # a line too long for the terminal can be read, columns squeezed to a letter cannot
        whole = console.measure(table, options=console.options.update(width=_WIDEST)).maximum
        console.width = max(console.width, whole)
    console.print(table)
    for number, reasons in enumerate(comparison.reasons):
        for reason in reasons:
            console.print(f"{labels(comparison)[number]}: {reason}", style="red", soft_wrap=True)


def markdown(comparison: "Comparison") -> str:
    """A Markdown table with a column a run, or a row a run when there are many."""
    rows = [("", *(f"`{label}`" for label in labels(comparison))), *rows_of(comparison)]
    head, *body = rows if _is_upright(comparison) else _turned(rows)
    lines = [_line(head), "|---|" + "---:|" * (len(head) - 1), *map(_line, body)]
    remarks = [
        f"- `{label}`: {reason}"
        for label, reasons in zip(labels(comparison), comparison.reasons, strict=True)
        for reason in reasons
    ]
    return "\n".join([*lines, *([""] if remarks else []), *remarks]) + "\n"


def page(comparison: "Comparison") -> str:
    """One HTML page that needs nothing but itself."""
    from atoll_dashboards.pages import rendered

    runs = [
        {"label": label, "verdict": verdict, "reasons": reasons}
        for label, verdict, reasons in zip(labels(comparison), comparison.verdicts, comparison.reasons, strict=True)
    ]
    figures = [(each.name, *each.texts()) for each in comparison.figures]
    return rendered("compare.html.j2", runs=runs, rows=(*comparison.origins, *comparison.settings), figures=figures)


def write_comparison(comparison: "Comparison", path: Path) -> None:
    """Write it as its name says, ``.md`` or ``.html``. UsageError: another name; RunError: it cannot be written."""
    forms = {".md": markdown, ".html": page}
    if path.suffix not in forms:
        msg = f"--out: {path} does not say which form it is; end its name in {' or '.join(forms)}"
        raise UsageError(msg)
    replace_text(path, forms[path.suffix](comparison))


def _is_upright(comparison: "Comparison") -> bool:
    return len(comparison.runs) <= _MOST_COLUMNS


def _turned(rows: Sequence[tuple[str, ...]]) -> Rows:
    return list(zip(*rows, strict=True))


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
