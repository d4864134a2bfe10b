# SPDX-License-Identifier: Apache-2.0
# pyright: reportUnknownMemberType=false
# (matplotlib leaves the keyword arguments of its drawing methods untyped)
"""The style of all figures: palette, font, and equal axes, so that figures of a page align in time.

Colours: Okabe and Ito's palette, distinguishable with any kind of colour vision and in grey.
"""

import io
from contextlib import AbstractContextManager
from typing import Any, cast

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

BLUE = "#0072B2"
SKY = "#56B4E9"
ORANGE = "#E69F00"
VERMILLION = "#D55E00"
GREEN = "#009E73"
PURPLE = "#CC79A7"
BROWN = "#7A4B00"  # not in the palette: ORANGE, darker, for a line within its own area
INK = "#222222"
GREY = "#767676"
FAINT = "#D9D9D9"

WIDTH_IN = 9.6
_LEFT, _RIGHT = 0.062, 0.925

_STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same figure everywhere
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.labelcolor": INK,
    "axes.labelsize": 9.5,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#ECECEC",
    "grid.linewidth": 0.8,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "svg.fonttype": "path",
}


def common_style() -> AbstractContextManager[None]:
    """Apply the common style during the block."""
    return mpl.rc_context(cast("Any", _STYLE))


def time_figure(height_in: float, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure whose rows share a time axis; all such figures have their axes at the same place."""
    figure = Figure(figsize=(WIDTH_IN, height_in))
    axes: list[Axes] = list(figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0])
    figure.subplots_adjust(
        left=_LEFT, right=_RIGHT, bottom=0.52 / height_in, top=1 - 0.42 / height_in, hspace=0.3 if rows > 1 else 0
    )
    axes[-1].set_xlabel("time since the start of the measurement (s)")
    return figure, axes


def plain_figure(height_in: float, widths: tuple[float, ...]) -> tuple[Figure, list[Axes]]:
    """A figure of panels side by side. ``widths``: of the panels, in proportion."""
    figure = Figure(figsize=(WIDTH_IN, height_in))
    axes: list[Axes] = list(figure.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0])
    figure.subplots_adjust(left=_LEFT, right=_RIGHT, bottom=0.52 / height_in, top=1 - 0.42 / height_in, wspace=0.22)
    return figure, axes


def draw_bound(axes: Axes, level: float, text: str) -> None:
    """A horizontal dashed line at a configured bound, named at the right-hand margin."""
    axes.axhline(level, color=INK, linewidth=1.0, linestyle=(0, (4, 3)), zorder=3)
    axes.annotate(
        text,
        xy=(1, level),
        xycoords=axes.get_yaxis_transform(),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        ha="left",
        fontsize=8.5,
        color=INK,
        annotation_clip=False,
    )


def draw_instant(axes: Axes, t: float, until: float, text: str) -> None:
    """A vertical line at an instant with a text at its head, and a shade from there to ``until``."""
    axes.axvspan(t, until, color=PURPLE, alpha=0.16, linewidth=0, zorder=0)
    axes.axvline(t, color=PURPLE, linewidth=1.2, linestyle=(0, (1, 1.2)), zorder=4)
    axes.annotate(
        text,
        xy=(t, 1),
        xycoords=axes.get_xaxis_transform(),
        xytext=(2, -1),
        textcoords="offset points",
        va="top",
        ha="left",
        fontsize=8.5,
        fontweight="bold",
        color=PURPLE,
        zorder=5,
        bbox={"boxstyle": "square,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
    )


def draw_legend(axes: Axes, columns: int = 4) -> None:
    """The legend, above the axes at the right, where no data can be hidden by it."""
    legend = axes.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=columns, handlelength=1.6, borderaxespad=0.3
    )
    for handle in legend.legend_handles:
        if isinstance(handle, Line2D) and handle.get_linestyle() == "None":
            handle.set(markersize=max(5.0, handle.get_markersize()), alpha=1.0)  # visible as dots


def image(figure: Figure, suffix: str, *, tight: bool = False, salt: str = "atoll") -> bytes:
    """The file of a figure; equal figures give equal bytes.

    ``suffix``: .svg, .pdf or .png; ``tight``: no margins; ``salt``: of the ids in SVG, one for each image of a page.
    """
    sink = io.BytesIO()
    metadata = {".svg": {"Date": None, "Creator": None}, ".pdf": {"CreationDate": None}}.get(suffix)
    with common_style(), mpl.rc_context({"svg.hashsalt": salt}):
        margins = "tight" if tight else None
        figure.savefig(sink, format=suffix.removeprefix("."), metadata=metadata, bbox_inches=margins)
    return sink.getvalue()
