# SPDX-License-Identifier: Apache-2.0
"""Standing queue: the part of a link's queue that does not drain, as a share of time and a height."""

from typing import TypedDict

import polars as pl

TARGET_MS = 5.0
"""A queue that never empties below this has no standing queue worth the name: the target of RFC 8289, section 3.2."""


class StandingQueue(TypedDict):
    """The standing queue of a link within the measurement (``floor_bytes`` of the table ``queue``)."""

    window_s: float  # time over which a queue must not drain to count as standing
    least_bytes: int  # a lower floor is no standing queue: one full-size packet, or 5 ms at the link's rate
    share: float  # share of the measurement in which a queue stood
    longest_s: float  # longest time without interruption in which a queue stood
    mean_bytes: float | None  # mean height while it stood; None: it never did
    max_bytes: int  # largest height
    mean_ms: float | None  # the time that this height takes at the link's rate; None: likewise
    max_ms: float  # the time that this takes at the link's rate


def standing_queue(
    intervals: pl.DataFrame, rate_bit_s: int, packet_bytes: int, window_s: float
) -> StandingQueue | None:
    """Return the figures of one link's rows of the table ``queue``; None if there is no span of ``window_s``."""
    known = intervals.filter(pl.col("floor_bytes").is_not_null())
    if known.is_empty():
        return None
    least_bytes = max(packet_bytes, round(TARGET_MS / 1e3 * rate_bit_s / 8))
    stood = known["floor_bytes"] > least_bytes
    seconds, height = known["seconds"], known["floor_bytes"]
    times = pl.DataFrame({"run": stood.rle_id(), "stood": stood, "seconds": seconds})
    lengths = times.filter(pl.col("stood")).group_by("run").agg(pl.col("seconds").sum())["seconds"]
    total_s, standing_s = float(seconds.sum()), float(lengths.sum())
    mean = float((height * seconds).filter(stood).sum()) / standing_s if standing_s else None
    most = max(height.filter(stood), default=0)
    ms_of_byte = 8e3 / rate_bit_s
    return StandingQueue(
        window_s=window_s,
        least_bytes=least_bytes,
        share=standing_s / total_s,
        longest_s=max(lengths, default=0.0),
        mean_bytes=mean,
        max_bytes=most,
        mean_ms=None if mean is None else mean * ms_of_byte,
        max_ms=most * ms_of_byte,
    )
