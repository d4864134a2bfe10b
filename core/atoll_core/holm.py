# SPDX-License-Identifier: Apache-2.0
"""Several tests at one level."""

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct the p-values of a family of tests, in their order.

    Of all tests whose corrected value is below a level, one is a false alarm with at most this probability, however the
    tests depend on each other (Holm 1979, Scandinavian Journal of Statistics 6(2)).
    """
    corrected = [1.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected
