# SPDX-License-Identifier: Apache-2.0
"""A/A studies: how often studies whose configurations are all alike conclude that some differ, or are equivalent.

A made-up study has four configurations and seven figures, of which the first one is primary with a margin of 5 %. Runs
of a seed share its load, and each has noise of its own. The figures of a run share half of their noise.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from atoll_core.holm import holm
from atoll_studies.results.conclusions import ERROR
from atoll_studies.statistics.estimates import paired_differences
from atoll_studies.statistics.sign_tests import difference_p, equivalence_p

CONFIGURATIONS, FIGURES = 4, 7
MARGIN = 0.05
NOISES = (0.02, 0.2)
"""Relative deviations of runs from their load."""
_RUNS = (6, 10, 20, 40)


@dataclass(frozen=True, slots=True)
class Alike:
    """A/A studies with the same number of runs of each configuration; shares of studies."""

    noise: float
    runs: int
    uncorrected: float  # in which any comparison differs by itself
    differ: float  # that conclude that some configuration differs in some figure, without a primary figure
    primary_differs: float  # that conclude that it differs in the primary one
    equivalent: float  # that conclude that all are equivalent to the baseline


def alike(studies: int, number: int) -> Iterator[Alike]:
    """Measure one of NOISES."""
    noise = NOISES[number]
    for runs in _RUNS:
        random = np.random.default_rng([number, runs])
        outcomes = np.array([_outcomes(_figures(random, runs, noise)) for _ in range(studies)])
        yield Alike(noise, runs, *outcomes.mean(axis=0).tolist())


def _figures(random: Any, runs: int, noise: float) -> Any:
    """By configuration, figure and run."""
    load = random.lognormal(0, 0.5, runs)
    own = random.normal(0, noise, (CONFIGURATIONS, FIGURES, runs))
    shared = random.normal(0, noise, (CONFIGURATIONS, 1, runs))
    return load * (1 + (own + shared) / np.sqrt(2))


def _outcomes(figures: Any) -> tuple[bool, bool, bool, bool]:
    values: list[list[list[float]]] = figures.tolist()
    baseline, *others = ([dict(enumerate(figure)) for figure in by_figure] for by_figure in values)
    pairs = [(before, after) for other in others for before, after in zip(baseline, other, strict=True)]
    paired = [each for before, after in pairs if (each := paired_differences(before, after))]
    p_values = [difference_p(each) for each in paired]
    margins = [p for other in others if (p := equivalence_p(baseline[0], other[0], MARGIN)) is not None]
    return (
        min(p_values) <= ERROR,
        min(holm(p_values)) <= ERROR,
        min(holm(p_values[::FIGURES])) <= ERROR,
        max(holm(margins)) <= ERROR,
    )
