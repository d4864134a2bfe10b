# SPDX-License-Identifier: Apache-2.0
# pyright: reportUnknownMemberType=false
# (matplotlib leaves the keyword arguments of its drawing methods untyped)
"""Plots of distributions in a run's summary: flows by size class, losses by burst length."""

from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from atoll_analysis.figures.flows import FlowClass
from atoll_core.units import Size
from atoll_dashboards.report.plot_style import BLUE, GREEN, VERMILLION, key, plain_figure
from atoll_dashboards.report.report_data import Sources

_HEIGHT_IN = 3.1
_THREE_LINES_IN = 0.66  # of text below an axis


def flow_classes(sources: Sources) -> Figure | None:
    """Percentiles of completion time and rate of each size class."""
    classes = [each for each in sources.summary.get("flow_classes", ()) if each["completed"]]
    if not classes:
        return None
    figure, (left, right) = plain_figure(_HEIGHT_IN, 2, (1.0, 1.0))
    figure.subplots_adjust(bottom=_THREE_LINES_IN / _HEIGHT_IN)
    _percentile_bars(left, classes, "completion_s", BLUE)
    left.set_ylabel("connect to last byte (s)")
    _percentile_bars(right, classes, "rate_mbit_s", GREEN)
    right.set_ylabel("size / time (Mbit/s)")
    return figure


def _percentile_bars(
    axes: Axes, classes: list[FlowClass], name: Literal["completion_s", "rate_mbit_s"], colour: str
) -> None:
    measured = [(place, found) for place, each in enumerate(classes) if (found := each[name])]
    places = [place for place, _ in measured]
    p50, p90, p99 = ([found[p] for _, found in measured] for p in ("p50", "p90", "p99"))
    axes.vlines(places, p50, p99, color=colour, linewidth=1.4, alpha=0.6, label="p50 to p99")
    axes.vlines(places, p50, p90, color=colour, linewidth=7, alpha=0.45, label="p50 to p90")
    axes.plot(places, p50, "o", color=colour, markersize=5.5, label="p50")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(_plainly))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(range(len(classes)), [f"{_bounds(each)}\n{_completed(each)}" for each in classes])
    axes.set_xlim(-0.6, len(classes) - 0.4)
    axes.tick_params(axis="x", length=0)
    key(axes, 3)


def _bounds(each: FlowClass) -> str:
    above, to = each["above_bytes"], each["to_bytes"]
    if to is None:
        return f"> {Size(above)}"
    return f"\N{LESS-THAN OR EQUAL TO} {Size(to)}"


def _completed(each: FlowClass) -> str:
    """How many flows the percentiles are of, and of how many that were begun."""
    begun = f"\nof {each['flows']}" if each["flows"] > each["completed"] else ""
    return f"n = {each['completed']}{begun}"


def bursts(sources: Sources) -> Figure | None:
    """How often so many packets in succession were lost, and how many packets were lost so."""
    found = sources.summary.get("loss_bursts", {}).get(sources.summary["bottleneck"] or "")
    if found is None or not found["lost"]:
        return None
    figure, (left, right) = plain_figure(2.5, 2, (1.0, 1.0))
    lengths = [length for length, _ in found["lengths"]]
    for axes, heights, label in (
        (left, [often for _, often in found["lengths"]], "bursts"),
        (right, [length * often for length, often in found["lengths"]], "packets lost"),
    ):
        axes.vlines(lengths, 0, heights, color=VERMILLION, linewidth=max(1.0, min(8.0, 160 / max(lengths))))
        axes.set_xlabel("consecutive lost packets")
        axes.set_ylabel(label)
        axes.set_ylim(0, 1.08 * max(heights))
        axes.set_xlim(0.4, max(lengths) + 0.6)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    return figure


def _plainly(number: float, _position: int) -> str:
    return f"{number:g}"
