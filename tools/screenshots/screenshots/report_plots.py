# SPDX-License-Identifier: Apache-2.0
"""Pictures of the report's figures: each of those that report.html of a run has, drawn as there."""

from pathlib import Path

from atoll_analysis.run_directory import RunDir
from atoll_dashboards.report.plots import PLOTS
from atoll_dashboards.report.report_data import read_sources
from screenshots.picture import save

_DPI = 110


def make(run: Path, out: Path) -> list[Path]:
    """Write report-NAME.png of each figure. Raises RunError when the run was not analysed."""
    sources = read_sources(RunDir.open(run))
    drawn = ((plot.name, plot.figure(sources)) for plot in PLOTS)
    return [save(figure, out / f"report-{name}.png", _DPI) for name, figure in drawn if figure is not None]
