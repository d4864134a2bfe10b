# SPDX-License-Identifier: Apache-2.0
# pyright: reportUnknownMemberType=false
# (matplotlib leaves the keyword arguments of its drawing methods untyped)
"""Plots of the inputs of experiments: link traces, flow sizes, and RTTs with the servers that represent them."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from atoll_core.experiment.experiment import LinkTrace, TraceRow
from atoll_core.experiment.flow_sizes import FlowSizes, Interpolation, published
from atoll_core.units import Duration
from atoll_dashboards.report.plot_style import (
    BLUE,
    FAINT,
    GREY,
    ORANGE,
    PURPLE,
    VERMILLION,
    common_style,
    draw_legend,
    image,
    plain_figure,
    time_figure,
)

_CURVE_POINTS = 400
_LEAST_SHARE = 1e-6  # of the flows, in the tail's panel

_COLUMNS: tuple[tuple[str, str, Callable[[TraceRow], float | None]], ...] = (
    ("rate (Mbit/s)", BLUE, lambda row: row.rate.bit_s / 1e6 if row.rate else None),
    ("delay, one way (ms)", ORANGE, lambda row: row.delay.ms if row.delay else None),
    ("loss (%)", VERMILLION, lambda row: None if row.loss is None else 100 * row.loss),
)


def draw_trace(trace: LinkTrace, until: Duration, file_format: str) -> bytes:
    """Draw a trace from its beginning to ``until``. ``file_format``: .png, .svg or .pdf."""
    columns = [column for column in _COLUMNS if any(column[2](row) is not None for row in trace.rows)]
    t_s = [*(row.t.s for row in trace.rows), until.s]
    with common_style():
        figure, panels = time_figure(1.2 + 1.8 * max(1, len(columns)), rows=max(1, len(columns)))
        for axes, (label, colour, read) in zip(panels, columns, strict=False):
            values = [np.nan if (value := read(row)) is None else value for row in trace.rows]
            axes.step(t_s, [*values, values[-1]], where="post", color=colour, linewidth=1.2)
            axes.set_ylabel(label)
            if not label.startswith("delay"):  # of a delay its variation matters
                axes.set_ylim(bottom=0)
        for axes in panels:
            for row, (begin, end) in zip(trace.rows, pairwise(t_s), strict=True):
                if row.blocked:
                    axes.axvspan(begin, end, color=FAINT, linewidth=1.0, zorder=0)
            axes.set_xlim(0, until.s)
        grey = "; grey: blocked" if any(row.blocked for row in trace.rows) else ""
        panels[0].set_title(f"A link as a function of time{grey}")
        panels[-1].set_xlabel("time since the load began (s)")
    return image(figure, file_format)


def draw_flow_sizes(sizes: FlowSizes, file_format: str) -> bytes:
    """Draw a distribution and the published one. ``file_format``: .png, .svg or .pdf."""
    reference = published()
    bounds = [end for shape in (sizes, reference) for end in (shape.min_bytes, shape.max_bytes)]
    xs = np.unique(np.geomspace(min(bounds), max(bounds), _CURVE_POINTS).round())
    if sizes.kind is Interpolation.STEPS:
        xs = np.unique([*xs, *(size for _, size in sizes.knots)])
    with common_style():
        figure, (shares, tail) = plain_figure(3.6, (1.0, 1.0))
        for shape, style, suffix in ((reference, ":", ", published"), (sizes, "-", "")):
            width = 1.0 if shape is reference else 1.6
            flows = np.array([shape.share_up_to(size) for size in xs])
            octets = np.array([shape.bytes_share_up_to(size) for size in xs])
            for share, colour, label in ((flows, BLUE, f"of flows{suffix}"), (octets, PURPLE, f"of bytes{suffix}")):
                shares.step(xs, 100 * share, where="post", color=colour, linestyle=style, linewidth=width, label=label)
            larger = np.where(1 - flows > _LEAST_SHARE, 1 - flows, np.nan)
            label = sizes.name if shape is sizes else reference.name
            if shape is sizes and sizes.name == reference.name and sizes != reference:
                label += ", pro-rated"
            colour = BLUE if shape is sizes else GREY
            tail.step(xs, larger, where="post", color=colour, linestyle=style, linewidth=width, label=label)
        shares.set_ylim(0, 102)
        shares.set_ylabel("share up to this size (%)")
        tail.set_yscale("log")
        tail.set_ylim(_LEAST_SHARE, 1.5)
        tail.set_ylabel("share of flows above this size")
        for axes in (shares, tail):
            axes.set_xscale("log")
            axes.set_xlabel("flow size (bytes)")
            axes.set_xlim(min(bounds), max(bounds))
            draw_legend(axes, 2)
        figure.subplots_adjust(wspace=0.26)
    return image(figure, file_format, tight=True)


def draw_rtts(rtts_ms: Sequence[float], servers: Sequence[tuple[str, float]], file_format: str) -> bytes:
    """Draw RTTs in ascending order, cut into the servers' partitions, with each server's RTT.

    ``file_format``: .png, .svg or .pdf.
    """
    ranks = np.arange(len(rtts_ms) + 1) / len(rtts_ms) * 100
    edges = [ranks[index * len(rtts_ms) // len(servers)] for index in range(len(servers) + 1)]
    centres = [float(begin + end) / 2 for begin, end in pairwise(edges)]
    with common_style():
        figure, (axes,) = plain_figure(3.6, (1.0,))
        for edge in edges[1:-1]:
            axes.axvline(edge, color=FAINT, linewidth=0.8, zorder=0)
        label = f"RTT of a target (largest: {max(rtts_ms):g} ms)"
        axes.step(ranks, [rtts_ms[0], *rtts_ms], where="pre", color=BLUE, linewidth=1.4, label=label)
        rtts = [rtt for _, rtt in servers]
        axes.plot(centres, rtts, "o", color=ORANGE, markersize=5.5, label="server: median of its group")
        if len(servers) <= 30:
            style: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 8.5, "color": GREY}
            for (name, rtt), centre in zip(servers, centres, strict=True):
                axes.annotate(name, (centre, rtt), xytext=(0, 7), **style)
        axes.set_xlim(0, 100)
        p99_ms = float(np.percentile(rtts_ms, 99))  # the last per cent would make all others look alike
        axes.set_ylim(0, 1.15 * max(p99_ms, *rtts))
        axes.set_xlabel("targets in the order of their RTT (%)")
        axes.set_ylabel("RTT (ms)")
        draw_legend(axes, 2)
    return image(figure, file_format, tight=True)
