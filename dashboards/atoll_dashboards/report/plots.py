# SPDX-License-Identifier: Apache-2.0
# pyright: reportUnknownMemberType=false
# (matplotlib leaves the keyword arguments of its drawing methods untyped)
"""The plots of a run, each a function of its data; None if the run has no data for it.

A function's docstring is the caption of its plot. The page has the plots in the order of this module.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate, cycle
from typing import Any, Literal

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from atoll_analysis.figures.flows import FlowClass
from atoll_analysis.figures.losses import CAUSES
from atoll_analysis.summary import Summary, Volume
from atoll_analysis.tables.directions import TO_ISLAND, TO_WORLD, Direction, direction_of
from atoll_core.experiment.experiment import DIRECTIONS, Link
from atoll_core.experiment.link_over_time import LinkOverTime, LinkStep
from atoll_core.experiment.traffic import UdpTraffic
from atoll_core.units import Size
from atoll_dashboards.report.downsampling import extremes, scatter_points, share_points
from atoll_dashboards.report.plot_style import (
    BLUE,
    BROWN,
    FAINT,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    common_style,
    draw_bound,
    draw_instant,
    draw_legend,
    plain_figure,
    time_figure,
)
from atoll_dashboards.report.report_data import WINDOW_S, Sources, completed_flows

_Draw = Callable[[Sources], Figure | None]


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure of the report: its drawing function and its caption."""

    name: str
    title: str
    caption: str
    draw: _Draw
    marks_changes: bool  # scheduled changes are drawn into it

    def figure(self, sources: Sources) -> Figure | None:
        """The figure, in the common style; None where the run has nothing to show."""
        with common_style():
            figure = self.draw(sources)
            if figure is not None and self.marks_changes:
                _mark_changes(figure, sources)
            return figure


PLOTS: list[Plot] = []


def _plot(title: str, *, marks_changes: bool = False) -> Callable[[_Draw], _Draw]:
    """Decorate a drawing function: its plot is one of :data:`PLOTS`."""

    def add(draw: _Draw) -> _Draw:
        caption = " ".join((inspect.getdoc(draw) or "").split())
        PLOTS.append(Plot(draw.__name__.replace("_", "-"), title, caption, draw, marks_changes))
        return draw

    return add


@_plot("Throughput and goodput", marks_changes=True)
def rates(sources: Sources) -> Figure | None:
    """IP bytes (throughput) and new TCP payload (goodput) reaching the island, per 100 ms.

    Dashed: the rate of the link at each instant.
    """
    return _rates(sources, TO_ISLAND)


@_plot("Throughput and goodput to the world", marks_changes=True)
def rates_to_world(sources: Sources) -> Figure | None:
    """IP bytes (throughput) and new TCP payload (goodput) reaching the world, per 100 ms.

    Dashed: the rate of the link at each instant.
    """
    return _rates(sources, TO_WORLD)


def _rates(sources: Sources, direction: Direction) -> Figure | None:
    if sources.figures(direction).get("arrival") is None:
        return None
    frame = extremes(sources.rates(direction), "throughput", "goodput")
    t_s = frame["t_s"].to_numpy()
    figure, (axes,) = time_figure(3.1)
    _area(axes, t_s, frame["throughput"], SKY, 0.45, "throughput")
    axes.step(t_s, frame["goodput"].to_numpy(), where="post", color=BLUE, linewidth=0.75, label="goodput")
    axes.set_ylabel("Mbit/s")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))  # few digits: more of them leave no room for the label
    top = float(frame["throughput"].to_numpy().max(initial=0.0))
    link = sources.bottleneck(direction)
    if link is not None and not sources.other_links:
        top = max(top, _link_rate(axes, sources, link, direction))
    _time_axis(axes, sources, top)
    draw_legend(axes)
    return figure


@_plot("Chains", marks_changes=True)
def chains(sources: Sources) -> Figure | None:
    """Goodput of each chain, stacked. A packet counts for the version of the chain that was in use when it arrived."""
    goodputs = sources.chain_rates()
    if not goodputs:
        return None
    tops = pl.DataFrame(list(accumulate(goodputs.values())), schema=list(goodputs))
    tops = extremes(tops.with_row_index("100 ms"), *tops.columns)  # no chain's name has a space
    figure, (axes,) = time_figure(3.1)
    t_s = tops["100 ms"].to_numpy() * WINDOW_S
    height = np.zeros(len(t_s))
    for name, colour in zip(goodputs, cycle(_CHAINS)):
        top = tops[name].to_numpy()
        axes.fill_between(t_s, height, top, step="post", color=colour, alpha=0.75, linewidth=0, label=name)
        height = top
    axes.set_ylabel("goodput (Mbit/s)")
    _time_axis(axes, sources, float(height.max(initial=0.0)))
    draw_legend(axes)
    return figure


@_plot("Queue of the satellite link", marks_changes=True)
def queue(sources: Sources) -> Figure | None:
    """Above: RTT of the ping series minus the base RTT that was measured before the load.

    Dashed: 8Q/R, the delay of a full queue of Q bytes to the island at rate R (largest queue, lowest rate); if pings
    also waited on their way back, also the delay of full queues in both directions. Below: bytes in the queue to the
    island. “Did not drain” is the standing queue: the bytes that remained for at least one base RTT and one second.
    """
    link = sources.bottleneck()
    if link is None:
        return None
    pings = extremes(sources.sojourns(), "sojourn_ms")
    counters = _queue_rows(sources, link, TO_ISLAND)
    if pings.is_empty() and counters.is_empty():
        return None
    figure, (above, below) = time_figure(4.6, rows=2)
    sojourn = pings["sojourn_ms"].to_numpy()
    label = "ping RTT \N{MINUS SIGN} base RTT"
    above.plot(pings["t_s"].to_numpy(), sojourn, ".-", color=VERMILLION, linewidth=0.8, markersize=2.5, label=label)
    above.set_ylabel("queue sojourn (ms)")
    top = float(sojourn.max(initial=0.0))
    for limit_ms, name in _sojourn_limits(sources.summary, top):
        draw_bound(above, limit_ms, f"{name}\n{limit_ms:g} ms")
        top = max(top, limit_ms)
    _time_axis(above, sources, top)
    draw_legend(above)
    _draw_queue(below, sources, link, counters, TO_ISLAND)
    return figure


@_plot("Queue to the world", marks_changes=True)
def queue_to_world(sources: Sources) -> Figure | None:
    """Bytes in the queue of the slowest link to the world. “Did not drain” is its standing queue."""
    link = sources.bottleneck(TO_WORLD)
    if link is None or (counters := _queue_rows(sources, link, TO_WORLD)).is_empty():
        return None
    figure, (axes,) = time_figure(2.6)
    _draw_queue(axes, sources, link, counters, TO_WORLD)
    return figure


def _queue_rows(sources: Sources, link: Link, direction: Direction) -> pl.DataFrame:
    return _link_rows(sources, link, "queue_max_bytes", "queue_bytes", direction=direction)


def _draw_queue(axes: Axes, sources: Sources, link: Link, counters: pl.DataFrame, direction: Direction) -> None:
    t_s = counters["t_s"].to_numpy() - WINDOW_S
    _area(axes, t_s, counters["queue_max_bytes"] / 1e3, ORANGE, 0.5, "largest in each 100 ms")
    queue_kb = counters["queue_bytes"].to_numpy() / 1e3
    axes.step(t_s, queue_kb, where="post", color=BROWN, linewidth=0.7, label="at their end")
    floor = extremes(sources.queue_floor(link.box, direction), "floor_bytes")
    if not floor.is_empty() and floor["floor_bytes"].sum():
        t_s, floor_kb = floor["t_s"].to_numpy(), floor["floor_bytes"].to_numpy() / 1e3
        axes.step(t_s, floor_kb, where="post", color=INK, linewidth=1.2, label="did not drain")
    axes.set_ylabel(f"queue of {link.box} (kB)" if sources.other_links else "queue (kB)")
    _time_axis(axes, sources, _queue_limit(axes, sources, link, direction))
    draw_legend(axes)


def _link_rows(sources: Sources, link: Link, *columns: str, direction: Direction = TO_ISLAND) -> pl.DataFrame:
    """These columns of a link's counters in a direction."""
    counters = sources.link_counters(link.box, direction).select("t_s", *columns)
    return extremes(counters.collect(engine="streaming"), *columns)


def _area(axes: Axes, t_s: NDArray[np.float64], heights: pl.Series, colour: str, alpha: float, label: str) -> None:
    """Fill the area below steps."""
    axes.fill_between(t_s, heights.to_numpy(), step="post", color=colour, alpha=alpha, linewidth=0, label=label)


def _sojourn_limits(summary: Summary, largest_ms: float) -> list[tuple[float, str]]:
    """The RTT that full queues to the island add; if a ping waited longer, also that of full queues both ways."""
    both_ms = summary["sojourn_bound_ms"]
    to_island_ms = summary.get("sojourn_bound_to_island_ms", both_ms)  # older versions have these queues only
    limits = [(to_island_ms, "8Q/R")]
    if to_island_ms is not None and largest_ms > to_island_ms and both_ms != to_island_ms:
        limits.append((both_ms, "both ways"))
    return [(limit_ms, name) for limit_ms, name in limits if limit_ms is not None]


@_plot("Loss", marks_changes=True)
def loss(sources: Sources) -> Figure | None:
    """Packets that the slowest link lost in each 100 ms, stacked by cause.

    A second row has the losses to the world, if there are any. Queue full: the packet did not fit into the queue.
    Random loss and loss by trace: lost at the receiver, after the packet had used the link, unless the experiment says
    “where: before” (the queue).
    """
    link = sources.bottleneck()
    if link is None:
        return None
    drops = {direction: sources.drops(link, direction) for direction in DIRECTIONS}
    if drops["to_island"].is_empty():
        return None
    directions = [direction for direction, lost in drops.items() if lost.width > 1 or direction == "to_island"]
    figure, rows = time_figure(0.6 + 1.7 * len(directions), rows=len(directions))
    for axes, direction in zip(rows, directions, strict=True):
        _stack_losses(axes, sources, drops[direction])
        axes.set_ylabel(f"lost {direction.replace('_', ' ')}")
    return figure


def _stack_losses(axes: Axes, sources: Sources, drops: pl.DataFrame) -> None:
    causes = drops.columns[1:]
    total = "of all causes"
    drops = extremes(drops.with_columns(pl.sum_horizontal(causes).alias(total)), total, *causes) if causes else drops
    t_s, height = drops["t_s"].to_numpy() - WINDOW_S / 2, np.zeros(len(drops))
    # Lines: bars as narrow as their windows are less than a pixel in a long run, and take as long as the rest.
    for cause in causes:
        lost = drops[cause].to_numpy()
        mask = lost > 0
        label, colour = CAUSES.get(cause, "cause unknown"), _CAUSES.get(cause, GREY)
        axes.vlines(t_s[mask], height[mask], (height + lost)[mask], color=colour, linewidth=1.0, label=label)
        height += lost
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    _time_axis(axes, sources, max(1.0, float(height.max(initial=0))))
    if causes:
        draw_legend(axes)


@_plot("Loss bursts")
def bursts(sources: Sources) -> Figure | None:
    """Consecutive packets to the island that the slowest link lost, from the captures before and behind it.

    Number of bursts of each length, and number of packets in them. A full queue still accepts small packets; such a
    packet ends a burst here.
    """
    losses = sources.summary.get("loss_bursts", {}).get(sources.summary["bottleneck"] or "")
    if losses is None or not losses["lost"]:
        return None
    figure, (left, right) = plain_figure(2.5, (1.0, 1.0))
    lengths = [length for length, _ in losses["lengths"]]
    for axes, heights, label in (
        (left, [count for _, count in losses["lengths"]], "bursts"),
        (right, [length * count for length, count in losses["lengths"]], "packets lost"),
    ):
        axes.vlines(lengths, 0, heights, color=VERMILLION, linewidth=max(1.0, min(8.0, 160 / max(lengths))))
        axes.set_xlabel("consecutive lost packets")
        axes.set_ylabel(label)
        axes.set_ylim(0, 1.08 * max(heights))
        axes.set_xlim(0.4, max(lengths) + 0.6)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    return figure


@_plot("Other links", marks_changes=True)
def other_links(sources: Sources) -> Figure | None:
    """Bytes waiting in the queues of the links other than the slowest one, and when these dropped packets."""
    columns = ("queue_max_bytes", "dropped_packets")
    links = [
        (link, counters)
        for link in sources.other_links
        if not (counters := _link_rows(sources, link, *columns)).is_empty()
    ]
    if not links:
        return None
    figure, rows = time_figure(0.9 + 1.7 * len(links), rows=len(links))
    for axes, (link, counters) in zip(rows, links, strict=True):
        t_s = counters["t_s"].to_numpy() - WINDOW_S
        _area(axes, t_s, counters["queue_max_bytes"] / 1e3, ORANGE, 0.5, "largest queue in 100 ms")
        dropped = counters["dropped_packets"].fill_null(0).to_numpy() > 0
        link_over_time, begin_ns = sources.link_over_time(link), sources.measured_ns[0]
        capacities_kb = [link_over_time.at(begin_ns + round(1e9 * t)).queue.bytes / 1e3 for t in t_s[dropped]]
        axes.plot(t_s[dropped], capacities_kb, "|", color=VERMILLION, markersize=7, label="drops")
        axes.set_ylabel(f"{link.box} (kB)")
        _time_axis(axes, sources, _queue_limit(axes, sources, link))
    draw_legend(rows[0])
    return figure


@_plot("UDP", marks_changes=True)
def udp(sources: Sources) -> Figure | None:
    """Counts of the receiver.

    IP bytes; packets that were missing or out of order, by sequence numbers (in 100 ms); interarrival jitter (RFC
    3550).
    """
    traffic = sources.experiment.udp
    frame = sources.udp()
    if traffic is None or frame.is_empty():
        return None
    has_losses = frame["lost_packets"].null_count() == 0
    frame = extremes(frame, "mbit_s", "lost_packets", "reordered_packets", "jitter_ms")
    figure, rows = time_figure(5.4 if has_losses else 2.6, rows=3 if has_losses else 1)
    t_s = frame["t_s"].to_numpy()
    _area(rows[0], t_s, frame["mbit_s"], SKY, 0.6, "received")
    rows[0].set_ylabel("Mbit/s")
    _time_axis(rows[0], sources, max(_udp_rate(rows[0], sources, traffic), float(frame["mbit_s"].to_numpy().max())))
    draw_legend(rows[0])
    if has_losses:
        for column, colour, label in (("lost_packets", VERMILLION, "lost"), ("reordered_packets", INK, "out of order")):
            packets = frame[column].to_numpy()
            mask = packets > 0
            rows[1].vlines(t_s[mask] + WINDOW_S / 2, 0, packets[mask], color=colour, linewidth=1.0, label=label)
        rows[1].set_ylabel("packets")
        rows[1].yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
        most = max(float(frame[column].to_numpy().max()) for column in ("lost_packets", "reordered_packets"))
        _time_axis(rows[1], sources, max(1.0, most))
        draw_legend(rows[1])
        jitter_ms = frame["jitter_ms"].fill_null(0).to_numpy()
        rows[2].plot(t_s + WINDOW_S, jitter_ms, color=BLUE, linewidth=0.9)
        rows[2].set_ylabel("jitter (ms)")
        _time_axis(rows[2], sources, float(jitter_ms.max()))
    return figure


@_plot("Concurrent flows", marks_changes=True)
def concurrent(sources: Sources) -> Figure | None:
    """The channels' flows (each connection is one flow).

    Open: from the first packet until all payload and the server's FIN have arrived. Active: with payload in that 100
    ms. Below: new payload of the connection that received most.
    """
    if sources.summary["arrival"] is None:
        return None
    columns = ("open", "receiving")
    frame = extremes(sources.in_windows(sources.table("concurrent"), *columns), *columns)
    t_s = frame["t_s"].to_numpy()
    largest = sources.largest_flow()
    figure, (axes, *below) = time_figure(4.2, rows=2) if largest is not None else time_figure(2.6)
    axes.step(t_s, frame["open"].to_numpy(), where="post", color=GREY, linewidth=1.1, label="open")
    _area(axes, t_s, frame["receiving"], GREEN, 0.55, "receiving payload")
    axes.set_ylabel("connections")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    _time_axis(axes, sources, max(1.0, float(frame["open"].to_numpy().max(initial=0))))
    draw_legend(axes)
    if largest is not None:
        rates_of_flow = extremes(largest, "goodput")
        _area(
            below[0],
            rates_of_flow["t_s"].to_numpy(),
            rates_of_flow["goodput"],
            BLUE,
            0.6,
            "goodput of the largest flow",
        )
        below[0].set_ylabel("Mbit/s")
        _time_axis(below[0], sources, float(rates_of_flow["goodput"].to_numpy().max()))
        draw_legend(below[0])
    return figure


@_plot("Flows")
def flows(sources: Sources) -> Figure | None:
    """Left: time from connecting to the last byte of every completed flow.

    Lines: a flow alone on the link without slow start, at the highest and at the lowest rate if it changes. Right:
    distribution of flows and of bytes over flow sizes.
    """
    frame = completed_flows(sources.folder)
    if frame.is_empty():
        return None
    size, seconds = frame["size_bytes"].to_numpy(), frame["seconds"].to_numpy()
    indices = scatter_points(size, seconds)
    figure, (axes, shares) = plain_figure(3.4, (1.6, 1.0))
    dots: dict[str, Any] = {"alpha": 0.35, "markersize": 2.65, "markeredgewidth": 0, "rasterized": True}
    axes.plot(size[indices], seconds[indices], "o", color=BLUE, label="completed flow", **dots)
    link = sources.bottleneck()
    if link is not None and not sources.other_links and not sources.experiment.has_uploads:
        sizes = np.geomspace(float(size.min()), float(size.max()), 60)
        # One round trip to connect, one to ask and be answered, then nothing but serialisation, by link or server.
        write_rate = sources.experiment.traffic.write_rate
        rtt_s = (link.to_island.delay.ns + link.to_world.delay.ns) / 1e9
        bounds = sources.link_over_time(link).rate_range(*sources.measured_ns)
        rates = sorted({min(rate, write_rate or rate) for rate in bounds}, reverse=True)
        for rate, dashes in zip(rates, ((4, 3), (1, 2)), strict=False):
            alone_s = 2 * rtt_s + 8 * sizes / rate.bit_s
            label = "alone on the link, no slow start" if len(rates) == 1 else f"alone at {rate}"
            axes.plot(sizes, alone_s, color=INK, linewidth=1.1, linestyle=(0, dashes), label=label)
    axes.set_xscale("log")
    _log_axis(axes)
    axes.set_xlabel("flow size (bytes)")
    axes.set_ylabel("connect to last byte (s)")
    draw_legend(axes, 3)
    ascending = np.sort(size)
    points = share_points(ascending)
    weights = ((np.ones(len(ascending)), BLUE, "of flows"), (ascending.astype(float), PURPLE, "of bytes"))
    for weight, colour, label in weights:
        share = (100 * np.cumsum(weight) / weight.sum())[points]
        shares.step(ascending[points], share, where="post", color=colour, linewidth=1.4, label=label)
    shares.set_xscale("log")
    shares.set_ylim(0, 102)
    shares.set_xlabel("flow size (bytes)")
    shares.set_ylabel("share up to this size (%)")
    draw_legend(shares, 2)
    return figure


@_plot("Flows by size")
def flow_classes(sources: Sources) -> Figure | None:
    """Completion times and rates of completed flows by size of their payload, each class up to the bound below it.

    n: completed flows, of those begun. The end of a run cuts slow flows more often than fast ones, so a class with many
    cut flows is slower than its figures.
    """
    classes = [flow_class for flow_class in sources.summary.get("flow_classes") or () if flow_class["completed"]]
    if not classes:
        return None
    figure, (left, right) = plain_figure(3.1, (1.0, 1.0))
    figure.subplots_adjust(bottom=0.66 / 3.1)  # three lines of text below the axis
    _percentile_bars(left, classes, "completion_s", BLUE)
    left.set_ylabel("connect to last byte (s)")
    _percentile_bars(right, classes, "rate_mbit_s", GREEN)
    right.set_ylabel("size / time (Mbit/s)")
    return figure


def _percentile_bars(
    axes: Axes, classes: list[FlowClass], name: Literal["completion_s", "rate_mbit_s"], colour: str
) -> None:
    measured = [(x, percentiles) for x, flow_class in enumerate(classes) if (percentiles := flow_class[name])]
    positions = [x for x, _ in measured]
    p50, p90, p99 = ([percentiles[p] for _, percentiles in measured] for p in ("p50", "p90", "p99"))
    axes.vlines(positions, p50, p99, color=colour, linewidth=1.4, alpha=0.6, label="p50 to p99")
    axes.vlines(positions, p50, p90, color=colour, linewidth=7, alpha=0.45, label="p50 to p90")
    axes.plot(positions, p50, "o", color=colour, markersize=5.5, label="p50")
    _log_axis(axes)
    axes.set_xticks(range(len(classes)), [_class_label(flow_class) for flow_class in classes])
    axes.set_xlim(-0.6, len(classes) - 0.4)
    axes.tick_params(axis="x", length=0)
    draw_legend(axes, 3)


def _class_label(flow_class: FlowClass) -> str:
    """The sizes of a class, the number of flows that its percentiles are of, and of all that began."""
    above, to_bytes, completed = Size(flow_class["above_bytes"]), flow_class["to_bytes"], flow_class["completed"]
    sizes = f"> {above}" if to_bytes is None else f"\N{LESS-THAN OR EQUAL TO} {Size(to_bytes)}"
    begun_text = f"\nof {flow_class['flows']}" if flow_class["flows"] > completed else ""
    return f"{sizes}\nn = {completed}{begun_text}"


@_plot("Terrestrial latency")
def terrestrial(sources: Sources) -> Figure | None:
    """RTT of each server's path minus the RTT of the links and of the lab itself, measured before the load.

    Tolerance: 0.5 ms + 2 %.
    """
    rtts = sources.summary["terrestrial_rtt_ms"] or {}  # null of an imported run
    if not rtts:
        return None
    names = list(rtts)
    columns = ("configured", "measured", "tolerance")
    configured, measured, tolerance = (np.array([rtt[column] for rtt in rtts.values()]) for column in columns)
    rows = np.arange(len(names))
    figure, (left, right) = plain_figure(1.2 + 0.3 * len(names), (1.15, 1.0))
    left.barh(rows, configured, height=0.56, color=FAINT, label="configured")
    left.plot(measured, rows, "o", color=BLUE, markersize=5.5, label="measured")
    left.set_xlabel("terrestrial RTT (ms)")
    left.set_xlim(0, max(1.0, 1.12 * float(max(configured.max(), measured.max()))))
    right.barh(rows, 2 * tolerance, left=-tolerance, height=0.56, color=FAINT, label="tolerance")
    right.plot(measured - configured, rows, "o", color=BLUE, markersize=5.5, label="measured \N{MINUS SIGN} configured")
    right.axvline(0, color=GREY, linewidth=0.8)
    limit = 1.12 * float(max(tolerance.max(), np.abs(measured - configured).max()))
    right.set_xlim(-limit, limit)
    right.set_xlabel("difference (ms)")
    for axes in (left, right):
        axes.set_yticks(rows, names)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        draw_legend(axes, 2)
    return figure


@_plot("Shares")
def volumes(sources: Sources) -> Figure | None:
    """Each host's share of the goodput; dashed: equal shares.

    In short runs hosts differ, because flow sizes are heavy-tailed. Lost TCP payload: missing in the capture `island`,
    segments sent again included. UDP that clients receive in turn: shares of the IP bytes received, and packets lost by
    sequence numbers, which do not show losses at the end of a flow.
    """
    udp_clients = (sources.summary.get("udp") or {}).get("clients", {})
    return _volumes(sources.summary["servers"], sources.summary["clients"], udp_clients)


@_plot("Shares of the direction to the world")
def volumes_to_world(sources: Sources) -> Figure | None:
    """Each host's share of the goodput to the world; dashed: equal shares.

    Lost TCP payload: missing in the capture `world`, segments sent again included.
    """
    figures = sources.figures(TO_WORLD)
    return _volumes(figures["servers"], figures["clients"], {}) if figures else None


def _volumes(
    servers: dict[str, Volume], clients: dict[str, Volume], udp_clients: Mapping[str, Mapping[str, Any]]
) -> Figure | None:
    received = ((host, udp_clients[host]["share"]) for host in clients if host in udp_clients)
    udp_shares = {host: share for host, share in received if share is not None}
    if not (any(volume["goodput_bytes"] for volume in servers.values()) or any(udp_shares.values())):
        return None
    losses = {host: volume["loss_fraction"] for host, volume in clients.items() if "loss_fraction" in volume}
    figure, panels = plain_figure(2.5, (1.0,) * (2 + bool(losses) + 2 * bool(udp_shares)))
    free_panels = iter(panels)
    shown_shares = [(_shares(servers), BLUE, "world server"), (_shares(clients), GREEN, "island client")]
    shown_shares += [(udp_shares, PURPLE, "UDP by client")] if udp_shares else []
    share_panels = [next(free_panels) for _ in shown_shares]
    for axes, (shares, colour, role) in zip(share_panels, shown_shares, strict=True):
        _share_bars(axes, shares, colour, role)
    if losses:
        _loss_bars(next(free_panels), losses, "TCP payload lost by client (%)")
    if udp_shares:
        udp_losses = {host: udp_clients[host]["loss_fraction"] for host in udp_shares}
        _loss_bars(next(free_panels), udp_losses, "UDP lost by client (%)")
    panels[0].set_ylabel("share of goodput (%)")
    top = max(axes.get_ylim()[1] for axes in share_panels)
    for axes in share_panels:
        axes.set_ylim(0, top)
    return figure


def _loss_bars(axes: Axes, losses: Mapping[str, float | None], label: str) -> None:
    lost = {host: np.nan if loss is None else 100 * loss for host, loss in losses.items()}  # nan: no bar
    _host_bars(axes, lost, VERMILLION, label)


_CAUSES = {"queue": VERMILLION, "low_priority": ORANGE, "random": PURPLE, "trace": BROWN, "aqm": BLUE, "sockets": INK}
_CHAINS = (BLUE, ORANGE, GREEN, PURPLE, SKY, BROWN)


def _mark_changes(figure: Figure, sources: Sources) -> None:
    """A numbered line where each scheduled change began, and a shade until the version before had drained."""
    for change in sources.summary["changes"]:
        if change["began_s"] is not None:
            until = change["began_s"] + (change["duration_s"] or 0.0)
            for axes in figure.axes:
                draw_instant(axes, change["began_s"], until, str(change["number"]))


def _link_rate(axes: Axes, sources: Sources, link: Link, direction: Direction) -> float:
    """The rate of a link, 0 while it is blocked; the most in Mbit/s."""

    def mbit_s(step: LinkStep) -> float:
        return 0.0 if step.blocked else step.rate.bit_s / 1e6

    link_over_time, rate = sources.link_over_time(link, direction), direction_of(link, direction).rate
    return _limit(axes, sources, link_over_time, mbit_s, str(rate), "rate of the link")


def _queue_limit(axes: Axes, sources: Sources, link: Link, direction: Direction = TO_ISLAND) -> float:
    """The capacity of a link's queue; the most in kB."""
    link_over_time = sources.link_over_time(link, direction)
    text = f"Q\n{direction_of(link, direction).queue.bytes / 1e3:g} kB"
    return _limit(axes, sources, link_over_time, lambda step: step.queue.bytes / 1e3, text, "Q")


def _limit(
    axes: Axes, sources: Sources, link_over_time: LinkOverTime, read: Callable[[LinkStep], float], text: str, label: str
) -> float:
    """A limit of a link: a bound with a text, or a line with a label if it changes; the most."""
    begin_ns, end_ns = sources.measured_ns
    spans = list(link_over_time.spans(begin_ns, end_ns))
    limits = [read(step) for _, _, step in spans]
    if len(set(limits)) == 1:
        draw_bound(axes, limits[0], text)
    else:
        _steps(axes, sources, [(since_ns - begin_ns) / 1e9 for since_ns, _, _ in spans], limits, label)
    return max(limits)


def _udp_rate(axes: Axes, sources: Sources, traffic: UdpTraffic) -> float:
    """The rate at which UDP is sent: a bound, or a line if it changes; the most in Mbit/s."""
    mbit_s = [(state.udp or traffic).rate.bit_s / 1e6 for state in sources.experiment.states]
    if len(set(mbit_s)) == 1:
        draw_bound(axes, mbit_s[0], f"sent\n{mbit_s[0]:g} Mbit/s")
    else:
        _steps(axes, sources, [version.at.s for version in sources.experiment.versions], mbit_s, "sent")
    return max(mbit_s)


def _steps(axes: Axes, sources: Sources, times_s: list[float], mbit_s: list[float], label: str) -> None:
    x, y = [*times_s, sources.seconds], [*mbit_s, mbit_s[-1]]
    axes.step(x, y, where="post", color=INK, linewidth=1.0, linestyle=(0, (4, 3)), zorder=3, label=label)


def _time_axis(axes: Axes, sources: Sources, top: float) -> None:
    axes.set_xlim(0, sources.seconds)
    axes.set_ylim(0, 1.08 * top if top > 0 else 1.0)


def _log_axis(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter("{:g}".format))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _shares(hosts: dict[str, Volume]) -> dict[str, float]:
    return {host: volume["share"] for host, volume in hosts.items()}


def _share_bars(axes: Axes, shares: dict[str, float], colour: str, role: str) -> None:
    percents, equal = {host: 100 * share for host, share in shares.items()}, 100 / max(1, len(shares))
    _host_bars(axes, percents, colour, role)
    axes.axhline(equal, color=INK, linewidth=1.0, linestyle=(0, (4, 3)))
    axes.set_ylim(0, 1.12 * max((*percents.values(), equal)))


def _host_bars(axes: Axes, percents: dict[str, float], colour: str, label: str) -> None:
    axes.bar(range(len(percents)), list(percents.values()), width=0.66, color=colour, alpha=0.85)
    if len(percents) <= 24:
        axes.set_xticks(range(len(percents)), list(percents))
    axes.set_xlabel(label)
    axes.tick_params(axis="x", length=0)
    axes.yaxis.set_major_formatter(FuncFormatter("{:g}".format))
