# SPDX-License-Identifier: Apache-2.0
"""Standing queue: the part of a link's queue that does not drain, as a share of time and a height."""

from typing import TypedDict

import polars as pl

from atoll_core.experiment.link_over_time import LinkOverTime

TARGET_MS = 5.0
"""A queue that never empties below this has no standing queue worth the name: the target of RFC 8289, section 3.2."""


class StandingQueue(TypedDict):
    """The standing queue of a link within the measurement (``floor_bytes`` of the table ``queue``)."""

    window_s: float  # time over which a queue must not drain to count as standing
    # a lower floor is no standing queue: one full-size packet, or 5 ms at the link's rate; the largest such bound of a
    # rate that changes
    least_bytes: int
    share: float  # share of the measurement with a standing queue
    longest_s: float  # longest time without interruption with a standing queue
    mean_bytes: float | None  # mean height while there was one; None: there was none
    max_bytes: int  # largest height
    mean_ms: float | None  # mean time in which the link sends this height, at the rate of the instant; None: likewise
    max_ms: float  # largest such time


def standing_queue(
    intervals: pl.DataFrame, link_over_time: LinkOverTime, packet_bytes: int, window_s: float
) -> StandingQueue | None:
    """Return the figures of one link's rows of the table ``queue``; None if there is no span of ``window_s``."""
    intervals = intervals.drop_nulls("floor_bytes")
    if intervals.is_empty():
        return None
    end_ns, seconds, height = intervals["t_ns"], intervals["seconds"], intervals["floor_bytes"]
    begin_ns = end_ns - (seconds * 1e9).round().cast(pl.Int64)
    rate_bit_s = pl.Series([link_over_time.mean_rate(*span).bit_s for span in zip(begin_ns, end_ns, strict=True)])
    threshold_bytes = (TARGET_MS / 8e3 * rate_bit_s).round().clip(packet_bytes).cast(pl.Int64)
    standing = height > threshold_bytes
    times = pl.DataFrame({"run": standing.rle_id(), "standing": standing, "seconds": seconds})
    durations_s = times.filter(pl.col("standing")).group_by("run").agg(pl.col("seconds").sum())["seconds"]
    total_s, standing_s = float(seconds.sum()), float(durations_s.sum())
    height_ms = 8e3 * height / rate_bit_s

    def mean(heights: pl.Series) -> float | None:
        return float((heights * seconds).filter(standing).sum()) / standing_s if standing_s else None

    return StandingQueue(
        window_s=window_s,
        least_bytes=max(threshold_bytes),
        share=standing_s / total_s,
        longest_s=max(durations_s, default=0.0),
        mean_bytes=mean(height),
        max_bytes=max(height.filter(standing), default=0),
        mean_ms=mean(height_ms),
        max_ms=max(height_ms.filter(standing), default=0.0),
    )
