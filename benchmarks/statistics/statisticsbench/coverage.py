# SPDX-License-Identifier: Apache-2.0
"""The share of made-up studies whose interval contains the true value."""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import stdtrit

from atoll_studies.statistics.estimates import (
    LEAST_CONTROLLED,
    LEVEL,
    Estimate,
    controlled_mean,
    mean_estimate,
    paired_differences,
    quantile_estimate,
)
from statisticsbench.populations import CONTROLS, PAIRS, POPULATIONS, controls, pairs

RUNS = (6, 10, 20, 40)
SHARES = {"median": 0.5, "upper quartile": 0.75, "90th percentile": 0.9}
_RESAMPLES = 1999  # of BCa


@dataclass(frozen=True, slots=True)
class Covered:
    """Intervals of one kind from one population."""

    kind: str
    population: str
    runs: int
    intervals: int  # studies that had one
    level: float  # that the intervals say they have
    share: float  # of intervals that contain the true value
    width: float  # median


def by_quantiles(studies: int, index: int) -> Iterator[Covered]:
    """Medians and other quantiles of one population."""
    population = POPULATIONS[index]
    for kind, share in SHARES.items():
        for runs in RUNS:
            estimates = [quantile_estimate(values, share) for values in _drawn(studies, index, runs)]
            yield _summary(kind, population.name, runs, estimates, population.quantile(share))


def by_means(studies: int, index: int) -> Iterator[Covered]:
    """Means of one population by the method of results, and by two others."""
    population = POPULATIONS[index]
    methods: dict[str, Callable[[list[float]], Estimate]] = {
        "mean, bootstrap-t": partial(mean_estimate, seed=1),
        "mean, BCa": _bca,
        "mean, Student": _student,
    }
    for kind, method in methods.items():
        for runs in RUNS:
            estimates = [method(values) for values in _drawn(studies, index, runs)]
            yield _summary(kind, population.name, runs, estimates, population.mean)


def by_differences(studies: int, index: int) -> Iterator[Covered]:
    """Median differences of runs with equal seeds."""
    population = pairs(index)
    for runs in RUNS:
        random, medians = np.random.default_rng([index, runs]), list[Estimate]()
        for _ in range(studies):
            drawn: list[list[float]] = [each.tolist() for each in population.draw(random, runs)]
            if (paired := paired_differences(*(dict(enumerate(each)) for each in drawn))) is not None:
                medians.append(paired.median)
        yield _summary("median difference", population.name, runs, medians, population.difference)


def by_controls(studies: int, index: int) -> Iterator[Covered]:
    """Controlled means where the control is used, means of these studies without it, and what results show.

    Unlike in results the control is used with few runs, too.
    """
    population = controls(index)
    for runs in RUNS:
        random = np.random.default_rng([index, runs])
        used, plain, shown = list[Estimate](), list[Estimate](), list[Estimate]()
        for _ in range(studies):
            figures, known = population.draw(random, runs)
            mean = mean_estimate(figures.tolist(), seed=1)
            controlled = controlled_mean(figures, known, population.expectation, seed=1, least=3).estimate
            shown.append(controlled if controlled is not None and runs >= LEAST_CONTROLLED else mean)
            if controlled is not None:
                used.append(controlled)
                plain.append(mean)
        for kind, each in (("control, where used", used), ("the same without", plain), ("as results show", shown)):
            if each:
                yield _summary(kind, population.name, runs, each, population.mean)


COVERAGES: dict[str, tuple[Callable[[int, int], Iterator[Covered]], int]] = {
    "quantiles": (by_quantiles, len(POPULATIONS)),
    "means": (by_means, len(POPULATIONS)),
    "differences": (by_differences, PAIRS),
    "controls": (by_controls, CONTROLS),
}
"""Kinds of intervals with the number of their populations."""


def _drawn(studies: int, index: int, runs: int) -> Iterator[list[float]]:
    random = np.random.default_rng([index, runs])
    for _ in range(studies):
        yield POPULATIONS[index].draw(random, runs).tolist()


def _bca(values: list[float]) -> Estimate:
    """The bias-corrected and accelerated bootstrap (Efron 1987), which is scipy's."""
    untyped: Any = stats
    with warnings.catch_warnings(action="ignore"):  # of an interval that is not finite
        interval = untyped.bootstrap(
            (np.asarray(values),), np.mean, n_resamples=_RESAMPLES, method="BCa", rng=np.random.default_rng(1)
        ).confidence_interval
    level = LEVEL if math.isfinite(interval.low) and math.isfinite(interval.high) else 0.0
    return Estimate(fmean(values), float(interval.low), float(interval.high), level, len(values))


def _student(values: list[float]) -> Estimate:
    mean, runs = fmean(values), len(values)
    half = float(stdtrit(runs - 1, (1 + LEVEL) / 2) * np.std(values, ddof=1)) / math.sqrt(runs)
    return Estimate(mean, mean - half, mean + half, LEVEL, runs)


def _summary(kind: str, name: str, runs: int, estimates: list[Estimate], true: float) -> Covered:
    intervals = [each for each in estimates if each.level]
    share = sum(each.low <= true <= each.high for each in intervals) / len(intervals)
    width = median(each.high - each.low for each in intervals)
    return Covered(kind, name, runs, len(intervals), fmean(each.level for each in intervals), share, width)
