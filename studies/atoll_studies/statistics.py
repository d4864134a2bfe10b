# SPDX-License-Identifier: Apache-2.0
"""Statistics over the runs of a study. Pure: values and seeds are arguments.

The run is the unit: packets and flows of one run are not independent. Flow sizes have heavy tails, so quantiles are
estimated with intervals of order statistics, which hold for any continuous distribution and any number of runs
(David and Nagaraja, Order Statistics, 3rd edition, section 7.1); a mean has a bootstrap interval.
"""

import functools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LEVEL = 0.95
"""The confidence level that is aimed at."""

_RESAMPLES = 9999


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate with a confidence interval and the level that the interval has.

    With few runs the widest interval, from the least value to the greatest, has a lower level than was asked for:
    ``level`` says which. Of one run there is no interval: both bounds are the value, the level is 0.
    """

    value: float
    low: float
    high: float
    level: float
    runs: int

    def excludes(self, value: float) -> bool:
        """Whether a value is outside the interval, and the interval has at least the level aimed at."""
        return self.level >= LEVEL and not self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Paired:
    """Differences of two configurations with shared seeds: the second one less the baseline."""

    median: Estimate
    higher: int  # pairs in which the second one is higher
    lower: int


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile by linear interpolation between order statistics (type 7 of Hyndman and Fan 1996)."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    # of finite neighbours; never outside of them by rounding
    between = ordered[below] + (position - below) * (ordered[above] - ordered[below])
    return min(max(between, ordered[below]), ordered[above])


def quantile_estimate(values: Sequence[float], share: float = 0.5, level: float = LEVEL) -> Estimate:
    """A quantile with the narrowest interval of order statistics that has at least ``level``.

    The share of the distribution below the quantile being ``share``, the number of values below it is binomial. Each
    bound leaves at most half of 1 - level out on its side, if the number of values allows. Raises ValueError without
    values.
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    low, high = interval_ranks(len(ordered), share, level)
    return Estimate(
        value=quantile(ordered, share),
        low=ordered[low - 1],
        high=ordered[high - 1],
        level=coverage(len(ordered), share, low, high),
        runs=len(ordered),
    )


def interval_ranks(count: int, share: float, level: float = LEVEL) -> tuple[int, int]:
    """The ranks (from 1) of the order statistics that bound the interval of a quantile."""
    tail = (1 - level) / 2 + 1e-12  # of rounding
    below = _cumulated(count, share)  # P(at most k values are below the quantile)
    low = max((rank for rank in range(1, count + 1) if below[rank - 1] <= tail), default=1)
    high = min((rank for rank in range(low, count + 1) if 1 - below[rank - 1] <= tail), default=count)
    return low, max(low, high)


def coverage(count: int, share: float, low: int, high: int) -> float:
    """The probability that a quantile is between two order statistics; the level of that interval."""
    below = _cumulated(count, share)
    return 0.0 if low == high else below[high - 1] - below[low - 1]


def attainable_level(count: int, share: float = 0.5) -> float:
    """The highest level that an interval of order statistics has with ``count`` runs."""
    return coverage(count, share, 1, count) if count else 0.0


def least_runs(level: float = LEVEL, share: float = 0.5) -> int:
    """The least number of runs with which an interval of this level exists: 6 for a median at 95 %."""
    count = 2
    while attainable_level(count, share) < level:
        count += 1
    return count


@functools.cache
def _cumulated(count: int, share: float) -> tuple[float, ...]:
    terms = [math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(count + 1)]
    return tuple(min(1.0, math.fsum(terms[: k + 1])) for k in range(count + 1))


def paired_differences(baseline: Mapping[int, float], other: Mapping[int, float]) -> Paired | None:
    """Compare two configurations by their values of each seed; None if no seed is in both.

    A seed is the same load in both, so that what the load adds by chance is in both values and not in their difference.
    """
    differences = [other[seed] - baseline[seed] for seed in baseline if seed in other]
    if not differences:
        return None
    higher, lower = sum(each > 0 for each in differences), sum(each < 0 for each in differences)
    return Paired(quantile_estimate(differences), higher, lower)


def mean_estimate(values: Sequence[float], seed: int, level: float = LEVEL) -> Estimate:
    """The mean with a bootstrap interval over runs: bias-corrected and accelerated (Efron 1987).

    ``seed``: of the resampling. The level is the nominal one, which few runs of a heavy-tailed distribution do not
    reach; with fewer than three runs, or if no bound is finite, there is no interval.
    """
    mean = math.fsum(values) / len(values)
    if len(values) < 3:
        return Estimate(mean, min(values), max(values), 0.0, len(values))
    if min(values) == max(values):
        return Estimate(mean, mean, mean, level, len(values))
    import numpy as np
    from scipy import stats  # takes a second to load

    untyped: Any = stats
    with warnings.catch_warnings(action="ignore"):  # of an interval that is not finite
        found = untyped.bootstrap(
            (np.asarray(values),),
            np.mean,
            confidence_level=level,
            n_resamples=_RESAMPLES,
            method="BCa",
            rng=np.random.default_rng(seed),
        )
    interval = found.confidence_interval
    if not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return Estimate(mean, min(values), max(values), 0.0, len(values))
    return Estimate(mean, float(interval.low), float(interval.high), level, len(values))
