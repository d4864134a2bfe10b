# SPDX-License-Identifier: Apache-2.0
"""The report of a run: one HTML page that needs nothing but itself.

`python -m atoll_dashboards.report.report RUN` writes it.
"""

import argparse
import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll_analysis import analyse
from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.atomic_files import replace_text
from atoll_core.codec import from_json
from atoll_core.errors import AtollError, RunDirError
from atoll_core.lab.network import Network

if TYPE_CHECKING:
    from atoll_dashboards.report.report_data import Sources


def analyse_again(run: RunDir, binary: Path) -> tuple[dict[str, Any], Path]:
    """Write tables, summary and report of a run from its raw data; returns the summary and the report's path.

    ``binary``: the atoll-host executable. Raises RunDirError if this user cannot write there, and as
    :func:`atoll_analysis.analyse`.
    """
    if not os.access(run.path, os.W_OK | os.X_OK):
        msg = f"{run.path}: this user may not write there; copy the directory and analyse the copy"
        raise RunDirError(msg)
    run.compress_captures()
    return analyse(run, binary), write_report(run)


def write_report(run: RunDir) -> Path:
    """Write report.html of an analysed run; returns its path. Equal runs give equal pages.

    Raises RunError when the run was not analysed yet or the disk is full.
    """
    from atoll_dashboards.report.report_data import read_sources

    path = run.path / "report.html"
    replace_text(path, report_page(read_sources(run)))
    return path


def report_page(sources: "Sources") -> str:
    """The page itself."""
    from atoll_analysis.figures.losses import CAUSES
    from atoll_analysis.verdict.loss_agreement import proofs
    from atoll_dashboards.report import provenance
    from atoll_dashboards.report.box_tables import box_tables
    from atoll_dashboards.report.html_templates import rendered
    from atoll_dashboards.report.key_figures import key_figures

    return rendered(
        "report.html.j2",
        summary=sources.summary,
        title=sources.experiment.name,
        asked=provenance.in_one_line(sources.experiment),
        proofs=proofs(sources.summary.get("stretches", ()), sources.summary.get("payload")),
        losses=[
            (name, direction, CAUSES[cause], lost)
            for name, link in sources.summary["links"].items()
            for direction, losses in (("island", link.get("losses")), ("world", link.get("losses_to_world")))
            for cause, lost in (losses or {}).items()  # absent from what older versions analysed
            if lost["packets"]
        ],
        figures=key_figures(sources.summary),
        plots=_drawn(sources),
        box_tables=box_tables(sources.summary, sources.manifest, sources.experiment),
        settings=provenance.settings(sources.experiment, from_json(Network, sources.manifest["network"])),
        provenance=provenance.origin(sources.manifest),
    )


def _drawn(sources: "Sources") -> list[dict[str, Any]]:
    from atoll_dashboards.report.plot_style import as_svg
    from atoll_dashboards.report.plots import PLOTS

    drawn: list[dict[str, Any]] = []
    for plot in PLOTS:
        figure = plot.figure(sources)
        if figure is not None:
            image = as_svg(figure, plot.name)
            drawn.append({"name": plot.name, "title": plot.title, "caption": plot.caption, "image": image})
    return drawn


def main() -> int:
    """Exit code 0: written; otherwise the error's."""
    parser = argparse.ArgumentParser(
        prog="python -m atoll_dashboards.report.report", description="Write a run's report.html."
    )
    parser.add_argument("run", type=Path, help="an analysed run directory, such as runs/geo/20260102T030405Z-1")
    parser.add_argument("--after-line", action="store_true", help="load libraries, then wait for a line of input")
    asked = parser.parse_args()
    if asked.after_line:
        for module in ("html_templates", "key_figures", "plots", "provenance", "report_data"):
            importlib.import_module(f"atoll_dashboards.report.{module}")
        if not sys.stdin.readline():
            return 1
    try:
        path = write_report(RunDir.open(asked.run, damaged=True))
    except AtollError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
