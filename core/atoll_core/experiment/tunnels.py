# SPDX-License-Identifier: Apache-2.0
"""Pairs of boxes that carry a chain's packets within packets of their own, and the addresses of these outer packets.

The addresses are in the prefixes of the chain, so that the flow entries between the two boxes match outer packets, too.
No host has them, and no other chain carries packets between them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from atoll_core.experiment.experiment import Chain, Experiment, Protocol, TrafficSelector
from atoll_core.lab.network import ChainBox, Network


@dataclass(frozen=True, slots=True)
class Tunnel:
    """The path of a chain's packets between a pair of boxes; chains of different versions with equal traffic share it.

    ``world``, ``island``: the boxes' names. The addresses are those of the outer packets. ``links``: the names of the
    links between the two boxes, in order; of versions that have others there, all of them.
    """

    world: str
    island: str
    carries: TrafficSelector
    world_address: IPv4Address
    island_address: IPv4Address
    links: tuple[str, ...]


def pairs_in(boxes: Iterable[ChainBox]) -> Iterator[tuple[ChainBox, ChainBox]]:
    """The pairs among the boxes of a chain, the one at the world's end first; of nested pairs the inner one first."""
    unpaired: list[ChainBox] = []
    for box in boxes:
        if unpaired and unpaired[-1].kind.pair == box.kind.name:
            yield unpaired.pop(), box
        elif box.kind.pair:
            unpaired.append(box)


def pairs_of(network: Network, chain: Chain) -> tuple[tuple[ChainBox, ChainBox], ...]:
    """The pairs of a chain (see :func:`pairs_in`)."""
    boxes = {box.name: box for box in network.boxes}
    return tuple(pairs_in(boxes[hop] for hop in chain.hops if hop in boxes))


def allocate_tunnels(
    network: Network, experiment: Experiment
) -> tuple[tuple[Tunnel, ...], tuple[tuple[Chain, str], ...]]:
    """The tunnels of all versions of an experiment, and the chains that can have none, each with the reason.

    Equal inputs give equal addresses: the highest ones that are free.
    """
    network_in_use = experiment.as_used(network)
    uses_by_tunnel: dict[tuple[str, str, TrafficSelector], list[tuple[Experiment, Chain, Protocol]]] = {}
    for state in experiment.states:
        for chain in state.chains:
            for world, island in pairs_of(network_in_use, chain):
                if world.kind.encapsulates:
                    uses = uses_by_tunnel.setdefault((world.name, island.name, chain.carries), [])
                    uses.append((state, chain, Protocol(world.kind.encapsulates)))
    taken = {host.address for host in network.hosts}
    tunnels: list[Tunnel] = []
    reasons: dict[Chain, str] = {}
    for (world, island, carries), uses in uses_by_tunnel.items():
        addresses = _free_addresses(network, carries, uses, taken)
        if addresses is None:
            reasons.setdefault(uses[0][1], _reason(network, world, island, uses))
            continue
        taken |= {*addresses}
        link_names = (_links_between(network, chain, world, island) for _, chain, _ in uses)
        links = dict.fromkeys(link for names in link_names for link in names)
        tunnels.append(Tunnel(world, island, carries, *addresses, tuple(links)))
    return tuple(tunnels), tuple(reasons.items())


def _links_between(network: Network, chain: Chain, world: str, island: str) -> Iterator[str]:
    links = {box.name for box in network.boxes if box.is_link}
    hops = chain.hops[chain.hops.index(world) : chain.hops.index(island)]
    return (hop for hop in hops if hop in links)


def _free_addresses(
    network: Network,
    carries: TrafficSelector,
    uses: list[tuple[Experiment, Chain, Protocol]],
    taken: set[IPv4Address],
) -> tuple[IPv4Address, IPv4Address] | None:
    """Two addresses between which the chains of ``uses`` carry packets; None if there are none."""
    chains = [chain for state, _, _ in uses for chain in state.chains]
    worlds = _candidates(network.world, carries.world, [chain.carries.world for chain in chains], taken)
    islands = _candidates(network.island, carries.island, [chain.carries.island for chain in chains], taken)
    for world in worlds:
        for island in islands:
            if all(state.carrier(world, island, protocol) == chain for state, chain, protocol in uses):
                return world, island
    return None


def _candidates(
    network: IPv4Network, prefix: IPv4Network | None, prefixes: Iterable[IPv4Network | None], taken: set[IPv4Address]
) -> list[IPv4Address]:
    """The highest free address of each part of ``prefix`` that the prefixes of ``prefixes`` cut it into."""
    scope = prefix or network
    parts = {part for part in prefixes if part is not None and part.subnet_of(scope)}
    highest = {scope[-1], *(part[-1] for part in parts), *(part[0] - 1 for part in parts)}
    unusable = {*taken, network[0], network[-1]}
    candidates: set[IPv4Address] = set()
    for top in highest:
        address = top
        while address in scope and address in unusable:
            address -= 1
        if address in scope:
            candidates.add(address)
    return sorted(candidates, reverse=True)


def _reason(network: Network, world: str, island: str, uses: list[tuple[Experiment, Chain, Protocol]]) -> str:
    state, chain, protocol = uses[0]
    outer = f"{world!r} and {island!r} encapsulate its packets in {protocol.value.upper()}"
    selector = chain.carries
    if selector.protocol and selector.protocol is not protocol:
        return f"it carries {selector.protocol.value.upper()} only, but {outer}; select its traffic by prefixes alone"
    if chains := [chain for chain in state.chains if chain.carries.protocol is protocol is not selector.protocol]:
        return f"{outer}, which branch {chains[0].name!r} carries; select the traffic of that branch by prefixes alone"
    prefixes = f"{selector.world or network.world} and {selector.island or network.island}"
    return f"{outer}, and need an address in each of {prefixes} that no host has and no other chain; widen the prefixes"
