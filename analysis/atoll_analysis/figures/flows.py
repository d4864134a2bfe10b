# SPDX-License-Identifier: Apache-2.0
"""Flows of the channels: completion times and rates by size class, the initial window, and open flows over time."""

from itertools import pairwise
from typing import Any, TypedDict

import polars as pl

from atoll_analysis.tables.run_data import RunData
from atoll_core.experiment.experiment import Protocol
from atoll_core.experiment.path_mtu import PathMtus

CLASS_BOUNDS_BYTES = (10_000, 100_000, 1_000_000, 10_000_000)
"""Upper bounds of the size classes, in bytes of payload. With an initial window of 10 segments that doubles every round
trip, a flow of 10 kB is sent in one round, one of 100 kB in three and one of 1 MB in seven: these classes are governed
by the round-trip time. Flows of more than 1 MB, about the bandwidth-delay product of a GEO link of 16 Mbit/s, are
governed by the queue and by losses. Those of more than 10 MB are the tail that short runs have few of."""

PERCENTILES = (50, 90, 95, 99)

INITIAL_WINDOW_SEGMENTS = 10
"""RFC 6928; the default of Linux since 2.6.39."""

_HEADERS_BYTES = 20 + 20 + 12
"""Of IPv4 and of TCP with timestamps (RFC 7323), the default of Linux."""

RAMP_SHARE = 0.2
"""The first part of a measurement, which says nothing about growth: flows begin together, and none has ended yet."""
PARTS = 4
LEAST_GROWTH = 1.25
"""Concurrency grows steadily if it is larger in each of four equal parts of the rest than in the part before, and in
the last one larger by a quarter than in the first. Four parts of noise ascend in one run of 24, and by less."""


class Percentiles(TypedDict):
    """Percentiles of flows, by linear interpolation between the two nearest ranks."""

    p50: float  # median
    p90: float  # 90th percentile
    p95: float  # 95th percentile
    p99: float  # 99th percentile


class FlowClass(TypedDict):
    """Flows of one size class; None: none was completed."""

    above_bytes: int  # flows of this class are larger
    to_bytes: int | None  # and at most this large; None: the class of the largest
    flows: int  # flows begun
    completed: int  # flows completed
    completed_bytes: int  # total size of these
    completion_s: Percentiles | None  # time from connecting to the last byte; None: no flow was completed
    rate_mbit_s: Percentiles | None  # size divided by this time; None: no flow was completed


class InitialWindow(TypedDict):
    """Completed flows that fit into the initial window: the server sends them without any acknowledgement."""

    bytes: int  # TCP payload that the initial window holds
    flows_share: float | None  # share of the completed flows that fit into it; None: no flow was completed
    bytes_share: float | None  # share of the completed flows' bytes in such flows; None: no flow was completed


def flow_classes(flows: pl.LazyFrame) -> list[FlowClass]:
    """Return the figures of each class, the smallest sizes first.

    ``flows``: the columns size_bytes, start_ns, end_ns and outcome of the table ``channel_flows``. Flows that fail or
    that the end of the run cuts count as begun alone: the times of a class with many of them are those of its faster
    flows.
    """
    size = pl.col("size_bytes")
    completed = (pl.col("outcome") == "completed") & (size > 0) & (pl.col("end_ns") > pl.col("start_ns"))
    seconds = (pl.col("end_ns") - pl.col("start_ns")) / 1e9
    rows = {
        row["number"]: row
        for row in flows.select(
            number=pl.sum_horizontal((size > bound).cast(pl.Int64) for bound in CLASS_BOUNDS_BYTES),
            completed=completed,
            bytes=pl.when(completed).then(size),
            completion_s=pl.when(completed).then(seconds),
            rate_mbit_s=pl.when(completed).then(8 * size / seconds / 1e6),
        )
        .group_by("number")
        .agg(
            pl.len().alias("flows"),
            pl.col("completed", "bytes").sum(),
            *(
                pl.col(column).quantile(percent / 100, "linear").alias(f"{column} p{percent}")
                for column in ("completion_s", "rate_mbit_s")
                for percent in PERCENTILES
            ),
        )
        .collect(engine="streaming")
        .iter_rows(named=True)
    }
    bounds = zip((0, *CLASS_BOUNDS_BYTES), (*CLASS_BOUNDS_BYTES, None), strict=True)
    return [
        FlowClass(
            above_bytes=above_bytes,
            to_bytes=to_bytes,
            flows=row.get("flows", 0),
            completed=row.get("completed", 0),
            completed_bytes=row.get("bytes", 0),
            completion_s=_percentiles("completion_s", row),
            rate_mbit_s=_percentiles("rate_mbit_s", row),
        )
        for number, (above_bytes, to_bytes) in enumerate(bounds)
        for row in (rows.get(number, {}),)
    ]


def _percentiles(name: str, row: dict[str, Any]) -> Percentiles | None:
    if not row.get("completed"):
        return None
    return Percentiles(p50=row[f"{name} p50"], p90=row[f"{name} p90"], p95=row[f"{name} p95"], p99=row[f"{name} p99"])


def initial_window(flows: pl.LazyFrame, segments: int | None, segment_bytes: int) -> InitialWindow:
    """Return which share of completed flows, and of their bytes, fits into the initial window (None: the kernel's)."""
    window_bytes = (segments or INITIAL_WINDOW_SEGMENTS) * segment_bytes
    size = pl.col("size_bytes")
    count, octets, within, bytes_within = (
        flows.filter(pl.col("outcome") == "completed")
        .select(
            pl.len(),
            size.sum().alias("bytes"),
            (size <= window_bytes).sum().alias("within"),
            pl.when(size <= window_bytes).then(size).sum().alias("bytes within"),
        )
        .collect(engine="streaming")
        .row(0)
    )
    return InitialWindow(
        bytes=window_bytes,
        flows_share=within / count if count else None,
        bytes_share=bytes_within / octets if octets else None,
    )


def segment_bytes(data: RunData) -> int:
    """Return the payload of a full-size segment between the first world server and the first island client."""
    servers, clients = data.network.world_hosts, data.network.island_hosts
    mtu = PathMtus(data.network, data.experiment).between(servers[0], clients[0], Protocol.TCP)
    return mtu - _HEADERS_BYTES


def long_flows(flows: pl.LazyFrame, least_bytes: int, start_ns: int, end_ns: int) -> float:
    """Return how many flows of more than ``least_bytes`` were open on average between two instants."""
    begin, end = pl.col("start_ns").clip(start_ns, end_ns), pl.col("end_ns").fill_null(end_ns).clip(start_ns, end_ns)
    long = flows.filter(pl.col("size_bytes") > least_bytes)
    return long.select((end - begin).sum()).collect(engine="streaming").item() / (end_ns - start_ns)


class Concurrency(TypedDict):
    """The channels' open connections at the ends of 100 ms windows of the measurement."""

    mean: float  # mean of open connections
    p50: float  # median
    p95: float  # 95th percentile
    parts: list[float]  # means of four equal parts of the measurement, its first fifth left out
    grows: bool  # each part has more open connections than the one before (docs/regimes.md)


def concurrency(windows: pl.LazyFrame, count: int) -> Concurrency | None:
    """Return the figures of a measurement of so many windows; None if it is too short, or there was no flow.

    ``windows``: the columns window and open of the table ``concurrent``. Windows without a row have no open flow.
    """
    rows = windows.filter(pl.col("window").is_between(0, count, closed="left")).select("window", "open")
    ramp = round(RAMP_SHARE * count)
    if count - ramp < PARTS or not rows.select(pl.len()).collect().item():
        return None
    all_windows = pl.LazyFrame({"window": range(count)}, schema={"window": pl.Int64})
    joined = all_windows.join(rows, on="window", how="left", maintain_order="left").select(pl.col("open").fill_null(0))
    flows = joined.collect(engine="streaming")["open"]
    steady = flows.slice(ramp)
    bounds = [round(part * len(steady) / PARTS) for part in range(PARTS + 1)]
    parts = [_mean(steady.slice(begin, end - begin)) for begin, end in pairwise(bounds)]
    return Concurrency(
        mean=_mean(flows),
        p50=float(flows.quantile(0.5, "linear") or 0),
        p95=float(flows.quantile(0.95, "linear") or 0),
        parts=parts,
        grows=all(before < after for before, after in pairwise(parts)) and parts[-1] >= LEAST_GROWTH * parts[0],
    )


def _mean(flows: pl.Series) -> float:
    return float(flows.sum()) / len(flows)
