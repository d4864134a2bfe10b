# SPDX-License-Identifier: Apache-2.0
"""Open flows over time: mean, percentiles, and whether they grow steadily."""

from itertools import pairwise
from typing import TypedDict

import polars as pl

RAMP_SHARE = 0.2
"""The first part of a measurement, which says nothing about growth: flows begin together, and none has ended yet."""
PARTS = 4
GROWTH = 1.25
"""Concurrency grows steadily if it is larger in each of four equal parts of the rest than in the part before, and in
the last one larger by a quarter than in the first. Four parts of noise ascend in one run of 24, and by less."""


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
    seen = windows.filter(pl.col("window").is_between(0, count, closed="left")).select("window", "open")
    ramp = round(RAMP_SHARE * count)
    if count - ramp < PARTS or not seen.select(pl.len()).collect().item():
        return None
    every = pl.LazyFrame({"window": range(count)}, schema={"window": pl.Int64})
    open_ = every.join(seen, on="window", how="left", maintain_order="left").select(pl.col("open").fill_null(0))
    flows = open_.collect(engine="streaming")["open"]
    steady = flows.slice(ramp)
    bounds = [round(part * len(steady) / PARTS) for part in range(PARTS + 1)]
    parts = [_mean(steady.slice(begin, end - begin)) for begin, end in pairwise(bounds)]
    return Concurrency(
        mean=_mean(flows),
        p50=float(flows.quantile(0.5, "linear") or 0),
        p95=float(flows.quantile(0.95, "linear") or 0),
        parts=parts,
        grows=all(before < after for before, after in pairwise(parts)) and parts[-1] >= GROWTH * parts[0],
    )


def _mean(flows: pl.Series) -> float:
    return float(flows.sum()) / len(flows)
