# SPDX-License-Identifier: Apache-2.0
# pyright: reportUnknownMemberType=false
# (matplotlib leaves the keyword arguments of its drawing methods untyped)
"""Plots of imported data: flow sizes and bytes by size; RTTs and the servers that represent them."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes

from atoll_core.experiment.flow_sizes import FlowSizes, Interpolation, published
from atoll_dashboards.report.plot_style import BLUE, FAINT, GREY, ORANGE, PURPLE, common_style, image, key, plain_figure

_POINTS = 400
_LEAST = 1e-6  # of the flows, in the tail's panel


def draw_flow_sizes(sizes: FlowSizes, form: str) -> bytes:
    """Draw a distribution and the published one. ``form``: .png, .svg or .pdf."""
    reference = published()
    ends = [each for shape in (sizes, reference) for each in (shape.min_bytes, shape.max_bytes)]
    at = np.unique(np.geomspace(min(ends), max(ends), _POINTS).round())
    if sizes.kind is Interpolation.STEPS:
        at = np.unique([*at, *(size for _, size in sizes.knots)])
    with common_style():
        figure, (shares, tail) = plain_figure(3.6, 2, (1.0, 1.0))
        for shape, style, suffix in ((reference, ":", ", published"), (sizes, "-", "")):
            width = 1.0 if shape is reference else 1.6
            flows = np.array([shape.share_up_to(size) for size in at])
            octets = np.array([shape.bytes_share_up_to(size) for size in at])
            for share, colour, what in ((flows, BLUE, "of flows"), (octets, PURPLE, "of bytes")):
                label = what + suffix
                shares.step(at, 100 * share, where="post", color=colour, linestyle=style, linewidth=width, label=label)
            larger = np.where(1 - flows > _LEAST, 1 - flows, np.nan)
            label = sizes.name if shape is sizes else reference.name
            if shape is sizes and sizes.name == reference.name and sizes != reference:
                label += ", pro-rated"
            colour = BLUE if shape is sizes else GREY
            tail.step(at, larger, where="post", color=colour, linestyle=style, linewidth=width, label=label)
        shares.set_ylim(0, 102)
        shares.set_ylabel("share up to this size (%)")
        tail.set_yscale("log")
        tail.set_ylim(_LEAST, 1.5)
        tail.set_ylabel("share of flows above this size")
        for axes in (shares, tail):
            axes.set_xscale("log")
            axes.set_xlabel("flow size (bytes)")
            axes.set_xlim(min(ends), max(ends))
            key(axes, 2)
        figure.subplots_adjust(wspace=0.26)
    return image(figure, form, tight=True)


def draw_rtts(ms: Sequence[float], servers: Sequence[tuple[str, float]], form: str) -> bytes:
    """Draw RTTs in ascending order, cut into the servers' partitions, with each server's RTT.

    ``form``: .png, .svg or .pdf.
    """
    ranks = np.arange(len(ms) + 1) / len(ms) * 100
    cuts = [ranks[index * len(ms) // len(servers)] for index in range(len(servers) + 1)]
    centres = [float(begin + end) / 2 for begin, end in pairwise(cuts)]
    with common_style():
        figure, (axes,) = plain_figure(3.6, 1, (1.0,))
        for cut in cuts[1:-1]:
            axes.axvline(cut, color=FAINT, linewidth=0.8, zorder=0)
        label = f"RTT of a target (largest: {max(ms):g} ms)"
        axes.step(ranks, [ms[0], *ms], where="pre", color=BLUE, linewidth=1.4, label=label)
        axes.plot(
            centres,
            [rtt for _, rtt in servers],
            "o",
            color=ORANGE,
            markersize=5.5,
            label="server: median of its group",
        )
        _name(axes, servers, centres)
        axes.set_xlim(0, 100)
        most = float(np.percentile(ms, 99))  # the last per cent would make all others look alike
        axes.set_ylim(0, 1.15 * max(most, *(rtt for _, rtt in servers)))
        axes.set_xlabel("targets in the order of their RTT (%)")
        axes.set_ylabel("RTT (ms)")
        key(axes, 2)
    return image(figure, form, tight=True)


def _name(axes: Axes, servers: Sequence[tuple[str, float]], centres: Sequence[float]) -> None:
    if len(servers) > 30:
        return
    for (name, rtt), centre in zip(servers, centres, strict=True):
        axes.annotate(
            name, (centre, rtt), xytext=(0, 7), textcoords="offset points", ha="center", fontsize=8.5, color=GREY
        )
