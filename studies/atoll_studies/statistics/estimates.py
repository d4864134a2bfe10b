# SPDX-License-Identifier: Apache-2.0
"""Statistics over the runs of a study. Pure: values and seeds are arguments.

The run is the unit: packets and flows of one run are not independent. Flow sizes have heavy tails, so quantiles are
estimated with intervals of order statistics, which hold for any continuous distribution and any number of runs
(David and Nagaraja, Order Statistics, 3rd edition, section 7.1); a mean has a bootstrap interval, and a second one with
a control variate. ``benchmarks/statistics`` measures how often these intervals contain the true value.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

LEVEL = 0.95
"""The confidence level that is aimed at."""

LEAST_SAMPLES = 3
"""Of two runs a median says no more than the two do."""

_RESAMPLES = 3999


class Limits(NamedTuple):
    """A number, or the limits between which it is: the time of a transfer that did not finish has no upper one."""

    least: float
    most: float

    @property
    def is_exact(self) -> bool:
        """Whether the number is known."""
        return self.least == self.most

    @property
    def sign(self) -> str:
        """``=``; ``>``: greater than ``finite``; ``<``: less than it; ``~``: between finite limits; ``?``: none."""
        if self.is_exact:
            return "="
        return {(True, True): "~", (True, False): ">", (False, True): "<", (False, False): "?"}[
            math.isfinite(self.least), math.isfinite(self.most)
        ]

    @property
    def finite(self) -> float | None:
        """The number, or the lower limit, or without one the upper limit; None: there is neither."""
        return next((end for end in self if math.isfinite(end)), None)


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate with a confidence interval and the level that the interval has.

    With few runs the widest interval, from the least value to the greatest, has a lower level than requested:
    ``level`` says which. Of one run there is no interval: both bounds are the value, the level is 0. If not all values
    are known exactly, ``value``, ``low`` and ``high`` are lower limits, and ``most`` has the upper ones.
    """

    value: float
    low: float
    high: float
    level: float
    runs: int
    most: tuple[float, float, float] | None = None

    @property
    def limits(self) -> tuple[Limits, Limits, Limits]:
        """The limits of value, low and high."""
        least = (self.value, self.low, self.high)
        value, low, high = (Limits(*ends) for ends in zip(least, self.most or least, strict=True))
        return value, low, high


def as_limits(value: float | Limits) -> Limits:
    """A number as limits that it equals."""
    return value if isinstance(value, Limits) else Limits(value, value)


def limited(estimate: Callable[[Sequence[float]], Estimate], values: Sequence[float | Limits]) -> Estimate:
    """An estimate by ranks of values that are not all known exactly.

    It does not fall when a value grows, so that the limits of the values give its own.
    """
    limits = [as_limits(value) for value in values]
    least, most = (estimate([ends[end] for ends in limits]) for end in (0, 1))
    return least if least == most else replace(least, most=(most.value, most.low, most.high))


@dataclass(frozen=True, slots=True)
class Paired:
    """Differences of two configurations with shared seeds: the second one less the baseline."""

    median: Estimate
    higher: int  # pairs in which the second one is higher
    lower: int
    equal: int


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile by linear interpolation between order statistics (type 7 of Hyndman and Fan 1996)."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    if below == position or math.isinf(ordered[below]):
        return ordered[below]
    if math.isinf(ordered[above]):
        return ordered[above]
    # of finite neighbours; never outside of them by rounding
    interpolated = ordered[below] + (position - below) * (ordered[above] - ordered[below])
    return min(max(interpolated, ordered[below]), ordered[above])


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


def paired_differences(baseline: Mapping[int, float | Limits], other: Mapping[int, float | Limits]) -> Paired | None:
    """Compare two configurations by their values of each seed; None if no seed is in both.

    A seed is the same load in both, so that what the load adds by chance is in both values and not in their difference.
    If neither value of a pair has an upper limit, their difference has no limit at all.
    """
    pairs = differences(baseline, other)
    if not pairs:
        return None
    return Paired(
        limited(quantile_estimate, pairs),
        higher=sum(difference.least > 0 for difference in pairs),
        lower=sum(difference.most < 0 for difference in pairs),
        equal=sum(difference == (0, 0) for difference in pairs),
    )


def differences(baseline: Mapping[int, float | Limits], other: Mapping[int, float | Limits]) -> list[Limits]:
    """The differences from the baseline of the seeds in both."""
    pairs = [(as_limits(baseline[seed]), as_limits(other[seed])) for seed in baseline if seed in other]
    return [Limits(after.least - before.most, after.most - before.least) for before, after in pairs]


def mean_estimate(values: Sequence[float], seed: int, level: float = LEVEL) -> Estimate:
    """The mean with a bootstrap-t interval over runs.

    Efron and Tibshirani 1993, An Introduction to the Bootstrap, section 12.5. ``seed``: of the resampling. The level is
    the nominal one, which few runs of a heavy-tailed distribution do not reach; with fewer than three runs, or if a
    bound is not finite, there is no interval.
    """
    runs = len(values)
    mean = math.fsum(values) / runs
    if runs >= 3 and min(values) == max(values):
        return Estimate(mean, mean, mean, level, runs)
    if runs >= 3:
        sample = np.asarray(values, float)
        interval = _bootstrap_t(*_mean_and_error(sample), *_mean_and_error(sample[_resampled(runs, seed)]), level)
        if interval is not None:
            return Estimate(mean, *interval, level, runs)
    return Estimate(mean, min(values), max(values), 0.0, runs)


LEAST_CONTROLLED = 20
"""Runs from which on a control variate is used: its slope and its interval are estimated from the same runs.

With 10 runs the intervals of correlated figures contain the mean in 79 to 96 % of made-up studies, with 20 in 91 to
97 % (docs/benchmarks.md).
"""


@dataclass(frozen=True, slots=True)
class Controlled:
    """A mean that is corrected by a control variate; ``estimate`` None: the control is not used.

    It is used from LEAST_CONTROLLED runs on, if the correlation is beyond ``least_correlation``: below it a
    correlation of zero cannot be excluded at the level aimed at, and the correction would only add noise.
    """

    estimate: Estimate | None
    correlation: float  # of the figure with the control; 0 if one of them does not vary
    least_correlation: float  # without sign


def controlled_mean(
    values: Sequence[float],
    controls: Sequence[float],
    expectation: float,
    seed: int,
    level: float = LEVEL,
    least: int = LEAST_CONTROLLED,
) -> Controlled:
    """The mean at the control's known ``expectation``, by regression of the figure on the control over runs.

    Regression estimator of Lavenberg and Welch 1981 (Management Science 27(3)) with a bootstrap-t interval over runs in
    place of their t interval, which supposes that figure and control are jointly normal. ``least``: runs from which on
    the control is used, at least three. Raises ValueError if there are not as many controls as values.
    """
    figures, control = np.asarray(values, float), np.asarray(controls, float)
    if len(figures) != len(control):
        raise ValueError(f"{len(figures)} values and {len(control)} controls")
    runs = len(figures)
    least_correlation = _least_correlation(runs, level) if runs > 2 else 1.0
    if runs < 3 or np.ptp(figures) == 0 or np.ptp(control) == 0:
        return Controlled(None, 0.0, least_correlation)
    correlation = float(np.corrcoef(figures, control)[0, 1])
    if runs < least or abs(correlation) < least_correlation:
        return Controlled(None, correlation, least_correlation)
    mean, error = _corrected(figures, control, expectation)
    indices = _resampled(runs, seed)
    interval = _bootstrap_t(mean, error, *_corrected(figures[indices], control[indices], expectation), level)
    estimate = None if interval is None else Estimate(float(mean), *interval, level, runs)
    return Controlled(estimate, correlation, least_correlation)


def _least_correlation(runs: int, level: float) -> float:
    """The least correlation of ``runs`` pairs that excludes zero: the t test of Fisher 1915."""
    from scipy.special import stdtrit  # takes a moment to load

    t = float(stdtrit(runs - 2, (1 + level) / 2))
    return t / math.sqrt(runs - 2 + t * t)


@functools.lru_cache(maxsize=4)
def _resampled(count: int, seed: int) -> Any:
    """Rows of indices, drawn with replacement."""
    return np.random.default_rng(seed).integers(0, count, (_RESAMPLES, count))


def _mean_and_error(samples: Any) -> tuple[Any, Any]:
    """Of each row: its mean and the standard error of it."""
    return samples.mean(-1), samples.std(-1, ddof=1) / math.sqrt(samples.shape[-1])


def _corrected(figures: Any, controls: Any, expectation: float) -> tuple[Any, Any]:
    """Of each row: the regression line at the control's expectation, and the standard error of this point of it."""
    runs = figures.shape[-1]
    figure_mean, control_mean = figures.mean(-1, keepdims=True), controls.mean(-1, keepdims=True)
    deviation = controls - control_mean
    spread = (deviation**2).sum(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):  # rows whose controls are all the same one
        slope = (deviation * (figures - figure_mean)).sum(-1, keepdims=True) / spread
        residual = ((figures - figure_mean - slope * deviation) ** 2).sum(-1, keepdims=True) / (runs - 2)
        error = np.sqrt(residual * (1 / runs + (control_mean - expectation) ** 2 / spread))
    return (figure_mean - slope * (control_mean - expectation))[..., 0], error[..., 0]


def _bootstrap_t(value: float, error: float, resampled: Any, errors: Any, level: float) -> tuple[float, float] | None:
    """The interval by quantiles of (resampled - value) / its error; None: a bound is not finite.

    A row without an error, as all its values are the same, counts against both bounds.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = (resampled - value) / errors
    usable = np.isfinite(ratios) & (errors > 0)
    tail = (1 - level) / 2
    least = np.quantile(np.where(usable, ratios, -np.inf), tail, method="inverted_cdf")
    most = np.quantile(np.where(usable, ratios, np.inf), 1 - tail, method="inverted_cdf")
    low, high = float(value - most * error), float(value - least * error)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None
