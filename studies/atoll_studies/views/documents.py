# SPDX-License-Identifier: Apache-2.0
"""Results as files: page, Markdown, tables, JSON, plots. The ending of a file's name chooses its form."""

import base64
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from atoll_core.errors import UsageError
from atoll_studies.results.result_tables import figures_table, results_json, runs_table, units_of
from atoll_studies.results.results import Results
from atoll_studies.views.tables import OVER_RUNS, Table, headline, tables

if TYPE_CHECKING:
    import polars as pl

IMAGES = (".svg", ".pdf", ".png")
FORMS = (".html", ".md", ".csv", ".parquet", ".json", *IMAGES)
"""The endings of names that have a form."""


def write_results(results: Results, path: Path, *, each_run: bool = False) -> list[Path]:
    """Write a file of results; returns it, and of a page the plots beside it.

    A table is that of figures, or with ``each_run`` that of runs; a plot is of the first figure shown. Raises OSError,
    UsageError if no run measured the figure.
    """
    form = path.suffix.lower()
    if form == ".html":
        return [path, *_write_page(results, path)]
    match form:
        case ".md":
            content = markdown(results).encode()
        case ".json":
            content = (json.dumps(results_json(results), indent=1) + "\n").encode()
        case ".csv" | ".parquet":
            content = _table_file(runs_table(results) if each_run else figures_table(results), form)
        case _:
            from atoll_studies.views.plots import figure_plot, image

            if not results.shown:
                raise UsageError(f"--out {path}: there is no figure that a run measured")
            content = image(figure_plot(results, results.shown[0]), form)
    path.write_bytes(content)
    return [path]


def _table_file(table: "pl.DataFrame", form: str) -> bytes:
    sink = io.BytesIO()
    if form == ".csv":
        table.write_csv(sink)
    else:
        table.write_parquet(sink, metadata=units_of(table))
    return sink.getvalue()


# Page


def _write_page(results: Results, path: Path) -> Iterator[Path]:
    """Write a page, which has all of its plots in it, and each plot as SVG and PDF in a folder beside it."""
    from atoll_studies.views.plots import image, plots

    folder = path.with_name(f"{path.stem}-plots")
    drawn = {plot: {form: image(figure, form) for form in (".svg", ".pdf")} for plot, figure in plots(results)}
    if drawn:
        folder.mkdir(exist_ok=True)
    for plot, files in drawn.items():
        for form, content in files.items():
            file = folder / f"{plot.name}{form}"
            file.write_bytes(content)
            yield file
    path.write_text(page(results, [(plot.title, f"{folder.name}/{plot.name}", files[".svg"])
                                   for plot, files in drawn.items()]), encoding="utf-8")  # fmt: skip


def page(results: Results, plots: Sequence[tuple[str, str, bytes]] = ()) -> str:
    """A self-contained HTML page. ``plots``: of each its title, its file's name without .svg or .pdf, and its SVG."""
    from atoll_dashboards.report.html_templates import rendered

    return rendered(
        "results.html.j2",
        title=results.name,
        headline=headline(results),
        tables=list(tables(results, each_run=True)),
        over_runs=OVER_RUNS,
        plots=[(title, file, base64.b64encode(svg).decode()) for title, file, svg in plots],
    )


# Markdown


def markdown(results: Results) -> str:
    """A Markdown document with the tables of the page."""
    lines = [f"{headline(results)}.", ""]
    for table in tables(results, each_run=True):
        lines += [f"{table.title[0].upper()}{table.title[1:]}:", ""] if table.title else []
        lines += [*(_table(table) if table.columns else map(_item, table.rows)), ""]
        lines += [*(f"- {note}" for note in table.notes), ""] if table.notes else []
    return "\n".join(lines).rstrip() + "\n"


def _item(row: Sequence[str]) -> str:
    return f"- {' '.join(filter(None, row[:-1]))}: {row[-1]}"


def _table(table: Table) -> Iterator[str]:
    yield _line(table.columns)
    yield "|---|" + "".join("---|" if place < table.texts else "---:|" for place in range(1, len(table.columns)))
    for section, rows in table.sections:
        if section:
            yield _line([f"**{section}**", *("" for _ in table.columns[1:])])
        yield from map(_line, rows)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", "<br>") for cell in cells) + " |"
