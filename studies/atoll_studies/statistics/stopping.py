# SPDX-License-Identifier: Apache-2.0
"""The number of repetitions of a combination: sequential stopping by the width of a median's interval. Pure.

Narrow intervals are also found by chance. A rule that stops at the first narrow interval of 95 % therefore misses the
median in more than 5 % of studies. Here the intervals of all looks hold together (repeated confidence intervals,
Jennison and Turnbull 1989, J. Royal Statistical Society B 51(3)): the probability that any of them misses the median is
at most 5 %, for any continuous distribution.

The number of values below the median is a random walk whose steps are fair coins. An interval of order statistics
misses the median when this walk is beyond its rank, so that the probability of a first miss at each look is computed
exactly. At a look after n of at most N runs, n/N of the 5 % may have been spent (spending function of Lan and DeMets
1983, Biometrika 70(3), with exponent 1): the numbers at which looks happen need not be known beforehand.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from atoll_studies.statistics.estimates import LEVEL, Estimate, Limits, limited, quantile

_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Stop:
    """The rule of a study: repetitions until the median of a figure is known well enough."""

    figure: str
    half_width: float  # share of the median
    least: int  # repetitions before the first look
    most: int
    step: int  # repetitions from one look to the next


class Reason(StrEnum):
    """Why a combination has the number of repetitions that it has."""

    REACHED = "half width reached"
    MOST = "most repetitions made"
    OPEN = "more repetitions needed"


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of the looks at a combination."""

    repetitions: int  # that it takes, as far as is known
    reason: Reason
    estimate: Estimate | None  # of the last look; None: no look, or no value

    @property
    def half_width(self) -> float | None:
        """The half width of the last interval, as a share of the median; None: there is none."""
        estimate = self.estimate
        if estimate is None or not estimate.level:
            return None
        width = (estimate.limits[2].most - estimate.low) / 2
        if not math.isfinite(width) or not estimate.limits[0].is_exact:
            return None
        return width / abs(estimate.value) if estimate.value else (0.0 if not width else None)


def decide(stop: Stop, values: Sequence[float | Limits | None], ended: int) -> Decision:
    """Replay the looks at a combination.

    ``values``: of the figure, by repetition; None: the run is not usable, or did not measure it. ``ended``: the number
    of first repetitions to which no run will be added. Looks use the repetitions before them and no others, so the
    result does not depend on the order in which runs ended, nor on interruptions.
    """
    looks: list[int] = []
    decision = Decision(min(stop.least, stop.most), Reason.OPEN, None)
    while ended >= decision.repetitions:
        measured = [value for value in values[: decision.repetitions] if value is not None]
        looks.append(len(measured))
        median = functools.partial(repeated_median, looks=looks, most=stop.most)
        estimate = limited(median, measured) if measured else None
        decision = Decision(decision.repetitions, Reason.OPEN, estimate)
        if decision.half_width is not None and decision.half_width <= stop.half_width:
            return Decision(decision.repetitions, Reason.REACHED, estimate)
        if decision.repetitions == stop.most:
            return Decision(stop.most, Reason.MOST, estimate)
        decision = Decision(min(decision.repetitions + stop.step, stop.most), Reason.OPEN, estimate)
    return decision


def repeated_median(values: Sequence[float], looks: Sequence[int], most: int, level: float = LEVEL) -> Estimate:
    """The median at the last of several looks, with the interval that holds together with those of the others.

    ``looks``: the number of values at each look, the last one that of ``values``. While no interval has this level,
    both bounds are the extremes and the level is 0.
    """
    ordered = sorted(values)
    rank = repeated_ranks(tuple(looks), most, level)[-1]
    value = quantile(ordered, 0.5)
    if not rank:
        return Estimate(value, ordered[0], ordered[-1], 0.0, len(ordered))
    return Estimate(value, ordered[rank - 1], ordered[-rank], level, len(ordered))


@functools.cache
def repeated_ranks(looks: tuple[int, ...], most: int, level: float = LEVEL) -> tuple[int, ...]:
    """The rank (from 1) of the lower bound at each look; the upper bound has the same rank from above. 0: no interval.

    The intervals of all looks contain the median with a probability of at least ``level``, if there are at most
    ``most`` values.
    """
    paths = [1.0]  # probability that so many values are below the median, and no interval has missed it
    spent_probability = 0.0
    ranks: list[int] = []
    for look in looks:
        for _ in range(look - len(paths) + 1):
            paths = [(below + same) / 2 for below, same in zip([0.0, *paths], [*paths, 0.0], strict=True)]
        allowed = (1 - level) * min(1.0, look / most) + _ROUNDING
        rank = 0
        while rank < (look + 1) // 2 and spent_probability + paths[rank] + paths[look - rank] <= allowed:
            spent_probability += paths[rank] + paths[look - rank]
            paths[rank] = paths[look - rank] = 0.0
            rank += 1
        ranks.append(rank)
    return tuple(ranks)
