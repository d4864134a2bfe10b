# SPDX-License-Identifier: Apache-2.0
"""The queue of a link in the intervals between its counters: least and most, whether it was empty or full, its floor.

A standing queue is one that does not drain: what remains of it when bursts have passed. Its height is the floor here.
"""

import polars as pl

from atoll_analysis.tables.packet_records import ETHERNET_HEADER_BYTES
from atoll_analysis.tables.run_data import RunData
from atoll_core.experiment.experiment import Counted, Link
from atoll_core.experiment.link_over_time import LinkOverTime
from atoll_core.experiment.path_mtu import PathMtus

LEAST_WINDOW_S = 1.0
"""The floor is taken over one base RTT, the time in which senders react to a queue (RFC 8289, section 3.2), but over at
least this: ten counters, and a queue that stays for less is no standing queue of a satellite link."""


def queue_intervals(
    counters: pl.LazyFrame, link_over_time: LinkOverTime, packet_bytes: int, window_s: float
) -> pl.DataFrame:
    """Return a row for each interval: t_ns (its end), seconds, least_bytes, most_bytes, idle, full, floor_bytes.

    ``counters``: of one direction of a link (table ``boxes``), within the measurement. ``packet_bytes``: of a full-size
    packet as the link counts it. ``idle``: at some instant the link had nothing to send. ``full``: at some instant such
    a packet did not fit, or one was dropped for this. ``floor_bytes``: the largest minimum of the queue over all spans
    of ``window_s`` that contain the interval; null if no span does.
    """
    rows = counters.sort("t_ns").collect(engine="streaming")
    seconds = pl.col("t_ns").diff() / 1e9
    # What has left the queue: the kernel's tc knows no idle time, and counts what it has sent after the propagation.
    low_priority = pl.col("low_priority_queue_bytes") if "low_priority_queue_bytes" in rows.columns else pl.lit(0)
    queued = pl.col("queue_bytes") + low_priority.fill_null(0)
    sent = pl.col("in_bytes") - (pl.col("dropped_bytes") - pl.col("lost_after_bytes").fill_null(0)) - queued
    # A packet may be half within the interval at each end.
    capacity = capacities_bytes(rows["t_ns"].shift(), rows["t_ns"], link_over_time) - 2 * packet_bytes
    queue_bytes = pl.Series([link_over_time.at(t_ns).queue.bytes for t_ns in rows["t_ns"]], dtype=pl.Int64)
    idle = pl.coalesce(pl.col("idle_ns").diff() > 0, sent.diff() < capacity).fill_null(value=False)
    most_bytes = pl.max_horizontal("queue_max_bytes", "queue_bytes")
    has_dropped = pl.col("dropped_queue_packets").diff().fill_null(0) > 0
    intervals = rows.select(
        "t_ns",
        seconds=seconds,
        least_bytes=pl.when(idle).then(0).otherwise(pl.min_horizontal("queue_bytes", pl.col("queue_bytes").shift())),
        most_bytes=most_bytes,
        idle=idle,
        full=(most_bytes > queue_bytes - packet_bytes) | has_dropped,
    ).slice(1)
    median = intervals["seconds"].median()
    median_s = median if isinstance(median, float) and median > 0 else LEAST_WINDOW_S
    span_intervals = max(1, round(window_s / median_s))
    least_of_span = intervals["least_bytes"].rolling_min(span_intervals)
    floor = least_of_span.reverse().rolling_max(span_intervals, min_samples=1).reverse()
    return intervals.with_columns(floor_bytes=floor)


def capacities_bytes(begin_ns: pl.Series, end_ns: pl.Series, link_over_time: LinkOverTime) -> pl.Series:
    """Return the capacity of a link in each interval; null if an end is null."""
    spans = zip(begin_ns, end_ns, strict=True)
    return pl.Series(
        [None if None in span else link_over_time.capacity_bytes(*span) for span in spans], dtype=pl.Float64
    )


def standing_window_s(data: RunData) -> float:
    """Return the span over which the floor of a queue is taken."""
    return max(LEAST_WINDOW_S, (data.base_rtt_ns or 0) / 1e9)


def full_size_bytes(data: RunData, link: Link) -> int:
    """Return the bytes of the longest packet that passes a link, as the link counts them."""
    mtu = PathMtus(data.network, data.experiment).longest_packet_at(data.network.box(link.box))
    return mtu + (ETHERNET_HEADER_BYTES if link.counts is Counted.ETHERNET else 0)
