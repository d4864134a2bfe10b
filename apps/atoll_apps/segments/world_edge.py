# SPDX-License-Identifier: Apache-2.0
"""The world end of a chain: the ports where frames enter and leave it, with or without boxes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network

from atoll_apps.segments.chain_routes import ChainRoute
from atoll_apps.segments.segment import GapId, SegmentEnd
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import DelayBox, Host, LatencyClass, Network, Tap
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.tag_layout import Direction


@dataclass(frozen=True, slots=True)
class Source:
    """A port from which world-bound frames arrive: their sources, their tag, and the world hosts they may go to."""

    name: str
    start: PortRef
    src: IPv4Network
    vlan: int | None
    box: str | None
    hosts: tuple[Host, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """The end of a chain that faces the world: the first box, or the island hosts if there is none."""

    route: ChainRoute

    @property
    def goal(self) -> str:
        """The name of the first box, or ``island``."""
        return self.route.traversals[0].name if self.route.traversals else "island"

    @property
    def taps(self) -> tuple[Tap, ...]:
        """The taps before the first box, all of them if there is none."""
        return self.route.gaps[0]

    def inner(self, direction: Direction) -> GapId:
        """The gap between the edge and the first box."""
        return GapId(self.route.chain, direction, 0)

    def outer(self, direction: Direction) -> GapId:
        """The gap between world hosts and their delay box."""
        return GapId(self.route.chain, direction, -1)

    def into(self, hosts: Iterable[Host]) -> tuple[SegmentEnd, ...]:
        """The targets of island-bound frames of these world hosts."""
        if self.route.traversals:
            first = self.route.traversals[0]
            return (SegmentEnd(first.name, self.route.to_island.dst, first.ports.world.attached, first.vlan),)
        return tuple(
            SegmentEnd(island.name, address(island), island.interface.attached)
            for island in self.route.reached_from(host.name for host in hosts)
        )

    def takes_all(self, hosts: Iterable[Host]) -> bool:
        """Whether frames of these world hosts have all targets of the chain's island-bound frames."""
        return bool(self.route.traversals) or len(self.into(hosts)) == len(self.route.island)

    @property
    def ends(self) -> tuple[str, ...]:
        """The switches where island-bound frames leave the gap at the world edge."""
        if self.route.traversals:
            return (self.route.traversals[0].ports.world.attached.switch,)
        return tuple({host.interface.attached.switch: None for host in self.route.island})

    def sources(self) -> Iterator[Source]:
        """The sources of world-bound frames."""
        if self.route.traversals:
            first, hosts = self.route.traversals[0], self.route.world
            yield Source(first.name, first.ports.world.attached, self.route.to_world.src, first.vlan, first.name, hosts)
            return
        for island in self.route.island:
            known = self.route.reached_by(island.name)
            yield Source(island.name, island.interface.attached, address(island), None, None, known)


def address(host: Host) -> IPv4Network:
    """The host's address as a prefix of 32 bits."""
    return _prefix(host.address)


@lru_cache(maxsize=65536)
def _prefix(of: IPv4Address) -> IPv4Network:
    return IPv4Network(of)


def classes(network: Network, experiment: Experiment) -> dict[str, tuple[LatencyClass, DelayBox]]:
    """For each delayed world host its latency class, and the delay box that carries it.

    Raises KeyError for a class that no delay box carries, which no resolved experiment names.
    """
    carried = {known.name: (known, box) for box in network.delay_boxes for known in box.classes}
    return {host: carried[name] for host, name in experiment.latency}
