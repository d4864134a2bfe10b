# SPDX-License-Identifier: Apache-2.0
"""The route of each chain of an experiment: its boxes, its taps, its traffic and its hosts."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network
from itertools import groupby

from atoll_core.experiment.experiment import Chain, Experiment, Protocol, TrafficSelector
from atoll_core.experiment.host_groups import Sides
from atoll_core.lab.network import Host, Network, PortPair, Tap
from atoll_core.plan.tag_layout import Direction, Layout

# Chains with narrower traffic have higher priorities (TrafficSelector.precedence), in steps of two: drop entries go
# between them. Below all of them the table miss drops.
PRIORITY = 1000

Block = tuple[frozenset[str], frozenset[str]]  # names of world and of island hosts


@dataclass(frozen=True, slots=True)
class TrafficMatch:
    """The frames of one direction of a chain, as entries match them; the priority decides between chains."""

    src: IPv4Network
    dst: IPv4Network
    protocol: int | None = None
    priority: int = PRIORITY


@dataclass(frozen=True, slots=True)
class BoxTraversal:
    """The passage of a chain through a box: the ports, and the tag (None: untagged)."""

    name: str
    routed: bool
    ports: PortPair
    vlan: int | None


@dataclass(frozen=True, slots=True)
class ChainRoute:
    """One chain. ``number`` is 0 for the main chain.

    ``world``, ``island``: the hosts whose traffic it carries, in the order of the description. ``blocks``: it carries
    packets between each world host and each island host of a block.
    """

    chain: str
    number: int
    traversals: tuple[BoxTraversal, ...]
    gaps: tuple[tuple[Tap, ...], ...]  # taps before the first box, between boxes, behind the last
    world: tuple[Host, ...]
    island: tuple[Host, ...]
    blocks: tuple[Block, ...]
    to_island: TrafficMatch
    to_world: TrafficMatch

    def note(self, reason: str) -> str:
        """A reason, with the chain's name unless it is the main chain."""
        return f"{reason}, chain {self.chain}" if self.number else reason

    def reached_from(self, world: Iterable[str]) -> tuple[Host, ...]:
        """The island hosts that receive packets of any of these world hosts by this chain."""
        senders = frozenset(world)
        return _select_hosts(
            self.island,
            (islands for worlds, islands in self.blocks if not worlds.isdisjoint(senders)),
        )

    def reached_by(self, island: str) -> frozenset[str]:
        """The names of the world hosts that receive packets of this island host by this chain."""
        return frozenset[str]().union(*(worlds for worlds, islands in self.blocks if island in islands))


def routes(network: Network, experiment: Experiment, layout: Layout) -> tuple[ChainRoute, ...]:
    """The routes of all chains: the main one, then the others by name."""
    blocks = _blocks(network, experiment)
    chains = (experiment.chain, *sorted(experiment.branches, key=lambda chain: chain.name))
    return tuple(
        ChainRoute(
            chain=chain.name,
            number=number,
            traversals=_traversals(network, chain, layout),
            gaps=_taps_by_gap(network, chain),
            world=_select_hosts(network.world_hosts, (world for world, _ in blocks[chain.name])),
            island=_select_hosts(network.island_hosts, (island for _, island in blocks[chain.name])),
            blocks=tuple(blocks[chain.name]),
            to_island=traffic_match(network, chain.carries, Direction.TO_ISLAND),
            to_world=traffic_match(network, chain.carries, Direction.TO_WORLD),
        )
        for number, chain in enumerate(chains)
    )


def _blocks(network: Network, experiment: Experiment) -> dict[str, list[Block]]:
    """The blocks of hosts between which each chain carries packets of at least one protocol."""
    blocks: dict[str, list[Block]] = {chain.name: [] for chain in experiment.chains}
    for world, island in Sides(network, experiment).blocks():
        block = frozenset(host.name for host in world), frozenset(host.name for host in island)
        traffic = world[0].address, island[0].address
        for name in {experiment.carrier(*traffic, protocol).name for protocol in (*Protocol, None)}:
            blocks[name].append(block)
    return blocks


def _select_hosts(hosts: tuple[Host, ...], names: Iterable[frozenset[str]]) -> tuple[Host, ...]:
    all_names = frozenset[str]().union(*names)
    return tuple(host for host in hosts if host.name in all_names)


def traffic_match(network: Network, carries: TrafficSelector, direction: Direction) -> TrafficMatch:
    """The match for a chain's traffic in one direction."""
    world, island = carries.world or network.world, carries.island or network.island
    src, dst = (world, island) if direction is Direction.TO_ISLAND else (island, world)
    number = carries.protocol.number if carries.protocol else None
    return TrafficMatch(src, dst, number, PRIORITY + 2 * carries.precedence)


def _traversals(network: Network, chain: Chain, layout: Layout) -> tuple[BoxTraversal, ...]:
    boxes = {box.name: box for box in network.boxes}
    return tuple(
        BoxTraversal(
            name=box.name,
            routed=box.routed,
            ports=box.pairs[-1 if (chain.name, box.name) in layout.spare else 0],
            vlan=None if box.routed else layout.box_vlan(chain.name, box.name),
        )
        for name in chain.hops
        if (box := boxes.get(name))
    )


def taps_to_world(taps: tuple[Tap, ...]) -> tuple[Tap, ...]:
    """The taps of a gap for frames to the world, in their order."""
    return tuple(tap for tap in reversed(taps) if not tap.to_island_only)


def _taps_by_gap(network: Network, chain: Chain) -> tuple[tuple[Tap, ...], ...]:
    """The taps in each gap of the chain, from world to island: before the first box, between boxes, behind the last.

    A tap has no flow entry of its own: the entry that forwards the frames on its switch also sends it an untagged copy.
    A physical tap needs none: it copies the frames in its cable.
    """
    taps = {tap.name: tap for tap in network.taps}
    gaps: list[tuple[Tap, ...]] = [()]
    for is_tap, names in groupby(chain.hops, key=lambda name: name in taps):
        if is_tap:
            gaps[-1] = tuple(taps[name] for name in names if not taps[name].physical)
        else:
            gaps += [() for _ in names]
    return tuple(gaps)
