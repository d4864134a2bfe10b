# SPDX-License-Identifier: Apache-2.0
"""Results as files: page, Markdown, tables, JSON, plots. The ending of a file's name chooses its form."""

import base64
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from atoll_core.errors import UsageError
from atoll_studies.results.result_tables import figures_table, results_json, runs_table, write_table
from atoll_studies.results.results import Results
from atoll_studies.views.tables import OVER_RUNS, Table, headline, tables

IMAGES = (".svg", ".pdf", ".png")
SUFFIXES = (".html", ".md", ".csv", ".parquet", ".json", *IMAGES)
"""The endings of names that have a form."""


def results_files(results: Results, path: Path, *, each_run: bool = False) -> dict[Path, bytes]:
    """The content of a file of results; of a page also its plots, in a folder next to it.

    A table is that of figures, or with ``each_run`` that of runs; a plot is of the first figure shown. Raises
    UsageError if no run measured the figure.
    """
    suffix = path.suffix.lower()
    if suffix == ".html":
        return _page_files(results, path)
    match suffix:
        case ".md":
            content = markdown(results).encode()
        case ".json":
            content = (json.dumps(results_json(results), indent=1) + "\n").encode()
        case ".csv" | ".parquet":
            table = runs_table(results) if each_run else figures_table(results)
            write_table(table, sink := io.BytesIO(), suffix, results.figure_names)
            content = sink.getvalue()
        case _:
            from atoll_dashboards.report.plot_style import image
            from atoll_studies.views.plots import figure_plot

            if not results.shown:
                raise UsageError(f"--out {path}: there is no figure that a run measured")
            content = image(figure_plot(results, results.shown[0]), suffix)
    return {path: content}


# Page


def _page_files(results: Results, path: Path) -> dict[Path, bytes]:
    """A page, which has all of its plots in it, and each plot as SVG and PDF."""
    from atoll_dashboards.report.plot_style import image
    from atoll_studies.views.plots import plots

    folder = path.with_name(f"{path.stem}-plots")
    files: dict[Path, bytes] = {}
    sections: list[tuple[str, str, bytes]] = []
    for title, name, figure in plots(results):
        images = {suffix: image(figure, suffix) for suffix in (".svg", ".pdf")}
        files |= {folder / f"{name}{suffix}": content for suffix, content in images.items()}
        sections.append((title, f"{folder.name}/{name}", images[".svg"]))
    return {path: page(results, sections).encode(), **files}


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
    yield "|---|" + "".join("---|" if index < table.text_columns else "---:|" for index in range(1, len(table.columns)))
    for section, rows in table.sections:
        if section:
            yield _line([f"**{section}**", *("" for _ in table.columns[1:])])
        yield from map(_line, rows)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", "<br>") for cell in cells) + " |"
