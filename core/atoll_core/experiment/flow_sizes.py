# SPDX-License-Identifier: Apache-2.0
"""Flow-size distributions as knots of their quantile functions, as the programs on the hosts draw from them.

A *curve* runs through its knots: between two of them the logarithm of the size is linear in the probability. *Steps*
are recorded sizes: the sizes of the knots alone, each with the probability from the knot before.
hosts/crates/flow-sizes has the same two kinds, and guarantees that a seed always draws the same sizes.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any

SCALE = 10**9
"""Probabilities of knots are whole numbers of 10^-9."""

SIZE_MAX_BYTES = 2**53
MAX_STEPS = 1000
"""More sizes than this are merged: a plan has the distribution once for each host with channels."""

PUBLISHED = "published"

Knot = tuple[int, int]  # (cumulative probability in 10^-9, bytes)


class Interpolation(StrEnum):
    """The interpolation between two knots."""

    CURVE = "curve"
    STEPS = "steps"


@dataclass(frozen=True, slots=True)
class FlowSizes:
    """A distribution of flow sizes. ``name`` is not compared."""

    name: str = field(compare=False)
    kind: Interpolation
    knots: tuple[Knot, ...]

    @property
    def config(self) -> str | dict[str, Any]:
        """The distribution in a job's configuration (docs/contracts.md)."""
        if self == published():
            return PUBLISHED
        return {"kind": self.kind.value, "knots": [list(knot) for knot in self.knots]}

    def quantile(self, probability: float) -> float:
        """The size in bytes that this share of the flows, 0 to 1, does not exceed."""
        cumulative = min(max(probability, 0.0), 1.0) * SCALE
        index = min(bisect_right(self.knots, cumulative, key=lambda knot: knot[0]), len(self.knots) - 1)
        if self.kind is Interpolation.STEPS:
            return float(self.knots[index][1])
        (low_share, low), (high_share, high) = self.knots[index - 1], self.knots[index]
        return low * (high / low) ** ((cumulative - low_share) / (high_share - low_share))

    def share_up_to(self, size: float) -> float:
        """The share of flows no larger than ``size`` bytes."""
        return self._share_and_mean_up_to(size)[0]

    @property
    def mean_bytes(self) -> float:
        """The mean size."""
        return self._share_and_mean_up_to(math.inf)[1]

    @property
    def min_bytes(self) -> int:
        """The smallest size."""
        return self.knots[0][1]

    @property
    def max_bytes(self) -> int:
        """The largest size."""
        return self.knots[-1][1]

    def bytes_share_up_to(self, size: float) -> float:
        """The share of all bytes that flows no larger than ``size`` carry."""
        return self._share_and_mean_up_to(size)[1] / self.mean_bytes

    def capped_mean(self, cap: float) -> float:
        """The mean size if all larger flows had ``cap`` bytes."""
        share, mean = self._share_and_mean_up_to(cap)
        return mean + (1 - share) * cap

    def pro_rated(self, floor: int) -> "FlowSizes":
        """The same bytes in fewer connections: flows smaller than ``floor`` are merged to connections of that size.

        One connection then represents several recorded flows, each smaller than a TCP handshake. Probability p at size
        s < ``floor`` becomes p * s / ``floor`` at size ``floor``; then all probabilities are scaled to a sum of 1.
        """
        if floor <= self.min_bytes:
            return self
        small_share, small_bytes = self._share_and_mean_up_to(floor)
        merged = small_bytes / floor
        scale = 1 / (merged + 1 - small_share)
        larger = [((merged + p / SCALE - small_share) * scale, size) for p, size in self.knots if size > floor]
        first_knot = [(0.0, floor)] if self.kind is Interpolation.CURVE else []
        return FlowSizes(self.name, self.kind, _rounded([*first_knot, (merged * scale, floor), *larger]))

    def _share_and_mean_up_to(self, size: float) -> tuple[float, float]:
        """The share of flows no larger than ``size``, and their contribution to the mean."""
        share = mean = 0.0
        for width, low, high in self._segments():
            if low > size or (low == size < high):
                break
            if high <= size:
                share += width
                mean += width * _mean_between(low, high)
            else:
                part = width * math.log(size / low) / math.log(high / low)
                return share + part, mean + part * _mean_between(low, size)
        return share, mean

    def _segments(self) -> Iterator[tuple[float, float, float]]:
        """Probability, least and largest size between one knot and the next."""
        if self.kind is Interpolation.STEPS:
            for (previous, _), (p, size) in pairwise([(0, 0), *self.knots]):
                yield (p - previous) / SCALE, size, size
        else:
            for (low_p, low), (high_p, high) in pairwise(self.knots):
                yield (high_p - low_p) / SCALE, low, high


def published() -> FlowSizes:
    """The built-in distribution, fitted to published figures; hosts/crates/flow-sizes describes the fit."""
    return FlowSizes(PUBLISHED, Interpolation.CURVE, _PUBLISHED)


def fixed(name: str, size: int) -> FlowSizes:
    """Every flow of the same size."""
    return FlowSizes(name, Interpolation.STEPS, ((SCALE, size),))


def from_counts(name: str, counts: Mapping[int, float]) -> FlowSizes:
    """The distribution of flows that were counted by size, or weighted.

    Beyond MOST_STEPS sizes, neighbours are merged to their mean: sizes change by some per cent at most, small ones not
    at all, and the mean of all is kept.
    """
    total = sum(counts.values())
    sizes = sorted(size for size, weight in counts.items() if weight > 0)
    cumulative = 0.0
    steps: list[tuple[float, int]] = []
    for group in _groups(sizes):
        weight = sum(counts[size] for size in group)
        cumulative += weight
        steps.append((cumulative / total, round(sum(size * counts[size] for size in group) / weight)))
    return FlowSizes(name, Interpolation.STEPS, _rounded(steps))


def curve(name: str, quantiles: Iterable[tuple[float, int]]) -> FlowSizes:
    """The distribution through quantiles from 0 to 1, in ascending order."""
    return FlowSizes(name, Interpolation.CURVE, _rounded(quantiles))


_PUBLISHED: tuple[Knot, ...] = (
    (0, 40),
    (250_000_000, 120),
    (500_000_000, 400),
    (750_000_000, 2_500),
    (900_000_000, 12_000),
    (950_000_000, 40_000),
    (990_000_000, 175_000),
    (999_000_000, 3_000_000),
    (999_890_000, 40_000_000),
    (999_950_000, 110_000_000),
    (999_980_000, 360_000_000),
    (SCALE, 900_000_000),
)


def _mean_between(low: float, high: float) -> float:
    return (high - low) / math.log(high / low) if high > low else low


def _rounded(points: Iterable[tuple[float, int]]) -> tuple[Knot, ...]:
    """Knots with whole probabilities, the last one 1; of knots with equal probability the largest is kept."""
    knots: list[Knot] = []
    for probability, size in points:
        cumulative = round(probability * SCALE)
        if knots and cumulative <= knots[-1][0] and knots[-1][0] > 0:
            knots.pop()
        knots.append((cumulative, size))
    knots[-1] = (SCALE, knots[-1][1])
    return tuple(knots)


def _groups(sizes: list[int]) -> Iterator[list[int]]:
    """Groups of neighbouring sizes: each size alone if there are few enough, else those within some per cent."""
    if len(sizes) <= MAX_STEPS:
        yield from ([size] for size in sizes)
        return
    ratio = 1.001
    while (groups := _groups_by_ratio(sizes, ratio)) and len(groups) > MAX_STEPS:
        ratio = ratio**1.5
    yield from groups


def _groups_by_ratio(sizes: list[int], ratio: float) -> list[list[int]]:
    groups: list[list[int]] = []
    for size in sizes:
        if groups and size <= groups[-1][0] * ratio:
            groups[-1].append(size)
        else:
            groups.append([size])
    return groups
