# SPDX-License-Identifier: Apache-2.0
"""Exact tests of pairs of runs with equal seeds, which hold for any distribution: difference and equivalence. Pure.

They are sign tests, as the intervals of median differences are: an interval of 95 % excludes 0 if, without equal pairs,
the p-value of a difference is at most 5 %.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from atoll_studies.statistics.estimates import Limits, Paired, as_limits


@dataclass(frozen=True, slots=True)
class Primary:
    """The figure that a study is made for."""

    figure: str
    margin: float | None  # deviation, as a share of the baseline, below which configurations are equivalent; None: none
    runs_before: int = 0  # completed attempts that the study had when it was named


def difference_p(paired: Paired) -> float:
    """The two-sided p-value of a median difference of 0; equal pairs, and those that are not known, are left out."""
    pairs = paired.higher + paired.lower
    return min(1.0, 2 * _at_least(max(paired.higher, paired.lower), pairs))


def equivalence_p(
    baseline: Mapping[int, float | Limits], other: Mapping[int, float | Limits], margin: float
) -> float | None:
    """The p-value of a median deviation from the baseline by ``margin`` or more, a share of the baseline's value.

    Two one-sided tests (Schuirmann 1987, Journal of Pharmacokinetics and Biopharmaceutics 15(6)): the deviation is
    below the margin in one direction, and in the other; the larger p-value is that of both. The margin of each pair is
    that of its own baseline value. A pair that is not known counts against equivalence. None: no seed is in both.
    """
    pairs = [(as_limits(baseline[seed]), as_limits(other[seed])) for seed in baseline if seed in other]
    if not pairs:
        return None
    not_lower = sum(after.least > before.most - margin * abs(before.most) for before, after in pairs)
    not_higher = sum(after.most < before.least + margin * abs(before.least) for before, after in pairs)
    return max(_at_least(count, len(pairs)) for count in (not_lower, not_higher))


def _at_least(successes: int, trials: int) -> float:
    """The probability of so many successes or more in fair trials."""
    from scipy.special import bdtrc  # takes a moment to load

    return 1.0 if successes == 0 else float(bdtrc(successes - 1, trials, 0.5))
