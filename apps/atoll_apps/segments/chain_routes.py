# SPDX-License-Identifier: Apache-2.0
"""Routes: each chain of an experiment with what the apps ask of it: its boxes, its taps, its traffic."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network

from atoll_apps.segments.taps import taps_by_gap
from atoll_core.experiment.experiment import Chain, Experiment, Protocol, TrafficSelector
from atoll_core.lab.host_groups import Sides
from atoll_core.lab.network import Host, Network, PortPair, Tap
from atoll_core.plan.tag_layout import Direction, Layout

# Chains that carry a narrower traffic have higher priorities (Carried.precedence), two apart: guards go between. Below
# all of them the table miss drops.
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
    """A box as one chain passes it: by which legs, and with which tag (None: untagged)."""

    name: str
    routed: bool
    legs: PortPair
    vlan: int | None


@dataclass(frozen=True, slots=True)
class ChainRoute:
    """One chain. ``number`` is 0 for the one that carries the rest.

    ``world``, ``island``: the hosts it carries for, in the order of the description. ``blocks``: between which of them,
    each world host and each island host of a block.
    """

    chain: str
    number: int
    passages: tuple[BoxTraversal, ...]
    gaps: tuple[tuple[Tap, ...], ...]  # taps before the first box, between boxes, behind the last
    world: tuple[Host, ...]
    island: tuple[Host, ...]
    blocks: tuple[Block, ...]
    to_island: TrafficMatch
    to_world: TrafficMatch

    def note(self, words: str) -> str:
        """A reason, with the chain's name unless it is the one that carries the rest."""
        return f"{words}, chain {self.chain}" if self.number else words

    def reached_from(self, world: Iterable[str]) -> tuple[Host, ...]:
        """The island hosts to which it carries packets of any of these world hosts."""
        senders = frozenset(world)
        return _named(self.island, (there for here, there in self.blocks if not here.isdisjoint(senders)))

    def reached_by(self, island: str) -> tuple[Host, ...]:
        """The world hosts to which it carries packets of this island host."""
        return _named(self.world, (here for here, there in self.blocks if island in there))


def routes(network: Network, experiment: Experiment, layout: Layout) -> tuple[ChainRoute, ...]:
    """The routes of all chains: the one that carries the rest, then the others by name."""
    blocks = _blocks(network, experiment)
    chains = (experiment.chain, *sorted(experiment.branches, key=lambda chain: chain.name))
    return tuple(
        ChainRoute(
            chain=chain.name,
            number=number,
            passages=_passages(network, chain, layout),
            gaps=taps_by_gap(network, chain),
            world=_named(network.world_hosts, (world for world, _ in blocks[chain.name])),
            island=_named(network.island_hosts, (island for _, island in blocks[chain.name])),
            blocks=tuple(blocks[chain.name]),
            to_island=stream(network, chain.carries, Direction.TO_ISLAND),
            to_world=stream(network, chain.carries, Direction.TO_WORLD),
        )
        for number, chain in enumerate(chains)
    )


def _blocks(network: Network, experiment: Experiment) -> dict[str, list[Block]]:
    """Between which hosts each chain carries packets of any protocol."""
    found: dict[str, list[Block]] = {chain.name: [] for chain in experiment.chains}
    for world, island in Sides(network, experiment).blocks():
        block = frozenset(host.name for host in world), frozenset(host.name for host in island)
        traffic = world[0].address, island[0].address
        for name in {experiment.carrier(*traffic, kind).name for kind in (*Protocol, None)}:
            found[name].append(block)
    return found


def _named(hosts: tuple[Host, ...], names: Iterable[frozenset[str]]) -> tuple[Host, ...]:
    wanted = frozenset[str]().union(*names)
    return tuple(host for host in hosts if host.name in wanted)


def stream(network: Network, carries: TrafficSelector, direction: Direction) -> TrafficMatch:
    """What entries match of a chain's traffic in one direction."""
    world, island = carries.world or network.world, carries.island or network.island
    src, dst = (world, island) if direction is Direction.TO_ISLAND else (island, world)
    number = carries.protocol.number if carries.protocol else None
    return TrafficMatch(src, dst, number, PRIORITY + 2 * carries.precedence)


def _passages(network: Network, chain: Chain, layout: Layout) -> tuple[BoxTraversal, ...]:
    known = {box.name: box for box in network.boxes}
    return tuple(
        BoxTraversal(
            name=box.name,
            routed=box.routed,
            legs=box.pairs[-1 if (chain.name, box.name) in layout.spare else 0],
            vlan=None if box.routed else layout.box_vlan(chain.name, box.name),
        )
        for name in chain.hops
        if (box := known.get(name))
    )
