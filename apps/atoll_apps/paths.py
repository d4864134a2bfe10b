# SPDX-License-Identifier: Apache-2.0
"""Shortest ways between switches over the trunks."""

from collections import deque
from dataclasses import dataclass

from atoll.model.errors import PlanError
from atoll.model.network import Network, PortRef


@dataclass(frozen=True, slots=True)
class Hop:
    """One trunk crossed: the port a frame leaves by, and the port of the neighbour it arrives at."""

    out_port: int
    arrival: PortRef


class Fabric:
    """The switches of a network and the trunks between them.

    ``step`` depends on nothing but where a frame is and where it is going, so ways to one switch never part after they
    have met, and ties (rings, parallel trunks) are broken by the lowest port number: equal networks, equal ways.
    """

    def __init__(self, network: Network) -> None:
        self._hops: dict[str, list[Hop]] = {switch.name: [] for switch in network.switches}
        for trunk in network.trunks:
            self._hops[trunk.a.switch].append(Hop(trunk.a.port, trunk.b))
            self._hops[trunk.b.switch].append(Hop(trunk.b.port, trunk.a))
        for hops in self._hops.values():
            hops.sort(key=lambda hop: hop.out_port)
        self._towards: dict[str, dict[str, Hop]] = {}

    def step(self, at: str, towards: str) -> Hop:
        """The next trunk on a shortest way from switch ``at`` to another switch.

        Raises PlanError when no trunk leads there.
        """
        if towards not in self._towards:
            self._towards[towards] = self._first_hops(towards)
        try:
            return self._towards[towards][at]
        except KeyError:
            msg = f"no trunk leads from {at} to {towards}; connect the two switches in the lab's trunks"
            raise PlanError(msg) from None

    def _first_hops(self, towards: str) -> dict[str, Hop]:
        distance = {towards: 0}
        waiting = deque([towards])
        while waiting:
            switch = waiting.popleft()
            for hop in self._hops[switch]:
                if hop.arrival.switch not in distance:
                    distance[hop.arrival.switch] = distance[switch] + 1
                    waiting.append(hop.arrival.switch)
        return {
            switch: next(hop for hop in self._hops[switch] if distance[hop.arrival.switch] == steps - 1)
            for switch, steps in distance.items()
            if switch != towards
        }
