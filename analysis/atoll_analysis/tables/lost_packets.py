# SPDX-License-Identifier: Apache-2.0
"""Packets that a capture before a link has and the one behind it has not: which packet after which was lost.

A packet is recognised by its headers. The IPv4 identification distinguishes a segment that is sent again. Where
packets are alike nevertheless (SYN-ACKs of Linux have the identification 0), the order decides: a link is a queue.
"""

from bisect import bisect_right
from collections.abc import Iterator

import polars as pl

from atoll_analysis.tables.directions import TO_ISLAND, Direction
from atoll_analysis.tables.packet_records import bound
from atoll_analysis.tables.run_data import RunData
from atoll_core.experiment.experiment import LinkDirection

HEADERS = ("src", "dst", "proto", "sport", "dport", "seq", "ack", "ip_id", "payload_bytes", "tcp_flags")
"""Columns that distinguish packets."""
_PACKETS_AT_ONCE = 1 << 17  # packets, and those in flight
_SPARE_NS = 10**9  # how long a packet may be under way in other boxes, switches and stalls


def lost_packets(
    first: pl.LazyFrame, last: pl.LazyFrame, longest_ns: int, packets_at_once: int = _PACKETS_AT_ONCE
) -> Iterator[pl.DataFrame]:
    """Return the packets of ``first`` that are not in ``last``: number (in ``first``, from 0), t_ns, ip_bytes.

    ``longest_ns``: the longest time from one capture to the other. Packets of which ``last`` cannot say yet whether
    they arrive are left out: none that was sent after them has arrived, and the capture ends. Memory does not grow with
    the captures: about ``packets_at_once`` packets are read at a time.
    """
    spans = [
        frame.select(pl.len(), pl.col("t_ns").min().alias("begin"), pl.col("t_ns").max().alias("end"))
        for frame in (first, last)
    ]
    (count, begin_ns, end_ns), (_, _, last_arrival_ns) = (span.collect(engine="streaming").row(0) for span in spans)
    if not count or last_arrival_ns is None:
        return
    last_ns = min(max(end_ns, last_arrival_ns), end_ns + longest_ns)
    step = 1 + (last_ns - begin_ns) * packets_at_once // count
    key = pl.struct(HEADERS).hash().alias("key")
    waiting = pl.DataFrame(schema={"t_ns": pl.Int64, "ip_bytes": pl.UInt32, "key": pl.UInt64, "number": pl.Int64})
    count_so_far = 0
    arrived = -1  # number of the latest packet that has arrived
    for start in range(begin_ns, last_ns + 1, step):
        within = pl.col("t_ns").is_between(start, start + step, closed="left")
        entered = first.filter(within).select("t_ns", "ip_bytes", key).collect(engine="streaming")
        numbers = pl.int_range(count_so_far, count_so_far + len(entered), eager=True).alias("number")
        count_so_far += len(entered)
        waiting = pl.concat([waiting, entered.with_columns(numbers)])
        departed = last.filter(within).select(key).collect(engine="streaming").to_series()
        has_arrived = _has_arrived(waiting["key"], departed)
        arrived = max([arrived, *waiting["number"].filter(has_arrived).tail(1)])
        waiting = waiting.filter(~has_arrived)
        expired = pl.col("t_ns") < min(start + step, last_arrival_ns) - longest_ns
        yield waiting.filter(expired).select("number", "t_ns", "ip_bytes")
        waiting = waiting.filter(~expired)
    yield waiting.filter(pl.col("number") < arrived).select("number", "t_ns", "ip_bytes")


def longest_transit_ns(direction: LinkDirection) -> int:
    """Return the longest time that a packet which is not lost takes through a link and what is around it."""
    jitter_ns = direction.jitter.bound.ns if direction.jitter else 0
    waiting_ns = direction.full_queue.ns + direction.longest_pause.ns
    return direction.delays[1].ns + jitter_ns + waiting_ns + _SPARE_NS


def sent_in_measurement(
    packets: pl.LazyFrame, data: RunData, probes: pl.Expr | None, direction: Direction = TO_ISLAND
) -> pl.LazyFrame:
    """The packets of a capture in a direction within the measurement, without ``probes``."""
    packets = packets.filter(bound(direction))
    if data.window is not None:
        packets = packets.filter(pl.col("t_ns").is_between(data.window.start_ns, data.window.end_ns, closed="left"))
    return packets if probes is None else packets.filter(~probes)


def _has_arrived(waiting: pl.Series, departed: pl.Series) -> pl.Series:
    """Of each key of ``waiting``, in their order, whether the packet is among those that ``departed`` the link."""
    rows = pl.DataFrame({"key": waiting}).with_row_index("at")
    is_alike = rows["key"].is_duplicated()
    matches = pl.DataFrame({"key": departed}).join(rows.filter(~is_alike), on="key", how="left", maintain_order="left")
    has_arrived = pl.Series(values=[False], dtype=pl.Boolean).new_from_index(0, len(rows))
    has_arrived = has_arrived.scatter(matches["at"].drop_nulls(), values=True)
    if is_alike.any():
        candidates = dict(rows.filter(is_alike).group_by("key", maintain_order=True).agg("at").iter_rows())
        after = pl.col("at").cum_max().forward_fill().fill_null(-1).cast(pl.Int64)
        undecided = matches.with_columns(after=after).filter(
            pl.col("at").is_null() & pl.col("key").is_in([*candidates])
        )
        candidates_after = undecided.select("key", "after").iter_rows()
        indices = [index for key, preceding in candidates_after for index in _first_behind(candidates[key], preceding)]
        has_arrived = has_arrived.scatter(indices, values=True)
    return has_arrived


def _first_behind(indices: list[int], preceding: int) -> list[int]:
    """Take the first index behind the packet that left just before; if there is none, the first one."""
    return [indices.pop(bisect_right(indices, preceding) % len(indices))] if indices else []
