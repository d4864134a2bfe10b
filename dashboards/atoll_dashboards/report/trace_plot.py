# SPDX-License-Identifier: Apache-2.0
# pyright: reportUnknownMemberType=false
# (matplotlib leaves the keyword arguments of its drawing methods untyped)
"""Plot a trace: rate, delay and loss over time, and blockages."""

from collections.abc import Callable
from itertools import pairwise

from matplotlib.axes import Axes

from atoll_core.experiment.experiment import LinkTrace, TraceRow
from atoll_core.units import Duration
from atoll_dashboards.report.plot_style import BLUE, FAINT, ORANGE, VERMILLION, common_style, image, time_figure

_COLUMNS: tuple[tuple[str, str, Callable[[TraceRow], float | None]], ...] = (
    ("rate (Mbit/s)", BLUE, lambda row: row.rate.bit_s / 1e6 if row.rate else None),
    ("delay, one way (ms)", ORANGE, lambda row: row.delay.ms if row.delay else None),
    ("loss (%)", VERMILLION, lambda row: None if row.loss is None else 100 * row.loss),
)


def draw_trace(trace: LinkTrace, until: Duration, form: str) -> bytes:
    """Draw a trace from its beginning to ``until``. ``form``: .png, .svg or .pdf."""
    columns = [column for column in _COLUMNS if any(column[2](row) is not None for row in trace.rows)]
    with common_style():
        figure, axes = time_figure(1.2 + 1.8 * max(1, len(columns)), rows=max(1, len(columns)))
        for panel, (label, colour, read) in zip(axes, columns, strict=False):
            _draw(panel, trace, until, colour, read)
            panel.set_ylabel(label)
            if not label.startswith("delay"):  # what matters of a delay is how it varies
                panel.set_ylim(bottom=0)
        for panel in axes:
            _shade_blocked(panel, trace, until)
            panel.set_xlim(0, until.s)
        grey = "; grey: blocked" if any(row.blocked for row in trace.rows) else ""
        axes[0].set_title(f"A link as a function of time{grey}")
        axes[-1].set_xlabel("time since the load began (s)")
    return image(figure, form)


def _draw(axes: Axes, trace: LinkTrace, until: Duration, colour: str, read: Callable[[TraceRow], float | None]) -> None:
    found = [(row.t.s, read(row)) for row in trace.rows]
    heights = [float("nan") if height is None else height for _, height in found]
    axes.step([*(t for t, _ in found), until.s], [*heights, heights[-1]], where="post", color=colour, linewidth=1.2)


def _shade_blocked(axes: Axes, trace: LinkTrace, until: Duration) -> None:
    ends = [*(row.t.s for row in trace.rows), until.s]
    for row, (begin, end) in zip(trace.rows, pairwise(ends), strict=True):
        if row.blocked:
            axes.axvspan(begin, end, color=FAINT, linewidth=1.0, zorder=0)
