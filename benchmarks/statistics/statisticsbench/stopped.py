# SPDX-License-Identifier: Apache-2.0
"""Sequential stopping against a fixed number of runs that guarantees the same half width."""

from dataclasses import dataclass

import numpy as np

from atoll_studies.statistics.estimates import LEVEL, coverage, interval_ranks, quantile_estimate
from atoll_studies.statistics.stopping import Reason, Stop, decide
from statisticsbench.populations import STOPPED, Population


@dataclass(frozen=True, slots=True)
class Stopped:
    """A rule on studies of one population."""

    population: str
    half_width: float
    most: int
    fixed: int | None  # least number of runs whose half width is small enough in 95 % of studies; None: above ``most``
    runs: float  # mean number when stopped
    runs_90: float  # that 90 % of studies do not exceed
    reached: float  # share of studies
    covered: float  # share of intervals that contain the median
    naive_covered: float  # likewise, stopped as soon as an interval of a fixed number of runs is narrow
    bonferroni_runs: float  # mean number if each look had its share of the error


def stopped(studies: int, number: int) -> Stopped:
    """Measure one of the cases STOPPED."""
    population, half_width, most = STOPPED[number]
    median = population.quantile(0.5)
    random = np.random.default_rng(number)
    stop = Stop("", half_width, 6, most, 2)
    looks = (most - stop.least) // stop.step + 1
    runs, bonferroni, reached, covered, naive = list[int](), list[int](), 0, 0, 0
    for _ in range(studies):
        values = population.draw(random, most).tolist()
        decision = decide(stop, values, most)
        runs.append(decision.repetitions)
        bonferroni.append(_first_narrow(values, stop, 1 - (1 - LEVEL) / looks)[0])
        reached += decision.reason is Reason.REACHED
        covered += decision.estimate is not None and decision.estimate.low <= median <= decision.estimate.high
        _, low, high = _first_narrow(values, stop, LEVEL)
        naive += low <= median <= high
    return Stopped(
        population=population.name,
        half_width=half_width,
        most=most,
        fixed=_fixed(population, half_width, most),
        runs=float(np.mean(runs)),
        runs_90=float(np.quantile(runs, 0.9)),
        reached=reached / studies,
        covered=covered / studies,
        naive_covered=naive / studies,
        bonferroni_runs=float(np.mean(bonferroni)),
    )


def _first_narrow(values: list[float], stop: Stop, level: float) -> tuple[int, float, float]:
    """The runs at the first look whose interval of this level, of a fixed number of runs, is narrow, and the bounds."""
    for runs in range(stop.least, stop.most + 1, stop.step):
        estimate = quantile_estimate(values[:runs], level=level)
        narrow = estimate.level >= level and (estimate.high - estimate.low) / 2 <= stop.half_width * estimate.value
        if narrow or runs == stop.most:
            return runs, estimate.low, estimate.high
    raise ValueError("no look")


def _fixed(population: Population, half_width: float, most: int) -> int | None:
    """The least fixed number of runs that guarantees the half width; who plans it must know the population."""
    random = np.random.default_rng(99)
    for runs in range(6, most + 1):
        low, high = interval_ranks(runs, 0.5)
        if coverage(runs, 0.5, low, high) < LEVEL:
            continue
        drawn = np.sort(population.draw(random, 2000 * runs).reshape(2000, runs), axis=1)
        narrow = (drawn[:, high - 1] - drawn[:, low - 1]) / 2 <= half_width * np.median(drawn, axis=1)
        if narrow.mean() >= LEVEL:
            return runs
    return None
