# SPDX-License-Identifier: Apache-2.0
"""MTUs of the paths between hosts: the least of all cables that a chain passes, less the bytes that its boxes add."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network

from atoll_core.experiment.experiment import Chain, Experiment, Protocol
from atoll_core.experiment.host_groups import Sides
from atoll_core.lab.box_kind import BoxKind
from atoll_core.lab.network import ChainBox, Host, Interface, Network

PROTOCOLS = (*Protocol, None)
Routes = tuple[tuple[IPv4Network, int], ...]
"""MTUs by destination prefix; the first one is that of the whole end, the others are within it and differ from it."""


@dataclass(frozen=True, slots=True)
class Leg:
    """One side of a box in a chain. ``overhead_bytes``: those that boxes before it have added to each packet.

    ``tested_bytes``: those that they have added to packets of tests, such as calibrations.
    """

    box: str
    interface: Interface
    overhead_bytes: int
    tested_bytes: int

    @property
    def mtu(self) -> int:
        """IP bytes of the longest packet of a host that passes here."""
        return self.interface.mtu - self.overhead_bytes


def chain_legs(network: Network, chain: Chain) -> tuple[Leg, ...]:
    """The legs that a packet to the island passes in turn: of each box the world's side, then the island's."""
    boxes = {box.name: box for box in network.boxes}
    legs: list[Leg] = []
    encapsulating: list[BoxKind] = []  # the boxes that have encapsulated the packet, the innermost first
    for box in (boxes[hop] for hop in chain.hops if hop in boxes):
        added_before = _added_bytes(encapsulating)
        if encapsulating and encapsulating[-1].pair == box.kind.name:
            encapsulating.pop()
        elif box.kind.overhead_bytes:
            encapsulating.append(box.kind)
        added_after = _added_bytes(encapsulating)
        legs += [Leg(box.name, box.world, *added_before), Leg(box.name, box.island, *added_after)]
    return tuple(legs)


def _added_bytes(encapsulating: list[BoxKind]) -> tuple[int, int]:
    """The bytes that these boxes add to a packet, and to one of a test."""
    test_bytes = (kind.overhead_bytes for kind in encapsulating if not kind.passes_tests)
    return sum(kind.overhead_bytes for kind in encapsulating), sum(test_bytes)


class PathMtus:
    """The MTUs of an experiment in its lab, in all versions of its steering."""

    def __init__(self, network: Network, experiment: Experiment) -> None:
        network_in_use = experiment.as_used(network)
        self._network = network
        self._states = experiment.states
        self._sides = Sides(network, *self._states)
        self.legs = {chain: chain_legs(network_in_use, chain) for chain in experiment.all_chains}
        """Of every chain."""
        groups = (*self._sides.world.groups, *self._sides.island.groups)
        self._representative = {host.name: group[0] for group in groups for host in group}
        self._route_cache: dict[tuple[bool, str | None, int, str | None], Routes] = {}
        mtu_by_class = {
            latency.name: min(box.ends(latency).world.mtu, box.ends(latency).island.mtu)
            for box in network.delay_boxes
            for latency in box.classes
        }
        self._delay_box_mtus: dict[str, int] = {}  # the least MTU of its delay boxes, by world host
        for host, name in (pair for version in experiment.versions for pair in version.latency):
            if name in mtu_by_class:
                self._delay_box_mtus[host] = min(mtu_by_class[name], self._delay_box_mtus.get(host, mtu_by_class[name]))

    def between(self, world: Host, island: Host, protocol: Protocol | None) -> int:
        """IP bytes of the longest packet between two hosts."""
        carriers = (state.carrier(world.address, island.address, protocol) for state in self._states)
        mtus = [leg.mtu for chain in carriers for leg in self.legs[chain]]
        return min([*mtus, self._host_mtu(world), self._host_mtu(island)])

    def longest_packet_at(self, box: ChainBox) -> int:
        """IP bytes of the longest packet that hosts make pass a box, with all that other boxes have added to it."""
        ends = (self._network.world_hosts, self._network.island_hosts)
        hosts = min(max(map(self._host_mtu, end), default=box.mtu) for end in ends)
        lengths = [
            min(hosts, *(leg.mtu for leg in legs)) + leg.overhead_bytes
            for legs in self.legs.values()
            for leg in legs
            if leg.box == box.name
        ]
        return min(max(lengths, default=box.mtu), box.mtu)

    def common_mtu_at(self, box: ChainBox) -> int:
        """IP bytes of the longest packet at a box that all chains through it carry whole."""
        lengths = [
            min(other.mtu for other in legs) + leg.overhead_bytes
            for legs in self.legs.values()
            for leg in legs
            if leg.box == box.name
        ]
        return min(lengths, default=box.mtu)

    def of_host(self, host: Host) -> Routes:
        """The MTUs of a host's routes to the other end."""
        return self._routes(host.role.is_world, None, self._host_mtu(host), self._representative[host.name])

    def of_box(self, box: ChainBox, *, to_island: bool) -> Routes:
        """The MTUs of a routed box's routes to the hosts of one end: those of the cables on the rest of the path."""
        return self._routes(to_island, box.name, (box.island if to_island else box.world).mtu, None)

    def _routes(self, to_island: bool, box: str | None, src_mtu: int, host: Host | None) -> Routes:
        """``box``, or ``host`` and those of its group: where the packets leave, with the MTU ``src_mtu``."""
        key = (to_island, box, src_mtu, host and host.name)
        if key not in self._route_cache:
            self._route_cache[key] = self._new_routes(to_island, box, src_mtu, host)
        return self._route_cache[key]

    def _new_routes(self, to_island: bool, box: str | None, src_mtu: int, source_host: Host | None) -> Routes:
        network = self._network.island if to_island else self._network.world
        near, far = (self._sides.world, self._sides.island) if to_island else (self._sides.island, self._sides.world)
        prefixes = sorted(
            {
                prefix
                for chain in self.legs
                for prefix in [chain.carries.island if to_island else chain.carries.world]
                if prefix and prefix.subnet_of(network) and prefix != network
            },
            key=lambda prefix: (prefix.prefixlen, prefix),
        )
        sources = (source_host,) if source_host else tuple(group[0] for group in near.groups)
        mtus: dict[IPv4Network, int] = {}
        for group in far.groups:
            pairs = ((source, group[0]) if to_island else (group[0], source) for source in sources)
            paths = {path for pair in pairs for path in self._legs_ahead(*pair, box, to_island=to_island)}
            if not paths:
                continue
            mtu_by_host = {
                IPv4Network(host.address): min(
                    src_mtu, *(mtu + overhead for cables, overhead in paths for mtu in (*cables, self._host_mtu(host)))
                )
                for host in group
            }
            common = max(Counter(mtu_by_host.values()).items(), key=lambda counted: counted[::-1])[0]  # of most hosts
            prefix = next((prefix for prefix in reversed(prefixes) if group[0].address in prefix), network)
            mtus |= {host: mtu for host, mtu in mtu_by_host.items() if mtu != common} | {prefix: common}
        routes = {network: mtus.pop(network, min(mtus.values(), default=src_mtu))}
        for prefix in sorted(mtus, key=lambda prefix: (prefix.prefixlen, prefix)):
            outer = max((other for other in routes if prefix.subnet_of(other)), key=lambda other: other.prefixlen)
            if mtus[prefix] != routes[outer]:
                routes[prefix] = mtus[prefix]
        return tuple(routes.items())

    def _legs_ahead(
        self, world: Host, island: Host, box: str | None, *, to_island: bool
    ) -> Iterator[tuple[tuple[int, ...], int]]:
        """The MTUs of the legs of each chain between two hosts, and the bytes added before a packet leaves ``box``.

        Legs that the packet has passed by then are left out, and so are chains without the box.
        """
        for state in self._states:
            for chain in {state.carrier(world.address, island.address, protocol) for protocol in PROTOCOLS}:
                legs = self.legs[chain] if to_island else self.legs[chain][::-1]
                if box is None:
                    yield tuple(leg.mtu for leg in legs), 0
                    continue
                index = next((number for number, leg in enumerate(legs) if leg.box == box), None)
                if index is not None:
                    yield tuple(leg.mtu for leg in legs[index + 1 :]), legs[index + 1].overhead_bytes

    def _host_mtu(self, host: Host) -> int:
        return min(host.interface.mtu, self._delay_box_mtus.get(host.name, host.interface.mtu))
