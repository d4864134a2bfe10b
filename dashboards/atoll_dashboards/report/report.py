# SPDX-License-Identifier: Apache-2.0
"""The report of a run: one HTML page that needs nothing but itself.

`python -m atoll_dashboards.report.report RUN` writes it.
"""

import argparse
import base64
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll_analysis import analyse
from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.atomic_files import replace_text
from atoll_core.codec import from_json
from atoll_core.errors import AtollError, RunDirError
from atoll_core.lab.network import Network

if TYPE_CHECKING:
    from atoll_dashboards.report.plots import Plot
    from atoll_dashboards.report.report_data import Sources


def analyse_again(run: RunDir, binary: Path) -> tuple[dict[str, Any], Path]:
    """Write tables, summary and report of a run from its raw data; returns the summary and the report's path.

    ``binary``: the atoll-host executable. Raises RunDirError if this user cannot write there, and as
    :func:`atoll_analysis.analyse`.
    """
    if not os.access(run.path, os.W_OK | os.X_OK):
        raise RunDirError(f"{run.path}: this user may not write there; copy the directory and analyse the copy")
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
    from atoll_analysis.figures.run_figures import CLASSES
    from atoll_analysis.summary import transfers_of
    from atoll_analysis.tables.directions import Direction
    from atoll_analysis.verdict.loss_agreement import proofs
    from atoll_dashboards.report import provenance
    from atoll_dashboards.report.html_templates import rendered
    from atoll_dashboards.report.key_figures import key_figures

    return rendered(
        "report.html.j2",
        summary=sources.summary,
        title=sources.experiment.name,
        experiment=provenance.one_line_summary(sources.experiment),
        proofs=[
            proof
            for direction in Direction
            for figures in (sources.figures(direction),)
            for proof in proofs(figures.get("stretches", ()), figures.get("payload"), direction)
        ],
        losses=[
            (name, direction, CAUSES[cause], lost)
            for name, link in sources.summary["links"].items()
            for direction, losses in (("island", link.get("losses")), ("world", link.get("losses_to_world")))
            for cause, lost in (losses or {}).items()  # absent from what older versions analysed
            if lost["packets"]
        ],
        repeated_transfers={
            name: transfer for name, transfer in transfers_of(sources.summary).items() if len(transfer["downloads"]) > 1
        },
        figures=key_figures(sources.summary),
        flow_size_classes=CLASSES,
        plots=list(_plots(sources)),
        box_tables=list(_box_tables(sources)),
        settings=provenance.settings(sources.experiment, from_json(Network, sources.manifest["network"])),
        provenance=provenance.origin(sources.manifest),
    )


def _plots(sources: "Sources") -> Iterator[tuple["Plot", str]]:
    """The plots of a run, each with its SVG in base64."""
    from atoll_dashboards.report.plot_style import image
    from atoll_dashboards.report.plots import PLOTS

    for plot in PLOTS:
        figure = plot.figure(sources)
        if figure is not None:
            yield plot, base64.b64encode(image(figure, ".svg", salt=plot.name)).decode()


def _box_tables(sources: "Sources") -> Iterator[dict[str, Any]]:
    """A table of counters for each kind of boxes, in the order of the lab. ``boxes``: those in use.

    ``rows``: a counter's name, its meaning, and its sum at each box; a dash if an older program did not count it.
    """
    from atoll_dashboards.report.number_format import count, octets

    sums_by_box = sources.summary.get("boxes", {})
    network = from_json(Network, sources.manifest["network"])
    boxes = [box for box in sources.experiment.as_used(network).boxes if box.name in sums_by_box]
    for kind in dict.fromkeys(box.kind for box in boxes if box.kind.counters):
        names = [box.name for box in boxes if box.kind == kind]
        rows: list[tuple[str, str, list[str]]] = []
        for counter in kind.counters:
            sums = [sums_by_box[name].get(counter.name) for name in names]
            unit = "" if counter.unit == "1" else counter.unit
            texts = [octets(number) if unit == "bytes" else count(number, unit) for number in sums]
            rows.append((counter.name, counter.meaning, texts))
        yield {"kind": kind.name, "boxes": names, "rows": rows}


def main() -> int:
    """Exit code 0: written; otherwise the error's."""
    parser = argparse.ArgumentParser(
        prog="python -m atoll_dashboards.report.report", description="Write a run's report.html."
    )
    parser.add_argument("run", type=Path, help="an analysed run directory, such as runs/geo/20260102T030405Z-1")
    parser.add_argument(
        "--after-line", dest="wait_for_input", action="store_true", help="load libraries, then wait for a line of input"
    )
    options = parser.parse_args()
    if options.wait_for_input:
        for module in ("html_templates", "key_figures", "plots", "provenance", "report_data"):
            importlib.import_module(f"atoll_dashboards.report.{module}")
        if not sys.stdin.readline():
            return 1
    try:
        path = write_report(RunDir.open(options.run, allow_damaged=True))
    except AtollError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
