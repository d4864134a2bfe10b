# SPDX-License-Identifier: Apache-2.0
# pyright: reportUnknownMemberType=false
# (matplotlib leaves the keyword arguments of its drawing methods untyped)
"""A dashboard drawn from the answers to its queries: panels in Grafana's places, in the report's style."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from atoll_dashboards.report.plot_style import (
    BLUE,
    FAINT,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    common_style,
)

COLUMNS = 24  # of Grafana's grid
_CELL_IN = (0.55, 0.3)  # width and height of one cell
_MARGIN_IN = (0.62, 0.42, 0.15, 0.62)  # within a panel: left, bottom, right, top
_HEAD_IN = 0.55
_COLOURS = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY)
_MOST_NAMED = 12  # series; more of them are counted, not named
_MOST_ROWS = 11  # of a table

_SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    "bps": ((1e6, "Mbit/s"), (1e3, "kbit/s"), (1, "bit/s")),
    "bytes": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")),
    "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns")),
    "pps": ((1, "packets/s"),),
    "ops": ((1, "1/s"),),
    "percentunit": ((0.01, "%"),),
    "none": ((1, ""),),
}


@dataclass(frozen=True, slots=True)
class Line:
    """One series of a panel: seconds since the begin of the time range, and figures in the panel's unit.

    ``dots``: each by itself; otherwise they are joined.
    """

    name: str
    t_s: list[float]
    figures: list[float]
    dots: bool = False


Mark = tuple[float, str]
"""An annotation: its instant in seconds, and its colour."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A panel and the answers to its queries: ``lines``, or the ``rows`` of a table, the last first."""

    panel: dict[str, Any]
    lines: list[Line] = field(default_factory=list[Line])
    rows: list[tuple[datetime, str]] = field(default_factory=list[tuple[datetime, str]])


def draw(title: str, panels: Sequence[Drawn], marks: Sequence[Mark], until_s: float) -> Figure:
    """The dashboard. ``until_s``: the end of its time axis."""
    rows = max(each.panel["gridPos"]["y"] + each.panel["gridPos"]["h"] for each in panels)
    width_in, height_in = COLUMNS * _CELL_IN[0], rows * _CELL_IN[1] + _HEAD_IN
    with common_style():
        figure = Figure(figsize=(width_in, height_in), facecolor="white")
        figure.text(0.012, 1 - 0.3 / height_in, title, fontsize=14, fontweight="bold", va="center")
        for each in panels:
            _draw_panel(figure, each, marks, until_s, (width_in, height_in))
    return figure


def _draw_panel(
    figure: Figure, drawn: Drawn, marks: Sequence[Mark], until_s: float, size_in: tuple[float, float]
) -> None:
    at = drawn.panel["gridPos"]
    left = at.get("x", 0) * _CELL_IN[0]
    top = size_in[1] - _HEAD_IN - at.get("y", 0) * _CELL_IN[1]
    width, height = at["w"] * _CELL_IN[0], at["h"] * _CELL_IN[1]
    figure.text(
        (left + 0.16) / size_in[0], (top - 0.2) / size_in[1], drawn.panel["title"], fontweight="bold", va="center"
    )
    small = drawn.panel["type"] == "stat"
    margin = (0.16, 0.1, 0.16, 0.62) if small or drawn.panel["type"] == "table" else _MARGIN_IN
    axes = figure.add_axes(
        (
            (left + margin[0]) / size_in[0],
            (top - height + margin[1]) / size_in[1],
            (width - margin[0] - margin[2]) / size_in[0],
            (height - margin[1] - margin[3]) / size_in[1],
        )
    )
    match drawn.panel["type"]:
        case "stat":
            _draw_figure(axes, drawn, until_s)
        case "table":
            _draw_table(axes, drawn)
        case _:
            _draw_plot(axes, drawn, marks, until_s)


def _draw_plot(axes: Axes, drawn: Drawn, marks: Sequence[Mark], until_s: float) -> None:
    defaults = drawn.panel["fieldConfig"]["defaults"]
    factor, unit = _scale(defaults["unit"], drawn.lines)
    many = len(drawn.lines) > _MOST_NAMED
    custom = defaults.get("custom", {})
    stacked = custom.get("stacking", {}).get("mode") == "normal"
    if stacked and drawn.lines and len({tuple(line.t_s) for line in drawn.lines}) == 1:
        heights = [[figure / factor for figure in line.figures] for line in drawn.lines]
        colours = [_COLOURS[place % len(_COLOURS)] for place in range(len(heights))]
        names = [line.name for line in drawn.lines]
        axes.stackplot(drawn.lines[0].t_s, heights, labels=names, colors=colours, alpha=0.75, linewidth=0)
    else:
        for place, line in enumerate(drawn.lines):
            axes.plot(
                line.t_s,
                [figure / factor for figure in line.figures],
                color=_COLOURS[place % len(_COLOURS)],
                linestyle="none" if line.dots else "solid" if many or place < len(_COLOURS) else "dashed",
                drawstyle="steps-post" if custom.get("lineInterpolation") == "stepAfter" else "default",
                linewidth=0.9,
                alpha=0.7 if many else 1.0,
                label=line.name,
                marker="o" if line.dots or len(line.t_s) == 1 else None,
                markersize=4 if line.dots else 3,
            )
    for t_s, colour in marks:
        axes.axvline(t_s, color=colour, linewidth=0.9, linestyle=(0, (2, 2)), zorder=0)
    axes.set_xlim(0, until_s)
    if "min" in defaults:
        axes.set_ylim(bottom=defaults["min"])
    if axes.get_ylim()[1] < 1e-9 or not any(any(line.figures) for line in drawn.lines):
        axes.set_ylim(0, 1)
    axes.tick_params(labelsize=8)
    label = ", ".join(part for part in (unit, custom.get("axisLabel", "")) if part)
    axes.annotate(
        label, (0, 1), xycoords="axes fraction", xytext=(-30, 6), textcoords="offset points", fontsize=8, color=GREY
    )
    if many:
        label = f"{len(drawn.lines)} series"
        axes.annotate(label, (1, 1), xycoords="axes fraction", xytext=(0, 6), textcoords="offset points", ha="right",
                      fontsize=8, color=GREY)  # fmt: skip
    elif drawn.lines:
        columns = (3 if max(len(line.name) for line in drawn.lines) < 20 else 2) * drawn.panel["gridPos"]["w"] // 12
        axes.legend(loc="lower right", bbox_to_anchor=(1.01, 0.98), ncols=columns, fontsize=7.5, handlelength=1.2,
                    columnspacing=1.0, labelspacing=0.25, borderaxespad=0)  # fmt: skip


def _draw_figure(axes: Axes, drawn: Drawn, until_s: float) -> None:
    """One large figure, the last of a series, upon the series."""
    axes.axis("off")
    if not drawn.lines:
        axes.text(0.5, 0.5, "no data", ha="center", va="center", color=GREY)
        return
    line = drawn.lines[0]
    factor, unit = _scale(drawn.panel["fieldConfig"]["defaults"]["unit"], drawn.lines)
    axes.fill_between(line.t_s, line.figures, color=SKY, alpha=0.35, linewidth=0)
    axes.set_xlim(0, until_s)
    axes.set_ylim(0, max(line.figures) * 1.05 or 1)
    axes.text(0.5, 0.55, f"{line.figures[-1] / factor:.3g} {unit}", transform=axes.transAxes, ha="center", va="center",
              fontsize=15, fontweight="bold", color=INK)  # fmt: skip


def _draw_table(axes: Axes, drawn: Drawn) -> None:
    axes.axis("off")
    for place, (t, text) in enumerate(drawn.rows[:_MOST_ROWS]):
        at = 1 - (place + 0.5) / _MOST_ROWS
        axes.axhline(at - 0.5 / _MOST_ROWS, color=FAINT, linewidth=0.6)
        axes.text(0, at, f"{t:%H:%M:%S.%f}"[:-3], fontsize=8.5, color=GREY, va="center", transform=axes.transAxes)
        axes.text(0.09, at, text[:150], fontsize=8.5, va="center", transform=axes.transAxes)
    axes.set_ylim(0, 1)


def _scale(unit: str, lines: Sequence[Line]) -> tuple[float, str]:
    """The divisor of the figures, and their unit after division."""
    most = max((abs(figure) for line in lines for figure in line.figures), default=0.0)
    scales = _SCALES[unit]
    return next(((factor, name) for factor, name in scales if most >= factor), scales[-1] if most else scales[0])


def moment(t_ms: float) -> datetime:
    """An instant as Grafana gives it."""
    return datetime.fromtimestamp(t_ms / 1e3, UTC)
