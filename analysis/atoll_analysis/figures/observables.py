# SPDX-License-Identifier: Apache-2.0
"""Figures from tables: throughput, goodput, loss, flows, shares, completeness of captures."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from atoll_analysis.summary import Capture, Volume
from atoll_analysis.tables.box_counters import SojournFigures
from atoll_analysis.tables.directions import TO_ISLAND, Direction, direction_of
from atoll_analysis.tables.job_logs import capture_counts
from atoll_analysis.tables.packet_records import ECHO_REQUEST, ETHERNET_HEADER_BYTES, ICMP, TCP, bound
from atoll_analysis.tables.probe_filter import is_probe
from atoll_analysis.tables.run_data import RunData, Window
from atoll_analysis.tables.tables import WINDOW_NS, Tables, in_window, total
from atoll_core.experiment.experiment import Counted, Link
from atoll_core.experiment.link_over_time import LinkOverTime
from atoll_core.lab.network import Host, HostRole
from atoll_core.plan.plan import Phase


@dataclass(frozen=True, slots=True)
class _Totals:
    """Totals of one capture in one direction."""

    packets: int
    ip_bytes: int
    tcp_payload_bytes: int
    goodput_bytes: int


def mbit_s(octets: int, seconds: float) -> float:
    """Return the rate of a number of bytes in a number of seconds."""
    return 8 * octets / seconds / 1e6 if seconds > 0 else 0.0


def counted_bytes(link: Link) -> pl.Expr:
    """Bytes of a throughput row as the link's rate counts them."""
    header_bytes = pl.col("packets") * ETHERNET_HEADER_BYTES if link.counts is Counted.ETHERNET else 0
    return pl.col("ip_bytes") + header_bytes


def totals(
    tables: Tables,
    capture: str,
    window: Window | None = None,
    excluded: pl.Expr | None = None,
    direction: Direction = TO_ISLAND,
) -> _Totals:
    """Totals of a capture in a direction, all of it or within the measurement."""
    packets = tables.packets(capture).filter(bound(direction))
    if window is not None:
        packets = packets.filter(pl.col("t_ns").is_between(window.start_ns, window.end_ns, closed="left"))
    if excluded is not None:
        packets = packets.filter(~excluded)
    tcp = pl.col("proto") == TCP
    row = packets.select(
        packets=pl.len().cast(pl.Int64),
        ip_bytes=total("ip_bytes"),
        tcp_payload_bytes=total("payload_bytes", tcp),
        goodput_bytes=total("new_payload_bytes", tcp),
    ).collect(engine="streaming")
    return _Totals(**row.row(0, named=True))


def windows_over_rate(
    tables: Tables,
    link: Link,
    link_over_time: LinkOverTime,
    mtu: int,
    lateness_max_ns: int,
    bucket_bytes: int = 0,
    direction: Direction = TO_ISLAND,
) -> int | None:
    """100 ms windows at the link's output port that hold more than the rate allows; None without that capture.

    Allowed: R x 0.1 s, two packets (one at each edge of the window), what a departure late by the run's largest
    lateness, or jitter, can push from one window into the next, and what arrives together with earlier packets because
    the delay has fallen. ``mtu``: IP bytes of the longest packet that passes the link. A token bucket that holds more
    than a packet may send it in place of one of the two packets. R is the highest rate that the link had within 100 ms
    of the instants at which it sent the packets of the window.
    """
    capture = behind_link(link, direction)
    if capture not in tables.captures:
        return None
    settings = direction_of(link, direction)
    packet = mtu + (ETHERNET_HEADER_BYTES if link.counts is Counted.ETHERNET else 0)
    rows = tables.scan("throughput").filter((pl.col("capture") == capture) & bound(direction))
    sent = rows.select(pl.col("window") * WINDOW_NS + tables.origin_ns, octets=counted_bytes(link)).collect()
    least, greatest = settings.delays
    jitter_ns = settings.jitter.bound.ns if settings.jitter else 0
    before_ns = WINDOW_NS + greatest.ns + jitter_ns
    after_ns = 2 * WINDOW_NS - least.ns + jitter_ns
    rates = (link_over_time.rate_range(begin_ns - before_ns, begin_ns + after_ns) for begin_ns in sent["window"])
    bit_s = pl.Series([highest.bit_s for _, highest in rates], dtype=pl.Int64)
    span_ns = WINDOW_NS + lateness_max_ns + 2 * jitter_ns  # from one packet delayed most to one delayed least
    allowed = (bit_s / 8 * span_ns / 1e9 + packet + max(packet, bucket_bytes)).to_numpy().copy()
    begins_ns = sent["window"].to_numpy()
    for first_ns, last_ns, octets in link_over_time.compressions():
        allowed[(first_ns - 2 * WINDOW_NS < begins_ns) & (begins_ns < last_ns + WINDOW_NS)] += octets
    return int((sent["octets"].to_numpy() > allowed).sum())


def behind_link(link: Link, direction: Direction) -> str:
    """The name of the capture at a link's output port."""
    return f"link-{link.box}" if direction is TO_ISLAND else f"into-{link.box}"


def capacity_bytes(link_over_time: LinkOverTime, link: Link, window: Window, direction: Direction = TO_ISLAND) -> float:
    """Return the capacity of a link for what it delivers in a time: it sends this one propagation delay earlier."""
    delay_ns = direction_of(link, direction).delay.ns
    return link_over_time.capacity_bytes(window.start_ns - delay_ns, window.end_ns - delay_ns)


def sent_by_link(
    tables: Tables, data: RunData, link: Link, window: Window, direction: Direction = TO_ISLAND
) -> int | None:
    """Return the counted bytes that the link carried in a direction in the measurement, lost at the receiver or not.

    Delivered packets are counted by the capture at its output port, or without one by the box (to 100 ms at both
    ends), or if it reports none by the next capture behind the link; packets lost at the receiver by the box.
    """
    counted = in_window(tables, link.box, window, direction).select(
        pl.col(name).max() - pl.col(name).min() for name in ("out_bytes", "lost_after_bytes")
    )
    sent, lost = counted.collect().row(0)
    pairs = data.topology.links_between_captures(tables.captures, direction)
    behind = {each.box: pair.last for each, pair in pairs}
    capture = behind_link(link, direction)
    if capture not in tables.captures and sent is None:
        capture = behind.get(link.box, capture)
    if capture in tables.captures:
        captured = totals(tables, capture, window, direction=direction)
        sent = captured.ip_bytes
        sent += captured.packets * ETHERNET_HEADER_BYTES if link.counts is Counted.ETHERNET else 0
    return None if sent is None else int(sent) + int(lost or 0)


def queue_full_s(tables: Tables, link: Link, direction: Direction = TO_ISLAND) -> float | None:
    """Return how long the queue was full: the sum of the intervals of the table ``queue`` that say so."""
    rows = tables.scan("queue", direction).filter(pl.col("link") == link.box)
    count, full_s = rows.select(pl.len(), pl.col("seconds").filter("full").sum()).collect().row(0)
    return round(full_s, 9) if count else None


def idle_s(tables: Tables, link: Link, window: Window, direction: Direction = TO_ISLAND) -> float | None:
    """Return how long the link had nothing to send in a direction within the measurement (to 100 ms at both ends)."""
    idle_ns = pl.col("idle_ns").max() - pl.col("idle_ns").min()
    idle = in_window(tables, link.box, window, direction).select(idle_ns).collect().item()
    return None if idle is None else idle / 1e9


def pings(tables: Tables, window: Window | None) -> tuple[Any, ...]:
    """Of the pings sent within the measurement: sent, lost, largest RTT, and when the last answered one was sent."""
    rtt_ns = pl.col("rtt_ns")
    last_ns = pl.col("sent_ns").filter(rtt_ns.is_not_null()).max()
    counts = _pings_within(tables, window).select(pl.len(), rtt_ns.is_null().sum().alias("lost"), rtt_ns.max(), last_ns)
    return counts.collect().row(0)


def ping_sojourn(tables: Tables, window: Window | None, base_rtt_ns: int | None) -> SojournFigures | None:
    """Return what queues added to the RTTs of these pings; None without any answer, or without a base RTT."""
    if base_rtt_ns is None:
        return None
    sojourn_ms = (pl.col("rtt_ns") - base_rtt_ns) / 1e6
    figures = (
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
    return None if figures["max_ms"] is None else SojournFigures(**figures)


def _pings_within(tables: Tables, window: Window | None) -> pl.LazyFrame:
    rows = tables.scan("pings")
    if window is None:
        return rows
    sent_within = pl.col("sent_ns").is_between(window.start_ns, window.end_ns, closed="left")
    return rows.filter(sent_within | pl.col("sent_ns").is_null())  # a lost ping may not say when it was sent


def channel_flows(flows: pl.LazyFrame) -> tuple[dict[str, Any], float | None]:
    """Counts of flows by outcome, with keys of the summary, and the mean size of completed ones.

    ``flows``: rows of the table ``channel_flows``.
    """
    outcome = pl.col("outcome")
    counts = flows.select(
        flows_completed=(outcome == "completed").sum(),
        flows_cut=(outcome == "cut").sum(),
        flows_failed=outcome.str.starts_with("failed").sum(),
        mean_bytes=pl.col("size_bytes").filter(outcome == "completed").mean(),
    )
    counts = counts.collect().row(0, named=True)
    mean_bytes = counts.pop("mean_bytes")
    errors = flows.filter(outcome.str.starts_with("failed:")).select(outcome.str.strip_prefix("failed:").value_counts())
    failures = errors.unnest("outcome").sort("count", "outcome", descending=[True, False]).collect()
    return {**counts, "flows_failed_by": dict(failures.iter_rows())}, mean_bytes


def concurrent_max(tables: Tables) -> int | None:
    """Return the most open connections of channels at the end of a 100 ms window at the arrival capture."""
    return tables.scan("concurrent").select(pl.col("open").max()).collect().item()


def connections(tables: Tables, data: RunData) -> int | None:
    """Return the number of TCP connections of channels in the arrival capture, however they ended."""
    if tables.arrival is None:
        return None
    port = data.experiment.traffic.port
    is_channel = (pl.col("capture") == tables.arrival) & (pl.col("protocol") == "tcp") & (pl.col("sport") == port)
    return tables.scan("flows").filter(is_channel).select(pl.len()).collect().item()


def client_losses(
    tables: Tables, ends: tuple[str, str] = ("world", "island"), direction: Direction = TO_ISLAND
) -> dict[str, float]:
    """Return the share of TCP payload that was lost between two captures, by client."""
    octets = pl.col("tcp_payload_bytes")
    sent, arrived = (pl.when(pl.col("capture") == name).then(octets).sum() for name in ends)
    by_client = tables.scan("flows", direction).group_by("client").agg(sent=sent, arrived=arrived)
    losses = by_client.filter(pl.col("sent") > 0).select(
        "client", (pl.col("sent") - pl.col("arrived")) / pl.col("sent")
    )
    return dict(losses.collect(engine="streaming").iter_rows())


def host_volumes(
    tables: Tables,
    hosts: tuple[Host, ...],
    seconds: float | None,
    losses: Mapping[str, float],
    direction: Direction = TO_ISLAND,
) -> dict[str, Volume]:
    """Goodput, share and presence of each of the hosts at the arrival capture; empty without such a capture.

    ``seconds``: duration of the measurement. ``losses``: by host, the share of TCP payload that was lost.
    """
    if tables.arrival_of(direction) is None:
        return {}
    rows = {row["host"]: row for row in tables.scan("volume", direction).collect().iter_rows(named=True)}
    total_bytes = sum(rows[host.name]["goodput_bytes"] for host in hosts)

    def since_start(t_ns: int | None) -> float | None:
        return None if t_ns is None else (t_ns - tables.origin_ns) / 1e9

    return {
        host.name: Volume(
            goodput_bytes=(row := rows[host.name])["goodput_bytes"],
            share=row["goodput_bytes"] / total_bytes if total_bytes else 0.0,
            first_s=since_start(row["first_ns"]),
            last_s=since_start(row["last_ns"]),
            payload_first_s=since_start(row["payload_first_ns"]),
            payload_last_s=since_start(row["payload_last_ns"]),
            goodput_mbit_s=mbit_s(row["measured_goodput_bytes"], seconds) if seconds else None,
            **({"loss_fraction": losses[host.name]} if host.name in losses else {}),
        )
        for host in hosts
    }


def whistles(tables: Tables, data: RunData) -> Mapping[str, dict[str, bool]]:
    """Whether each tap's capture holds the start and the end whistle.

    A whistle is an echo request of the whistle host; each has an ICMP identifier of its own.
    """
    senders = [int(host.address) for host in data.network.with_role(HostRole.WORLD_WHISTLE)]
    jobs = [job for job in data.plan.jobs if job.phase is Phase.WHISTLE]
    identifiers = {job.name.removeprefix("whistle-"): job.config["identifier"] for job in jobs if job.config}
    presence: dict[str, dict[str, bool]] = {}
    if not identifiers:
        return presence  # nobody to whistle, or to hear it
    for capture in ("world", "island"):
        if capture in tables.captures:
            requests = (pl.col("proto") == ICMP) & (pl.col("icmp_type") == ECHO_REQUEST) & ~is_probe()
            sent = tables.packets(capture).filter(requests & pl.col("src").is_in(senders))
            present = set(sent.select("sport").unique().collect(engine="streaming")["sport"])
            presence[capture] = {when: identifier in present for when, identifier in identifiers.items()}
    return presence


def capture_quality(tables: Tables, data: RunData, logs: Path) -> dict[str, Capture]:
    """Return the completeness of each planned capture, by the counts of the capture tool and the decoder."""
    quality: dict[str, Capture] = {}
    for point in data.plan.captures:
        captured, dropped, unchecked = capture_counts(logs, point.name)
        decoded = tables.captures.get(point.name)
        quality[point.name] = Capture(
            captured=captured,
            dropped=dropped,
            unchecked=unchecked,
            decoded=decoded.packets if decoded else None,
            other_frames=decoded.other_frames if decoded else 0,
            truncated=bool(decoded and decoded.truncated),
        )
    return quality
