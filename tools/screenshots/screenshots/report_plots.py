# SPDX-License-Identifier: Apache-2.0
"""Pictures of the report's figures: each of those that report.html of a run has, drawn as there."""

from pathlib import Path

from atoll.rundir import RunDir
from atoll_dashboards.plots import PLOTS
from atoll_dashboards.sources import read_sources
from screenshots.picture import save

_DPI = 110


def make(run: Path, out: Path) -> list[Path]:
    """Write report-NAME.png of each figure. Raises RunError when the run was not analysed."""
    sources = read_sources(RunDir.open(run))
    drawn = ((plot.name, plot.figure(sources)) for plot in PLOTS)
    return [save(figure, out / f"report-{name}.png", _DPI) for name, figure in drawn if figure is not None]
