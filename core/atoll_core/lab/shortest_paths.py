# SPDX-License-Identifier: Apache-2.0
"""Shortest paths between switches over the trunks."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from atoll_core.errors import PlanError
from atoll_core.lab.network import Network, Trunk
from atoll_core.lab.port_ref import PortRef


@dataclass(frozen=True, slots=True)
class TrunkHop:
    """One trunk crossed: the port a frame leaves by, and the port of the neighbour it arrives at."""

    out: PortRef
    arrival: PortRef


class Topology:
    """Switches and the trunks between them.

    The next hop depends on a frame's present switch and destination alone, so paths to one switch never split after
    they have joined. Ties (rings, parallel trunks) go to the lowest port number: equal networks have equal paths.
    """

    @classmethod
    def of(cls, network: Network) -> "Topology":
        """The topology of a whole network."""
        return cls((switch.name for switch in network.switches), network.trunks)

    def __init__(self, switches: Iterable[str], trunks: Iterable[Trunk]) -> None:
        self._hops: dict[str, list[TrunkHop]] = {switch: [] for switch in switches}
        for trunk in trunks:
            self._hops[trunk.a.switch].append(TrunkHop(trunk.a, trunk.b))
            self._hops[trunk.b.switch].append(TrunkHop(trunk.b, trunk.a))
        for hops in self._hops.values():
            hops.sort(key=lambda hop: hop.out.port)
        self._hops_by_target: dict[str, dict[str, TrunkHop]] = {}

    def find_next_hop(self, switch: str, destination: str) -> TrunkHop | None:
        """The next trunk on a shortest path from one switch to another; None when there is no path."""
        if destination not in self._hops_by_target:
            self._hops_by_target[destination] = self._first_hops(destination)
        return self._hops_by_target[destination].get(switch)

    def next_hop(self, switch: str, destination: str) -> TrunkHop:
        """As :meth:`find_next_hop`; raises PlanError when there is no path."""
        hop = self.find_next_hop(switch, destination)
        if hop is None:
            msg = f"no trunks connect {switch} to {destination}; add a trunk, directly or through another switch"
            raise PlanError(msg)
        return hop

    def path(self, start: str, end: str) -> tuple[TrunkHop, ...]:
        """All trunks of the path from ``start`` to ``end``; none when they are the same, or when there is no path."""
        path: list[TrunkHop] = []
        while start != end and (hop := self.find_next_hop(start, end)):
            path.append(hop)
            start = hop.arrival.switch
        return tuple(path)

    def reachable(self, start: str) -> frozenset[str]:
        """Switches that trunks connect with ``start``, itself included."""
        return frozenset({start, *self._first_hops(start)})

    def _first_hops(self, destination: str) -> dict[str, TrunkHop]:
        distance = {destination: 0}
        queue = deque([destination])
        while queue:
            switch = queue.popleft()
            for hop in self._hops[switch]:
                if hop.arrival.switch not in distance:
                    distance[hop.arrival.switch] = distance[switch] + 1
                    queue.append(hop.arrival.switch)
        return {
            switch: next(hop for hop in self._hops[switch] if distance[hop.arrival.switch] == steps - 1)
            for switch, steps in distance.items()
            if switch != destination
        }
