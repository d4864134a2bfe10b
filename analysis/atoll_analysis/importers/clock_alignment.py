# SPDX-License-Identifier: Apache-2.0
"""Clock of one capture against that of another, from the packets that both have. Pure.

A packet takes at least the delay of its path, and longer if it waits in a queue. Packets to the island therefore bound
the offset of the island's clock from above, packets to the world from below. A bound is a line below all points, the
edge of their convex hull (Zhang, Liu, Xia: Clock synchronization algorithms for network measurements, 2002). The
offset is taken in the middle of both bounds; half the distance between them is its error.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from atoll_analysis.tables.lost_packets import HEADERS
from atoll_core.experiment.experiment import Counted, Link

SAME_CLOCK_NS = 1_000_000
"""Clocks that differ by less throughout are taken to be one: paths of both directions differ by more than nothing."""

_LEAST_FOR_DRIFT = 100
"""With fewer common packets of a direction, a wait in a queue would be taken for a drift: it is taken to be 0."""
MOST_DRIFT = 1e-3
"""Clocks of machines drift less."""

_ETHERNET_BYTES = 14
_BINS = 4096  # of time; the least point of each decides
_ROUNDS = 3  # until the drift within a bin is negligible


@dataclass(frozen=True, slots=True)
class PathDelay:
    """The shortest time of a packet from one capture to the other: ``ns``, and ``ns_per_byte`` of its IP packet."""

    ns: float
    ns_per_byte: float

    @classmethod
    def of_links(cls, links: tuple[Link, ...], direction: str) -> "PathDelay":
        """That of a path through links, ``direction`` to_island or to_world, by their description."""
        ns = ns_per_byte = 0.0
        for link in links:
            settings = link.to_island if direction == "to_island" else link.to_world
            byte_ns = 8e9 / settings.rate.bit_s
            jitter_ns = settings.jitter.bound.ns if settings.jitter else 0
            header_bytes = _ETHERNET_BYTES if link.counts is Counted.ETHERNET else 0
            ns += settings.delays[0].ns - jitter_ns + header_bytes * byte_ns
            ns_per_byte += byte_ns
        return cls(ns, ns_per_byte)


@dataclass(frozen=True, slots=True)
class ClockFit:
    """The island's clock against the world's. ``since_ns``: an instant by the island's clock, ns since 1970."""

    offset_ns: int  # how far it is ahead at ``since_ns``
    offset_error_ns: int | None  # None: packets of one direction only
    drift_ppb: float  # how fast it is, in parts of 10^9
    drift_error_ppb: float | None  # None: a direction has too few packets
    since_ns: int
    until_ns: int  # the last common packet
    packets: tuple[int, int]  # common ones: to the island, to the world
    # how much shorter than the described delays the round trip of packets is at least; negative: it is longer
    too_short_ns: int

    @property
    def is_same_clock(self) -> bool:
        """Whether the clocks differ by less than ``SAME_CLOCK_NS`` throughout, or by less than the error."""
        end_ns = self.offset_ns + self.drift_ppb * (self.until_ns - self.since_ns) / 1e9
        return max(abs(self.offset_ns), abs(end_ns)) < SAME_CLOCK_NS + (self.offset_error_ns or 0)


def common_packets(world: pl.LazyFrame, island: pl.LazyFrame) -> pl.DataFrame:
    """The packets that both captures have once: world_ns, island_ns, ip_bytes, to_island."""
    key = pl.struct(HEADERS).hash().alias("key")
    in_world, in_island = (
        frame.select(key, pl.col("t_ns").alias(name), "ip_bytes", "to_island").unique("key", keep="none")
        for frame, name in ((world, "world_ns"), (island, "island_ns"))
    )
    joined = in_world.join(in_island.select("key", "island_ns"), on="key")
    return joined.drop("key").sort("island_ns").collect()


def fit_clock(common: pl.DataFrame, to_island: PathDelay, to_world: PathDelay) -> ClockFit | None:
    """Fit the island's clock to packets of :func:`common_packets`; None: there are not two of one direction."""
    since_ns, until_ns = (
        int(instant or 0) for instant in common.select(pl.col("island_ns").min(), end=pl.col("island_ns").max()).row(0)
    )
    above = _bound(common.filter(pl.col("to_island") == 1), since_ns, to_island, sign=1)
    below = _bound(common.filter(pl.col("to_island") == 0), since_ns, to_world, sign=-1)
    bounds = [bound for bound in (above, below) if bound is not None]
    if not bounds:
        return None
    sure = [bound for bound in bounds if len(bound.points) >= _LEAST_FOR_DRIFT]
    drift = min(sure, key=lambda bound: bound.scatter_ns).slope if sure else 0.0
    offsets_ns = [bound.intercept_ns(drift) for bound in bounds]
    are_both = len(bounds) == 2
    to_island_packets = int(common["to_island"].sum())
    return ClockFit(
        offset_ns=round(sum(offsets_ns) / len(offsets_ns)),
        offset_error_ns=round(abs(offsets_ns[0] - offsets_ns[-1]) / 2) if are_both else None,
        drift_ppb=round(1e9 * drift, 3),
        drift_error_ppb=round(1e9 * abs(sure[0].slope - sure[1].slope), 3) if len(sure) == 2 else None,
        since_ns=since_ns,
        until_ns=until_ns,
        packets=(to_island_packets, len(common) - to_island_packets),
        too_short_ns=round(offsets_ns[-1] - offsets_ns[0]),
    )


@dataclass(frozen=True, slots=True)
class _Bound:
    """A bound of the clock's offset: ``points`` (t_ns, offset_ns), and the slope of the line next to them.

    ``sign`` 1: the line is below the points, -1: above.
    """

    points: pl.DataFrame
    sign: int
    slope: float

    def intercept_ns(self, slope: float) -> float:
        """Where a line of this slope that touches the points is at t = 0."""
        return self.sign * float(np.min(self.sign * self._above_origin_ns(slope)))

    @property
    def scatter_ns(self) -> float:
        """Mean distance of the points from their line: how long packets wait in queues."""
        return abs(float(np.mean(self._above_origin_ns(self.slope))) - self.intercept_ns(self.slope))

    def _above_origin_ns(self, slope: float) -> NDArray[np.float64]:
        return (self.points["offset_ns"] - slope * self.points["t_ns"]).to_numpy()


def _bound(common: pl.DataFrame, since_ns: int, delay: PathDelay, *, sign: int) -> _Bound | None:
    if len(common) < 2:
        return None
    path_ns = delay.ns + delay.ns_per_byte * pl.col("ip_bytes")
    points = common.select(
        t_ns=(pl.col("island_ns") - since_ns).cast(pl.Float64),
        offset_ns=pl.col("island_ns") - pl.col("world_ns") - sign * path_ns,
    )
    return _Bound(points, sign, sign * _slope_below(points.with_columns(pl.col("offset_ns") * sign)))


def _slope_below(points: pl.DataFrame) -> float:
    """The slope of the line that is below all points and nearest to them in the middle of their time."""
    t_ns, slope = pl.col("t_ns"), 0.0
    in_bin = (t_ns * _BINS / pl.max_horizontal(t_ns.max(), 1)).floor()
    for _ in range(_ROUNDS):
        level = points.select(t_ns, level=pl.col("offset_ns") - slope * t_ns)
        least = level.group_by(in_bin.alias("bin")).agg(pl.col("t_ns", "level").sort_by("level").first()).sort("t_ns")
        hull = _lower_hull(list(least.select("t_ns", "level").iter_rows()))
        middle_ns = (hull[0][0] + hull[-1][0]) / 2
        right = next((at for at, (t, _) in enumerate(hull) if at and t >= middle_ns), None)
        if right is None:
            break
        (t0, y0), (t1, y1) = hull[right - 1 : right + 1]
        slope += (y1 - y0) / (t1 - t0)
    return slope


def _lower_hull(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The lower convex hull of points in order of time (Andrew's monotone chain)."""
    hull: list[tuple[float, float]] = []
    for t, y in points:
        if hull and t == hull[-1][0]:
            continue
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (t - hull[-1][0]) >= (y - hull[-1][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((t, y))
    return hull
