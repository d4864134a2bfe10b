# SPDX-License-Identifier: Apache-2.0
"""The world end of a chain: the ports where frames enter and leave it, with or without boxes."""

from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network

from atoll_apps.segments.chain_routes import ChainRoute, taps_to_world
from atoll_apps.segments.segment import GapId, Segment, SegmentEnd
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import DelayBox, Host, LatencyClass, Network
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.tag_layout import Direction

_Source = tuple[str, PortRef, IPv4Network, int | None, str | None, frozenset[str]]
"""The name of a box or island host, the port of its world-bound frames, their sources, tag and box, and world hosts."""


class Edge:
    """The end of a chain that faces the world: the first box, or the island hosts if there is none.

    ``goal``: the name of the first box, or ``island``. ``taps``: those before the first box, all of them if there is
    none. ``ends``: the switches where island-bound frames leave the gap at the world edge.
    """

    def __init__(self, route: ChainRoute) -> None:
        self.route = route
        self.taps = route.gaps[0]
        self._first = route.traversals[0] if route.traversals else None
        self._sources: list[_Source]
        if first := self._first:
            port, hosts = first.ports.world.attached, frozenset(host.name for host in route.world)
            self.goal, self.ends = first.name, (port.switch,)
            self._sources = [(first.name, port, route.to_world.src, first.vlan, first.name, hosts)]
        else:
            ports = [(host, host.interface.attached) for host in route.island]
            self.goal, self.ends = "island", tuple(dict.fromkeys(port.switch for _, port in ports))
            self._sources = [
                (host.name, port, address(host), None, None, route.reached_by(host.name)) for host, port in ports
            ]

    def inner_gap(self, direction: Direction) -> GapId:
        """The gap between the edge and the first box."""
        return GapId(self.route.chain, direction, 0)

    def outer_gap(self, direction: Direction) -> GapId:
        """The gap between world hosts and their delay box."""
        return GapId(self.route.chain, direction, -1)

    def targets_from(self, hosts: Iterable[Host]) -> tuple[SegmentEnd, ...]:
        """The targets of island-bound frames of these world hosts."""
        if first := self._first:
            return (SegmentEnd(first.name, self.route.to_island.dst, first.ports.world.attached, first.vlan),)
        return tuple(
            SegmentEnd(island.name, address(island), island.interface.attached)
            for island in self.route.reached_from(host.name for host in hosts)
        )

    def takes_all(self, hosts: Iterable[Host]) -> bool:
        """Whether frames of these world hosts have all targets of the chain's island-bound frames."""
        return self._first is not None or len(self.targets_from(hosts)) == len(self.route.island)

    def segments_to(self, ends: Collection[SegmentEnd], cookie: int, note: str) -> Iterator[Segment]:
        """The segments from the edge to these ends, which have the names of world hosts."""
        for name, start, src, vlan, box, hosts in self._sources:
            for end in ends:
                if end.name in hosts:
                    yield Segment(
                        cookie=cookie,
                        gap_id=self.inner_gap(Direction.TO_WORLD),
                        origin=name,
                        goal=end.name,
                        note=self.route.note(note),
                        start=start,
                        src=src,
                        stream=self.route.to_world,
                        targets=(end,),
                        vlan=vlan,
                        taps=taps_to_world(self.taps),
                        takes_all=False,
                        box=box,
                    )


def address(host: Host) -> IPv4Network:
    """The host's address as a prefix of 32 bits."""
    return _prefix(host.address)


@lru_cache(maxsize=65536)
def _prefix(address: IPv4Address) -> IPv4Network:
    return IPv4Network(address)


def class_by_host(network: Network, experiment: Experiment) -> dict[str, tuple[LatencyClass, DelayBox]]:
    """For each delayed world host its latency class, and the delay box that carries it.

    Raises KeyError for a class that no delay box carries, which no resolved experiment names.
    """
    by_name = {latency.name: (latency, box) for box in network.delay_boxes for latency in box.classes}
    return {host: by_name[name] for host, name in experiment.latency}
