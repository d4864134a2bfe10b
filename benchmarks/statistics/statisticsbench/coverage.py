# SPDX-License-Identifier: Apache-2.0
"""The share of made-up studies whose interval contains the true value."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from atoll_studies.statistics import Estimate, controlled_mean, mean_estimate, paired_differences, quantile_estimate
from statisticsbench.populations import CONTROLS, PAIRS, POPULATIONS, controls, pairs

RUNS = (6, 10, 20, 30)
KINDS = {"median": len(POPULATIONS), "mean": len(POPULATIONS), "difference": PAIRS, "control": CONTROLS}
"""Populations of each kind of interval."""


@dataclass(frozen=True, slots=True)
class Covered:
    """Intervals of one kind from one population."""

    kind: str
    population: str
    runs: int
    intervals: int  # studies that had one
    share: float  # of these that contain the true value
    width: float  # median


def coverages(studies: int, kinds: Sequence[str]) -> Iterator[Covered]:
    """All populations and numbers of runs, two at a time."""
    tasks = [(kind, index, runs, studies) for kind in kinds for index in range(KINDS[kind]) for runs in RUNS]
    with ProcessPoolExecutor(2) as pool:
        for found in pool.map(_covered, tasks):
            yield from found


def _covered(task: tuple[str, int, int, int]) -> list[Covered]:
    kind, index, runs, studies = task
    random = np.random.default_rng([index, runs])
    if kind == "control":
        return _controlled(index, runs, studies)
    name, true, found = "", 0.0, list[Estimate]()
    if kind == "difference":
        population = pairs(index)
        name, true = population.name, population.difference
        for _ in range(studies):
            drawn: list[list[float]] = [each.tolist() for each in population.draw(random, runs)]
            paired = paired_differences(*(dict(enumerate(each)) for each in drawn))
            if paired is not None:
                found.append(paired.median)
    else:
        source = POPULATIONS[index]
        name, true = source.name, source.median if kind == "median" else source.mean
        for _ in range(studies):
            values = source.draw(random, runs).tolist()
            found.append(quantile_estimate(values) if kind == "median" else mean_estimate(values, seed=1))
    return [_summary(kind, name, runs, found, true)]


def _controlled(index: int, runs: int, studies: int) -> list[Covered]:
    """Controlled means where the control is used, and the means of these studies without it."""
    population, random = controls(index), np.random.default_rng([index, runs])
    used, plain, reported = list[Estimate](), list[Estimate](), list[Estimate]()
    for _ in range(studies):
        figures, known = population.draw(random, runs)
        mean = mean_estimate(figures.tolist(), seed=1)
        found = controlled_mean(figures, known, population.expectation, seed=1).estimate
        reported.append(found or mean)
        if found is not None:
            used.append(found)
            plain.append(mean)
    kinds = (("control, where used", used), ("mean of the same studies", plain), ("control, else mean", reported))
    return [_summary(kind, population.name, runs, each, population.mean) for kind, each in kinds if each]


def _summary(kind: str, name: str, runs: int, found: list[Estimate], true: float) -> Covered:
    intervals = [each for each in found if each.level]
    share = sum(each.low <= true <= each.high for each in intervals) / len(intervals)
    width = float(np.median([each.high - each.low for each in intervals]))
    return Covered(kind, name, runs, len(intervals), share, width)
