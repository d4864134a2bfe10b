# SPDX-License-Identifier: Apache-2.0
"""Sequential stopping against a fixed number of runs that guarantees the same half width."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from atoll_studies.statistics import LEVEL, coverage, interval_ranks, quantile_estimate
from atoll_studies.stopping import Reason, Stop, decide
from statisticsbench.populations import Population

CASES = (
    (Population("normal, 10 % standard deviation", lambda random, n: random.normal(10, 1, n), 10, 10), 0.1, 60),
    (Population("normal, 10 % standard deviation", lambda random, n: random.normal(10, 1, n), 10, 10), 0.05, 120),
    (Population("lognormal, sigma 0.3", lambda random, n: random.lognormal(0, 0.3, n), 1, 0), 0.1, 200),
    (Population("lognormal, sigma 1", lambda random, n: random.lognormal(0, 1, n), 1, 0), 0.3, 200),
    (Population("Pareto, index 1.1", lambda random, n: random.pareto(1.1, n), 2 ** (1 / 1.1) - 1, 0), 0.3, 300),
)


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


def stopped(studies: int) -> Iterator[Stopped]:
    """All cases, two at a time."""
    with ProcessPoolExecutor(2) as pool:
        yield from pool.map(partial(_case, studies), range(len(CASES)))


def _case(studies: int, number: int) -> Stopped:
    population, half_width, most = CASES[number]
    random = np.random.default_rng(number)
    stop = Stop("", half_width, 6, most, 2)
    runs, reached, covered, naive = list[int](), 0, 0, 0
    for _ in range(studies):
        values = population.draw(random, most).tolist()
        found = decide(stop, values, most)
        if found.estimate is None or not found.estimate.level:
            continue
        runs.append(found.repetitions)
        reached += found.reason is Reason.REACHED
        covered += found.estimate.low <= population.median <= found.estimate.high
        naive += _naive(values, stop, population.median)
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
    )


def _naive(values: list[float], stop: Stop, median: float) -> bool:
    """Whether the first narrow interval contains the median, if nothing corrects for the looks."""
    for runs in range(stop.least, stop.most + 1, stop.step):
        found = quantile_estimate(values[:runs])
        if (found.high - found.low) / 2 <= stop.half_width * found.value or runs == stop.most:
            return found.low <= median <= found.high
    return False


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
