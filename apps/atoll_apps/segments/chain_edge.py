# SPDX-License-Identifier: Apache-2.0
"""The world edge of a chain: where frames enter it and leave it, however many boxes it has, none included."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network

from atoll_apps.segments.chain_routes import ChainRoute
from atoll_apps.segments.segment import SegmentEnd, SegmentId
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import DelayBox, Host, LatencyClass, Network, PortRef, Tap
from atoll_core.plan.tag_layout import Direction


@dataclass(frozen=True, slots=True)
class Source:
    """A port through which world-bound frames come, who may send there with which tag, and to which world hosts."""

    name: str
    start: PortRef
    src: IPv4Network
    vlan: int | None
    box: str | None
    hosts: tuple[Host, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """What delivery and latency connect world hosts with: the first box, or the island hosts if there is none."""

    route: ChainRoute

    @property
    def goal(self) -> str:
        """What the chain begins with."""
        return self.route.passages[0].name if self.route.passages else "island"

    @property
    def taps(self) -> tuple[Tap, ...]:
        """The taps before the first box, all of them if there is none."""
        return self.route.gaps[0]

    def stretch(self, direction: Direction) -> SegmentId:
        """The stretch between the edge and the first box."""
        return SegmentId(self.route.chain, direction, 0)

    def outer(self, direction: Direction) -> SegmentId:
        """The stretch between world hosts and their delay box."""
        return SegmentId(self.route.chain, direction, -1)

    def into(self, hosts: Iterable[Host]) -> tuple[SegmentEnd, ...]:
        """Where island-bound frames of these world hosts go."""
        if self.route.passages:
            first = self.route.passages[0]
            return (SegmentEnd(first.name, self.route.to_island.dst, first.legs.world.attached, first.vlan),)
        return tuple(
            SegmentEnd(island.name, address(island), island.interface.attached)
            for island in self.route.reached_from(host.name for host in hosts)
        )

    def takes_all(self, hosts: Iterable[Host]) -> bool:
        """Whether frames of these world hosts go wherever any island-bound frame of the chain goes."""
        return bool(self.route.passages) or len(self.into(hosts)) == len(self.route.island)

    @property
    def ends(self) -> tuple[str, ...]:
        """The switches where island-bound frames leave the world edge's stretch."""
        if self.route.passages:
            return (self.route.passages[0].legs.world.attached.switch,)
        return tuple({host.interface.attached.switch: None for host in self.route.island})

    def sources(self) -> Iterator[Source]:
        """Where world-bound frames come from."""
        if self.route.passages:
            first, hosts = self.route.passages[0], self.route.world
            yield Source(first.name, first.legs.world.attached, self.route.to_world.src, first.vlan, first.name, hosts)
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
