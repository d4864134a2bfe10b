# SPDX-License-Identifier: Apache-2.0
"""Two-level designs, and the main effects of factors with two levels.

Source: Box, Hunter and Hunter, Statistics for Experimenters, 2nd edition, chapters 5 and 6.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from atoll_studies.statistics.estimates import LEVEL, Estimate


def resolution_iv_design(factors: int) -> list[tuple[int, ...]]:
    """Return the runs of a two-level design of resolution IV: the level, 0 or 1, of each factor.

    A Hadamard matrix in Sylvester's order and its fold-over, so twice the least power of two that is not less than
    the number of factors. No main effect is confounded with another one, or with an interaction of two factors.
    """
    half = 1 << (factors - 1).bit_length()
    return [
        tuple(((row & column).bit_count() + folded) % 2 for column in range(factors))
        for folded in (0, 1)
        for row in range(half)
    ]


def is_orthogonal(levels: NDArray[np.int_]) -> bool:
    """Whether each factor has both levels equally often, and each pair of factors all four combinations.

    ``levels``: configurations x factors, 0 or 1.
    """
    signs = 2 * levels - 1
    return not signs.sum(axis=0).any() and not (signs.T @ signs - len(signs) * np.eye(signs.shape[1])).any()


def main_effects(levels: NDArray[np.int_], values: Sequence[Sequence[float]]) -> list[Estimate]:
    """Estimate for each factor the geometric mean at its second level relative to that at its first.

    ``levels``: configurations x factors, 0 or 1, orthogonal. ``values``: for each seed the positive figure of each
    configuration. Each seed has an effect of its own, so that the interval is that of Student's t over seeds: it also
    holds if the configurations of a seed share their load. Of one seed there is no interval.
    """
    from scipy.special import stdtrit

    contrasts = np.log(np.asarray(values)) @ (2 * levels - 1) * 2 / len(levels)  # seeds x factors
    by_seed = contrasts.round(12)  # sums of equal logarithms differ from 0 in the digits behind
    seeds = len(by_seed)
    middle = by_seed.mean(axis=0)
    half = np.zeros_like(middle)
    if seeds > 1:
        half = float(stdtrit(seeds - 1, (1 + LEVEL) / 2)) * by_seed.std(axis=0, ddof=1) / math.sqrt(seeds)
    level = LEVEL if seeds > 1 else 0.0
    ends = zip(*np.exp((middle, middle - half, middle + half)).tolist(), strict=True)
    return [Estimate(value, low, high, level, seeds) for value, low, high in ends]
