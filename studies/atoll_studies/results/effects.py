# SPDX-License-Identifier: Apache-2.0
"""The main effects of a study whose factors have two levels each, on a log scale."""

import math
from dataclasses import dataclass

import numpy as np

from atoll_studies.results.results import Results
from atoll_studies.statistics.estimates import Estimate
from atoll_studies.statistics.screening import is_orthogonal, main_effects


@dataclass(frozen=True, slots=True)
class MainEffect:
    """A figure at the second level of a factor relative to that at the first, over all levels of the others."""

    figure: str
    factor: str
    first_level: str
    second_level: str
    ratio: Estimate  # runs: the number of seeds

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes 1."""
        return bool(self.ratio.level) and not self.ratio.low <= 1 <= self.ratio.high


def effects(results: Results) -> list[MainEffect]:
    """The main effects on the figures shown, the largest of each figure first.

    Empty if a factor has other than two levels, there is one factor, or the design is not orthogonal. A figure has
    effects over the seeds of which every configuration measured it exactly and above zero; without such seeds none.
    """
    listed = [tuple(dict.fromkeys(own[factor] for own in results.configurations)) for factor in results.factors]
    if len(listed) < 2 or any(len(levels) != 2 for levels in listed):
        return []
    indices = [
        [levels.index(own[factor]) for factor, levels in zip(results.factors, listed, strict=True)]
        for own in results.configurations
    ]
    design = np.array(indices)
    if not is_orthogonal(design):
        return []
    all_effects: list[MainEffect] = []
    for figure in results.shown:
        if values := _values_by_seed(results, figure):
            ratios = main_effects(design, values)
            of_figure = [
                MainEffect(figure, factor, first, second, ratio)
                for factor, (first, second), ratio in zip(results.factors, listed, ratios, strict=True)
            ]
            all_effects += sorted(of_figure, key=lambda effect: -abs(math.log(effect.ratio.value)))
    return all_effects


def _values_by_seed(results: Results, figure: str) -> list[list[float]]:
    """The values of all configurations, of each seed of which all are exact and above zero."""
    by_configuration = [results.values(number, figure) for number in range(len(results.configurations))]
    rows = ([own.get(seed) for own in by_configuration] for seed in results.seeds)
    return [
        [value.least for value in row if value]
        for row in rows
        if all(value is not None and value.is_exact and value.least > 0 for value in row)
    ]
