# SPDX-License-Identifier: Apache-2.0
"""What an ideal code leaves of the losses of a Gilbert chain, exactly, without the coder's own formula."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Chain:
    """Every packet is lost in the bad state and none in the good one; the chain moves at each packet."""

    loss: float  # share of packets
    burst: float  # mean number of packets lost in a row

    @property
    def to_good(self) -> float:
        return 1 / self.burst

    @property
    def to_bad(self) -> float:
        return self.to_good * self.loss / (1 - self.loss)

    def moves(self, distance: int) -> "np.ndarray[Any, np.dtype[np.float64]]":
        """Probabilities of the state of a packet ``distance`` later, a row for each state: good, bad."""
        kept = (1 - self.to_bad - self.to_good) ** distance
        return np.array([[1 - self.loss * (1 - kept), self.loss * (1 - kept)],
                         [(1 - self.loss) * (1 - kept), self.loss + (1 - self.loss) * kept]])  # fmt: skip


@dataclass(frozen=True, slots=True)
class Left:
    """What is left with a number of repair packets, which need not be whole: then of generations with either number."""

    failures: float  # share of generations that lose more packets than they have repair packets
    residual: float  # share of packets that stay lost


def left(chain: Chain, size: int, depth: int, repairs: float) -> Left:
    """What an ideal code (MDS) leaves: any ``size`` packets of a generation decode, and fewer recover nothing."""
    low = math.floor(repairs)
    part = repairs - low
    one = _left(chain, size, depth, low)
    if not part:
        return one
    other = _left(chain, size, depth, low + 1)
    return Left((1 - part) * one.failures + part * other.failures, (1 - part) * one.residual + part * other.residual)


def _left(chain: Chain, size: int, depth: int, repairs: int) -> Left:
    """The mean over the generations that take turns: they differ in what is sent between their last two packets."""
    turns = [_of_turn(chain, size, list(_distances(size, depth, repairs, turn))) for turn in range(depth)]
    return Left(sum(each.failures for each in turns) / depth, sum(each.residual for each in turns) / depth)


def _distances(size: int, depth: int, repairs: int, turn: int) -> Iterator[int]:
    """How far each packet of a generation is behind the one before. Repair packets follow the last packet at once."""
    for number in range(1, size):
        yield depth + (repairs * turn if number == size - 1 else 0)
    yield from [1] * repairs


def _of_turn(chain: Chain, size: int, distances: list[int]) -> Left:
    """Sum over all packets: ``probability[state, losses of sources, losses of repair packets]``."""
    repairs = len(distances) - (size - 1)
    probability = np.zeros((2, size + 1, repairs + 1))
    probability[:, 0, 0] = 1 - chain.loss, 0
    probability[1, 1, 0] = chain.loss
    for number, distance in enumerate(distances, 1):
        moves = chain.moves(distance)
        good, bad = np.tensordot(moves.T, probability, axes=1)
        probability[0] = good
        shifted = np.zeros_like(bad)
        if number < size:
            shifted[1:, :] = bad[:-1, :]
        else:
            shifted[:, 1:] = bad[:, :-1]
        probability[1] = shifted
    of_sources, of_repairs = np.indices(probability.shape[1:])
    fails = of_sources + of_repairs > repairs
    either = probability.sum(axis=0)
    return Left(float(either[fails].sum()), float((either * of_sources)[fails].sum()) / size)
