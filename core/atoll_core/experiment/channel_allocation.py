# SPDX-License-Identifier: Apache-2.0
"""Allocation of channels to island clients, by declared capacity.

The rule is Sainte-Laguë's (Webster's): the next channel goes to the client with the least (2 x given + 1) / capacity,
of several to the first. So channels per capacity are as even as whole channels allow, and equal capacities are served
in turn. More channels or a higher capacity never reduce a client's channels.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class ChannelAllocation:
    """The load of one island client. ``channels``: their number; with 0 no job is started there."""

    host: str
    capacity: float  # declared, relative to the other clients'
    channels: int


def allocate_channels(channels: int, capacities: Sequence[float]) -> tuple[tuple[int, ...], ...]:
    """Allocate channels 0 to ``channels`` - 1: the numbers of the channels of each client.

    Each capacity is above 0 and is taken as its shortest decimal text, so that 0.1 and 0.3 are exactly one to three.
    The client of channel c does not depend on the number of channels after it.
    """
    exact = [Fraction(str(capacity)) for capacity in capacities]
    common = math.lcm(*(capacity.numerator for capacity in exact))
    steps = [2 * common * capacity.denominator // capacity.numerator for capacity in exact]
    given: list[list[int]] = [[] for _ in capacities]
    # In halves of a step: (2 x given + 1) / capacity, times a number that makes all of them whole.
    due = [(step // 2, index) for index, step in enumerate(steps)]
    heapq.heapify(due)
    for channel in range(channels if capacities else 0):
        quotient, index = due[0]
        given[index].append(channel)
        heapq.heapreplace(due, (quotient + steps[index], index))
    return tuple(tuple(numbers) for numbers in given)
