# SPDX-License-Identifier: Apache-2.0
"""Which island client gets which channels: dealt out by declared capacity. Pure.

The rule is Sainte-Laguë's (Webster's): the next channel goes to the client whose (2 x given + 1) / capacity is least,
the first in order of those. Channels per capacity are then as even as whole channels allow, equal capacities are served
in turn, and neither more channels nor more capacity ever takes a channel away from a client.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class ChannelAllocation:
    """How much of the load one island client carries. ``channels``: how many of them; 0: nothing is started there."""

    host: str
    capacity: float  # declared, relative to the other clients'
    channels: int


def allocate_channels(channels: int, capacities: Sequence[float]) -> tuple[tuple[int, ...], ...]:
    """The numbers of the channels that each client gets, of channels 0 to ``channels`` - 1.

    Each capacity is above 0 and means the decimal that is its shortest text, so that 0.1 and 0.3 are exactly one to
    three. Channel c goes to the same client however many follow it.
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
