# SPDX-License-Identifier: Apache-2.0
# pyright: reportUnknownMemberType=false
# (matplotlib leaves the keyword arguments of its drawing methods untyped)
"""A figure of a study as a plot: every run, the median and its interval, a column for each configuration."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from atoll_analysis.run_directory.atomic_files import replacing
from atoll_core.errors import UsageError
from atoll_dashboards.compare.comparison import FIGURES
from atoll_dashboards.report.plot_style import BLUE, GREY, INK, WIDTH_IN, common_style
from atoll_studies.results import Results

_COLUMN_IN = 0.85
_HEIGHT_IN = 3.4
_SPREAD = 0.18  # of the runs around their column


def write_plot(results: Results, figure: str, path: Path) -> None:
    """Write the plot of a figure; the ending of the name chooses the format. Equal results give equal files.

    Raises UsageError if no run measured the figure, RunError when the disk is full.
    """
    with common_style(), mpl.rc_context({"svg.hashsalt": figure}):
        drawn = _drawn(results, figure)
        form = path.suffix.lower().removeprefix(".")
        metadata = {"svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}.get(form)
        with replacing(path) as temporary:
            drawn.savefig(temporary, format=form, metadata=metadata)


def _drawn(results: Results, figure: str) -> Figure:
    unit = FIGURES[figure][0]
    found = [(number, results.of(number, figure)) for number in range(len(results.configurations))]
    columns = [(number, each) for number, each in found if each is not None]
    if not columns:
        raise UsageError(f"no run of study {results.name} measured {figure!r}")
    drawn = Figure(figsize=(min(WIDTH_IN, max(3.4, 0.9 + _COLUMN_IN * len(columns))), _HEIGHT_IN), layout="constrained")
    axes = drawn.subplots()
    for place, (number, each) in enumerate(columns):
        values = list(results.values(number, figure).values())
        offsets = [_SPREAD * (2 * (run + 0.5) / len(values) - 1) for run in range(len(values))]
        axes.plot([place + offset for offset in offsets], values, "o", color=GREY, markersize=3, alpha=0.6, zorder=2)
        if each.median.level:
            low, high = each.median.value - each.median.low, each.median.high - each.median.value
            axes.errorbar(
                place, each.median.value, [[low], [high]], color=BLUE, capsize=5, elinewidth=1.6, capthick=1.6, zorder=3
            )
        axes.plot(place, each.median.value, "o", color=BLUE, markersize=6, zorder=4)
    levels = sorted({round(100 * each.median.level, 1) for _, each in columns if each.median.level})
    axes.set_xticks(range(len(columns)), ["\n".join(results.configurations[number].values()) for number, _ in columns])
    axes.set_xlim(-0.6, len(columns) - 0.4)
    axes.set_ylabel(f"{figure} ({unit})" if unit else figure)
    at = " to ".join(f"{level:g} %" for level in dict.fromkeys((levels[0], levels[-1]))) if levels else ""
    said = f"median with its interval at {at}; grey: single runs" if at else "single runs"
    axes.set_title(said, fontsize=8.5, fontweight="normal", color=INK)
    return drawn
