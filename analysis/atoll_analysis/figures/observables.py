# SPDX-License-Identifier: Apache-2.0
"""Figures from tables: throughput, goodput, loss, flows, shares, completeness of captures."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from atoll_analysis.summary import Capture, SojournFigures, Volume
from atoll_analysis.tables.job_logs import capture_counts
from atoll_analysis.tables.packet_records import ECHO_REQUEST, ETHERNET_HEADER_BYTES, ICMP, TCP
from atoll_analysis.tables.probe_filter import is_probe
from atoll_analysis.tables.run_data import RunData, Window
from atoll_analysis.tables.tables import WINDOW_NS, Tables, in_window, total
from atoll_core.experiment.experiment import Counted, Link
from atoll_core.experiment.link_over_time import LinkOverTime
from atoll_core.lab.network import Host, HostRole


@dataclass(frozen=True, slots=True)
class Totals:
    """Island-bound totals of one capture."""

    packets: int
    ip_bytes: int
    tcp_payload_bytes: int
    goodput_bytes: int


def mbit_s(octets: int, seconds: float) -> float:
    """Return the rate of a number of bytes in a number of seconds."""
    return 8 * octets / seconds / 1e6 if seconds > 0 else 0.0


def counted_bytes(link: Link) -> pl.Expr:
    """Bytes of a throughput row as the link's rate counts them."""
    frame = pl.col("packets") * ETHERNET_HEADER_BYTES if link.counts is Counted.ETHERNET else 0
    return pl.col("ip_bytes") + frame


def totals(
    tables: Tables, capture: str, window: Window | None = None, leaving_out: pl.Expr | None = None
) -> Totals | None:
    """Island-bound totals of a capture, all of it or within the measurement; None when there is no such capture."""
    if capture not in tables.decoded and capture != tables.arrival:
        return None
    packets = tables.packets(capture).filter(pl.col("to_island") == 1)
    if window is not None:
        packets = packets.filter(pl.col("t_ns").is_between(window.start_ns, window.end_ns, closed="left"))
    if leaving_out is not None:
        packets = packets.filter(~leaving_out)
    tcp = pl.col("proto") == TCP
    row = packets.select(
        packets=pl.len().cast(pl.Int64),
        ip_bytes=total("ip_bytes"),
        tcp_payload_bytes=total("payload_bytes", tcp),
        goodput_bytes=total("new_payload_bytes", tcp),
    ).collect(engine="streaming")
    return Totals(**row.row(0, named=True))


def windows_over_rate(
    tables: Tables, link: Link, over_time: LinkOverTime, mtu: int, lateness_max_ns: int, bucket_bytes: int = 0
) -> int | None:
    """100 ms windows at the link's output port that hold more than the rate allows; None without that capture.

    Allowed: R x 0.1 s, two packets (one at each edge of the window), what a departure late by the run's largest
    lateness can push from one window into the next, and what arrives together with earlier packets because the delay
    has fallen. ``mtu``: IP bytes of the longest packet that passes the link. A token bucket that holds more than a
    packet may send it in place of one of the two packets. R is the highest rate that the link had within 100 ms of the
    instants at which it sent the packets of the window.
    """
    capture = f"link-{link.box}"
    if capture not in tables.decoded:
        return None
    packet = mtu + (ETHERNET_HEADER_BYTES if link.counts is Counted.ETHERNET else 0)
    rows = tables.scan("throughput").filter((pl.col("capture") == capture) & pl.col("to_island"))
    sent = rows.select(pl.col("window") * WINDOW_NS + tables.origin_ns, octets=counted_bytes(link)).collect()
    least, greatest = link.to_island.delays
    before_ns = WINDOW_NS + greatest.ns + (link.to_island.jitter.reach.ns if link.to_island.jitter else 0)
    after_ns = 2 * WINDOW_NS - least.ns
    rates = (over_time.rates(begin_ns - before_ns, begin_ns + after_ns) for begin_ns in sent["window"])
    bit_s = pl.Series([highest.bit_s for _, highest in rates], dtype=pl.Int64)
    allowed = (bit_s / 8 * (WINDOW_NS + lateness_max_ns) / 1e9 + packet + max(packet, bucket_bytes)).to_numpy().copy()
    begins_ns = sent["window"].to_numpy()
    for first_ns, last_ns, octets in over_time.catching_up():
        allowed[(first_ns - 2 * WINDOW_NS < begins_ns) & (begins_ns < last_ns + WINDOW_NS)] += octets
    return int((sent["octets"].to_numpy() > allowed).sum())


def capacity_bytes(over_time: LinkOverTime, link: Link, window: Window) -> float:
    """Return the capacity of a link for what it delivers in a time: it sends this one propagation delay earlier."""
    delay_ns = link.to_island.delay.ns
    return over_time.capacity_bytes(window.start_ns - delay_ns, window.end_ns - delay_ns)


def sent_by_link(tables: Tables, link: Link, window: Window) -> int | None:
    """Return the counted bytes that the link carried to the island in the measurement, lost at the receiver or not.

    Delivered packets are counted by the capture at its output port, or without one by the box (to 100 ms at both
    ends); packets lost at the receiver by the box.
    """
    counted = in_window(tables, link.box, window).select(
        pl.col(name).max() - pl.col(name).min() for name in ("out_bytes", "lost_after_bytes")
    )
    sent, lost = counted.collect().row(0)
    seen = totals(tables, f"link-{link.box}", window)
    if seen is not None:
        extra = seen.packets * ETHERNET_HEADER_BYTES if link.counts is Counted.ETHERNET else 0
        sent = seen.ip_bytes + extra
    return None if sent is None else int(sent) + int(lost or 0)


def queue_full_s(tables: Tables, link: Link) -> float | None:
    """Return how long the queue was full: the sum of the intervals of the table ``queue`` that say so."""
    rows = tables.scan("queue").filter(pl.col("link") == link.box)
    found = rows.select(count=pl.len(), full_s=pl.col("seconds").filter("full").sum()).collect().row(0, named=True)
    return round(found["full_s"], 9) if found["count"] else None


def idle_s(tables: Tables, link: Link, window: Window) -> float | None:
    """Return how long the link had nothing to send to the island within the measurement (to 100 ms at both ends)."""
    idle = (
        in_window(tables, link.box, window).select(pl.col("idle_ns").max() - pl.col("idle_ns").min()).collect().item()
    )
    return None if idle is None else idle / 1e9


@dataclass(frozen=True, slots=True)
class Pings:
    """The ping series within the measurement."""

    sent: int
    lost: int
    rtt_max_ns: int | None
    last_ns: int | None  # when the last one that was answered was sent


def pings(tables: Tables, window: Window | None) -> Pings:
    """Return counts and the largest RTT of the ping series, of pings sent within the measurement."""
    found = _pings_within(tables, window).select(
        sent=pl.len(),
        lost=pl.col("rtt_ns").is_null().sum(),
        rtt_max_ns=pl.col("rtt_ns").max(),
        last_ns=pl.col("sent_ns").filter(pl.col("rtt_ns").is_not_null()).max(),
    )
    return Pings(**found.collect().row(0, named=True))


def ping_sojourn(tables: Tables, window: Window | None, base_rtt_ns: int | None) -> SojournFigures | None:
    """Return what queues added to the RTTs of these pings; None without any answer, or without a base RTT."""
    if base_rtt_ns is None:
        return None
    sojourn_ms = (pl.col("rtt_ns") - base_rtt_ns) / 1e6
    found = (
        _pings_within(tables, window)
        .filter(pl.col("rtt_ns").is_not_null())
        .select(
            mean_ms=sojourn_ms.mean(),
            **{f"p{percent}_ms": sojourn_ms.quantile(percent / 100, "linear") for percent in (50, 95, 99)},
            max_ms=sojourn_ms.max(),
        )
        .collect()
        .row(0, named=True)
    )
    return None if found["max_ms"] is None else SojournFigures(**found)


def _pings_within(tables: Tables, window: Window | None) -> pl.LazyFrame:
    rows = tables.scan("pings")
    if window is None:
        return rows
    sent_within = pl.col("sent_ns").is_between(window.start_ns, window.end_ns, closed="left")
    return rows.filter(sent_within | pl.col("sent_ns").is_null())  # a lost ping may not say when it was sent


@dataclass(frozen=True, slots=True)
class ChannelFlows:
    """Flows of the channels, as logged by the clients."""

    completed: int
    cut: int
    failed: int
    mean_bytes: float | None  # of the completed ones
    failed_by: dict[str, int]  # failed ones by the name of the error, the most frequent first


def channel_flows(tables: Tables) -> ChannelFlows:
    """Counts by outcome and the mean size of completed flows."""
    outcome = pl.col("outcome")
    rows = tables.scan("channel_flows")
    found = rows.select(
        completed=(outcome == "completed").sum(),
        cut=(outcome == "cut").sum(),
        failed=outcome.str.starts_with("failed").sum(),
        mean_bytes=pl.col("size_bytes").filter(outcome == "completed").mean(),
    ).collect()
    errors = rows.filter(outcome.str.starts_with("failed:")).select(outcome.str.strip_prefix("failed:").value_counts())
    by = errors.unnest("outcome").sort("count", "outcome", descending=[True, False]).collect()
    return ChannelFlows(**found.row(0, named=True), failed_by=dict(by.iter_rows()))


def concurrent_max(tables: Tables) -> int | None:
    """Return the most open connections of channels at the end of a 100 ms window at the arrival capture."""
    found = tables.scan("concurrent").select(pl.col("open").max()).collect().item()
    return None if found is None else int(found)


def connections(tables: Tables, data: RunData) -> int | None:
    """Return the number of TCP connections of channels in the arrival capture, however they ended."""
    if tables.arrival is None:
        return None
    port = data.experiment.traffic.port
    ours = (pl.col("capture") == tables.arrival) & (pl.col("protocol") == "tcp") & (pl.col("sport") == port)
    return int(tables.scan("flows").filter(ours).select(pl.len()).collect().item())


def host_volumes(tables: Tables, hosts: tuple[Host, ...]) -> dict[str, Volume]:
    """Goodput, share and presence of each of the hosts at the arrival capture; empty without such a capture."""
    if tables.arrival is None:
        return {}
    rows = {row["host"]: row for row in tables.scan("volume").collect().iter_rows(named=True)}
    everything = sum(rows[host.name]["goodput_bytes"] for host in hosts)

    def since_start(t_ns: int | None) -> float | None:
        return None if t_ns is None else (t_ns - tables.origin_ns) / 1e9

    return {
        host.name: Volume(
            goodput_bytes=rows[host.name]["goodput_bytes"],
            share=rows[host.name]["goodput_bytes"] / everything if everything else 0.0,
            first_s=since_start(rows[host.name]["first_ns"]),
            last_s=since_start(rows[host.name]["last_ns"]),
            payload_first_s=since_start(rows[host.name]["payload_first_ns"]),
            payload_last_s=since_start(rows[host.name]["payload_last_ns"]),
        )
        for host in hosts
    }


def transfer_in_capture(tables: Tables, data: RunData) -> tuple[int, float] | None:
    """The large transfer as the arrival capture saw it: bytes that arrived, seconds from its first to its last packet.

    Use this figure behind a connection-splitting PEP, and for iperf3, whose first connection to the port is for control
    alone: without a second one no byte arrived. None: no such capture.
    """
    transfer = data.experiment.transfer
    if transfer is None or tables.arrival is None:
        return None
    control = 1 if transfer.tool == "iperf3" else 0
    flow = (
        tables.scan("flows")
        .filter(
            (pl.col("capture") == tables.arrival) & (pl.col("protocol") == "tcp") & (pl.col("sport") == transfer.port)
        )
        .sort("first_ns")
        .slice(control)
        .sort("goodput_bytes", descending=True)
        .head(1)
        .collect()
    )
    if flow.is_empty():
        return 0, 0.0
    row = flow.row(0, named=True)
    return int(row["goodput_bytes"]), (row["last_ns"] - row["first_ns"]) / 1e9


def whistles(tables: Tables, data: RunData) -> Mapping[str, dict[str, bool]]:
    """Whether each tap's capture holds the start and the end whistle.

    A whistle is an echo request of the whistle host; the one before the middle of the measurement is the start's.
    """
    senders = [int(host.address) for host in data.network.with_role(HostRole.WORLD_WHISTLE)]
    heard: dict[str, dict[str, bool]] = {}
    if not (senders and data.network.with_role(HostRole.ISLAND_SPECIAL)):
        return heard  # nobody to whistle, or to hear it
    for capture in ("world", "island"):
        if capture in tables.decoded:
            times = (
                tables.packets(capture)
                .filter(
                    (pl.col("proto") == ICMP)
                    & (pl.col("icmp_type") == ECHO_REQUEST)
                    & pl.col("src").is_in(senders)
                    & ~is_probe()
                )
                .select("t_ns")
                .collect(engine="streaming")
                .to_series()
                .to_list()
            )
            middle = (data.window.start_ns + data.window.end_ns) // 2 if data.window else None
            heard[capture] = {
                "start": any(middle is None or t < middle for t in times),
                "end": any(middle is not None and t >= middle for t in times),
            }
    return heard


def capture_quality(tables: Tables, data: RunData, logs: Path) -> dict[str, Capture]:
    """Return the completeness of each planned capture, by the counts of the capture tool and the decoder."""
    quality: dict[str, Capture] = {}
    for point in data.plan.captures:
        said = capture_counts(logs, point.name)
        decoded = tables.decoded.get(point.name)
        quality[point.name] = Capture(
            captured=said.captured,
            dropped=said.dropped,
            unchecked=said.unchecked,
            decoded=decoded.packets if decoded else None,
            other_frames=decoded.other_frames if decoded else 0,
            truncated=bool(decoded and decoded.truncated),
        )
    return quality
