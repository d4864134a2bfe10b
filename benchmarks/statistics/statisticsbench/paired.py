# SPDX-License-Identifier: Apache-2.0
"""Widths of intervals of differences, paired by seed and not, of a study whose runs are there."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtrit

from atoll_studies.results.results import Results, read_results
from atoll_studies.statistics.estimates import coverage, interval_ranks
from atoll_studies.study_directory import StudyDirectory


@dataclass(frozen=True, slots=True)
class Widths:
    """A figure of two configurations with shared seeds. Ratios: unpaired to paired width, both at 95 %."""

    figure: str
    pairs: int
    correlation: float
    of_means: float  # Student's t intervals (Welch) of the difference of means
    of_ranks: float  # Hodges and Lehmann's shift: of Mann and Whitney, and of Wilcoxon's signed ranks
    of_medians: float  # the shift of Mann and Whitney, and the median difference that results have


def widths(directory: Path) -> list[Widths]:
    """The shown figures of the first two configurations of a study. Raises RunDirError."""
    return list(_widths(read_results(StudyDirectory(directory))))


def _widths(results: Results) -> Iterator[Widths]:
    for figure in results.shown:
        one, two = results.values(0, figure), results.values(1, figure)
        seeds = sorted(seed for seed in one.keys() & two.keys() if one[seed].is_exact and two[seed].is_exact)
        if len(seeds) < 6:
            continue
        first, second = (np.array([each[seed].least for seed in seeds]) for each in (one, two))
        count = len(seeds)
        paired = stdtrit(count - 1, 0.975) * (second - first).std(ddof=1) / math.sqrt(count)
        errors = first.var(ddof=1) / count, second.var(ddof=1) / count
        freedom = sum(errors) ** 2 / (sum(each**2 for each in errors) / (count - 1))
        unpaired = stdtrit(freedom, 0.975) * math.sqrt(sum(errors))
        yield Widths(
            figure,
            count,
            float(np.corrcoef(first, second)[0, 1]),
            float(unpaired / paired),
            _shift_width(first, second) / _signed_rank_width(second - first),
            _shift_width(first, second) / _median_width(second - first),
        )


def _median_width(differences: Any) -> float:
    low, high = interval_ranks(len(differences), 0.5)
    ordered = np.sort(differences)
    # scaled to 95 %, as the levels of order statistics come in steps
    level = coverage(len(differences), 0.5, low, high)
    return float((ordered[high - 1] - ordered[low - 1]) * ndtri(0.975) / ndtri((1 + level) / 2))


def _signed_rank_width(differences: Any) -> float:
    """The interval of the centre of symmetric differences (Hollander, Wolfe, Chicken, 3rd edition, section 3.3)."""
    count = len(differences)
    above, below = np.triu_indices(count)
    ordered = np.sort((differences[above] + differences[below]) / 2)
    deviation = math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
    rank = max(1, math.floor(count * (count + 1) / 4 + 0.5 - ndtri(0.975) * deviation))
    return float(ordered[-rank] - ordered[rank - 1])


def _shift_width(first: Any, second: Any) -> float:
    """The interval of a shift between independent samples (Hollander, Wolfe, Chicken, 3rd edition, section 4.3)."""
    ordered = np.sort(np.subtract.outer(second, first).ravel())
    count = len(first)
    deviation = math.sqrt(count * count * (2 * count + 1) / 12)
    rank = max(1, math.floor(count * count / 2 + 0.5 - ndtri(0.975) * deviation))
    return float(ordered[-rank] - ordered[rank - 1])
