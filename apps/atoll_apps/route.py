# SPDX-License-Identifier: Apache-2.0
"""Routes: each chain of an experiment with what the apps ask of it: its boxes, its taps, its traffic."""

from dataclasses import dataclass
from ipaddress import IPv4Network
from itertools import product

from atoll.model.experiment import Carried, Chain, Experiment, Protocol
from atoll.model.layout import Direction, Layout
from atoll.model.network import Host, Legs, Network, Tap
from atoll_apps.taps import taps_by_gap

# Chains that carry a narrower traffic have higher priorities (Carried.precedence), two apart: guards go between. Below
# all of them the table miss drops.
PRIORITY = 1000

Traffic = tuple[str, str, Protocol | None]  # world host, island host, protocol; None: any without a name


@dataclass(frozen=True, slots=True)
class Stream:
    """The frames of one direction of a chain, as entries match them; the priority decides between chains."""

    src: IPv4Network
    dst: IPv4Network
    protocol: int | None = None
    priority: int = PRIORITY


@dataclass(frozen=True, slots=True)
class Passage:
    """A box as one chain passes it: by which legs, and with which tag (None: untagged)."""

    name: str
    routed: bool
    legs: Legs
    vlan: int | None


@dataclass(frozen=True, slots=True)
class Route:
    """One chain. ``number`` is 0 for the one that carries the rest; ``pairs``: (world, island) hosts it carries for."""

    chain: str
    number: int
    passages: tuple[Passage, ...]
    gaps: tuple[tuple[Tap, ...], ...]  # taps before the first box, between boxes, behind the last
    pairs: frozenset[tuple[str, str]]
    to_island: Stream
    to_world: Stream

    def note(self, words: str) -> str:
        """A reason, with the chain's name unless it is the one that carries the rest."""
        return f"{words}, chain {self.chain}" if self.number else words

    def world(self, network: Network) -> tuple[Host, ...]:
        """The world hosts it carries for."""
        names = {world for world, _ in self.pairs}
        return tuple(host for host in network.world_hosts if host.name in names)

    def island(self, network: Network) -> tuple[Host, ...]:
        """The island hosts it carries for."""
        names = {island for _, island in self.pairs}
        return tuple(host for host in network.island_hosts if host.name in names)


def routes(network: Network, experiment: Experiment, layout: Layout) -> tuple[Route, ...]:
    """The routes of all chains: the one that carries the rest, then the others by name."""
    carriers = carried(network, experiment)
    chains = (experiment.chain, *sorted(experiment.branches, key=lambda chain: chain.name))
    pairs: dict[str, set[tuple[str, str]]] = {chain.name: set() for chain in chains}
    for (world, island, _), chain in carriers.items():
        pairs[chain].add((world, island))
    return tuple(
        Route(
            chain=chain.name,
            number=number,
            passages=_passages(network, chain, layout),
            gaps=taps_by_gap(network, chain),
            pairs=frozenset(pairs[chain.name]),
            to_island=stream(network, chain.carries, Direction.TO_ISLAND),
            to_world=stream(network, chain.carries, Direction.TO_WORLD),
        )
        for number, chain in enumerate(chains)
    )


def carried(network: Network, experiment: Experiment) -> dict[Traffic, str]:
    """The name of the chain that carries each kind of traffic between each two hosts."""
    pairs = product(network.world_hosts, network.island_hosts)
    if not any(chain.carries.protocol for chain in experiment.branches):
        return {(w.name, i.name, None): experiment.carrier(w.address, i.address).name for w, i in pairs}
    return {
        (world.name, island.name, kind): experiment.carrier(world.address, island.address, kind).name
        for world, island in pairs
        for kind in (*Protocol, None)
    }


def stream(network: Network, carries: Carried, direction: Direction) -> Stream:
    """What entries match of a chain's traffic in one direction."""
    world, island = carries.world or network.world, carries.island or network.island
    src, dst = (world, island) if direction is Direction.TO_ISLAND else (island, world)
    number = carries.protocol.number if carries.protocol else None
    return Stream(src, dst, number, PRIORITY + 2 * carries.precedence)


def _passages(network: Network, chain: Chain, layout: Layout) -> tuple[Passage, ...]:
    known = {box.name: box for box in network.boxes}
    return tuple(
        Passage(
            name=box.name,
            routed=box.routed,
            legs=box.pairs[-1 if (chain.name, box.name) in layout.spare else 0],
            vlan=None if box.routed else layout.box_vlan(chain.name, box.name),
        )
        for name in chain.hops
        if (box := known.get(name))
    )
