# SPDX-License-Identifier: Apache-2.0
"""A comparison of runs as Markdown and as an HTML page: the terminal's output and the figures of every run."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

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
    from atoll_dashboards.compare.comparison import Comparison


def markdown(comparison: "Comparison") -> str:
    """Return a Markdown document: differing properties, tables of settings and figures, equal properties."""
    lines = [f"{headline(comparison)}.", ""]
    for run in listed_runs(comparison):
        group = f"{run.group}, " if run.group else ""
        seed = f", seed {run.seed}" if run.seed else ""
        lines.append(f"- {group}{run.number} `{run.label}`{seed}: {run.verdict}")
        lines += [f"  - {why}" for why in run.reasons or run.caveats]
    lines.append("")
    if told := unlike(comparison):
        lines += ["Not alike:", ""]
        lines += [f"- {name}: {'; '.join(f'{which} {text}' for which, text in texts)}" for name, texts in told]
        lines.append("")
    if comparison.sampled:
        groups = sheet_of_groups(comparison)
        lines += ["Over seeds, the median and the least \N{EN DASH} greatest:", "", *_tables(groups)]
        if sentences := [*legend(groups), *not_counted(comparison)]:
            lines += [*(f"- {sentence}" for sentence in sentences), ""]
        lines += ["Every run:", ""]
    lines += [*_tables(sheet_of_runs(comparison)), "Alike:", ""]
    lines += [f"- {name}: {text}" for name, text in comparison.likeness.alike]
    return "\n".join(lines) + "\n"


def comparison_page(comparison: "Comparison") -> str:
    """Return a self-contained HTML page."""
    from atoll_dashboards.report.html_templates import rendered

    groups = sheet_of_groups(comparison) if comparison.sampled else None
    return rendered(
        "compare.html.j2",
        headline=headline(comparison),
        runs=listed_runs(comparison),
        unlike=unlike(comparison),
        groups=groups,
        remarks=[*legend(groups), *not_counted(comparison)] if groups else [],
        sheet=sheet_of_runs(comparison),
        alike=comparison.likeness.alike,
    )


FORMS = {".md": markdown, ".html": comparison_page}
"""What makes a comparison's text, by how the name of its file ends."""


def _tables(sheet: Sheet) -> Iterator[str]:
    """The lines of a sheet's tables, a blank one behind each."""
    for table in sheet.tables:
        yield from _table(table)


def _table(sheet: Sheet) -> Iterator[str]:
    """A column a subject, or a row a subject if there are many."""
    figures = sheet.unequal if sheet.many else sheet.figures
    rows = [
        ("", *sheet.subjects),
        *((name, *texts) for name, texts in sheet.texts),
        *((name, *map(_text, cells)) for name, cells in figures),
    ]
    head, *body = zip(*rows, strict=True) if sheet.many else rows
    yield _line(head)
    yield "|---|" + "---:|" * (len(head) - 1)
    yield from map(_line, body)
    yield ""
    if sheet.many and sheet.equal:
        yield f"The same of all: {'; '.join(f'{name}: {number}' for name, number in sheet.equal)}."
        yield ""


def _text(cell: Cell) -> str:
    spread = f"<br>{cell.spread}" if cell.spread else ""
    return " ".join(filter(None, (cell.number, cell.difference))) + spread


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
