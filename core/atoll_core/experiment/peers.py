# SPDX-License-Identifier: Apache-2.0
"""Pairs of boxes that keep a TCP connection to each other because their settings say so, and its addresses.

The addresses are those of two hosts between which the chain carries TCP, so that flow entries, neighbours and routes
serve the connection, too. Its ports are used by no host (``box_kind.PEER_PORT``).
"""

from collections.abc import Iterator

from atoll_core.experiment.experiment import Chain, Experiment, Protocol
from atoll_core.lab.box_kind import Peer
from atoll_core.lab.network import ChainBox, Network


def find_peers(network: Network, experiment: Experiment) -> tuple[dict[str, Peer], tuple[tuple[str, Chain, str], ...]]:
    """The other end of the connection of each box that keeps one, by the box's name, and the mistakes.

    A mistake is a box that cannot be connected to another one, its chain, and the reason.
    """
    boxes = {box.name: box for box in experiment.as_used(network).boxes}
    settings = {box.box: dict(box.settings) for box in experiment.boxes}
    peer_boxes = {name for name, box in boxes.items() if box.kind.keeps_peer(settings.get(name, {}))}
    peers: dict[str, Peer] = {}
    partners: dict[str, str] = {}
    mistakes: list[tuple[str, Chain, str]] = []
    for state in experiment.states:
        connected: set[str] = set()
        for chain in state.chains:
            ends = [boxes[hop] for hop in chain.hops if hop in boxes and boxes[hop].kind.ends_connections]
            pair = [box.name for box in ends if box.name in peer_boxes]
            if not pair or chain.carries.protocol not in (None, Protocol.TCP):
                continue
            if problems := [*_misplaced(ends, pair, peer_boxes), *_ambiguous(pair, partners, connected)]:
                mistakes += [(box, chain, reason) for box, reason in problems]
                continue
            world, island = pair
            connected |= {world, island}
            addresses = next(_address_pairs(network, state, chain), None)
            if addresses is None:
                reason = f"{world!r} and {island!r} are connected, but their chain carries TCP between no two hosts"
                mistakes.append((world, chain, reason))
                continue
            if world not in peers:
                partners |= {world: island, island: world}
                peers |= {world: Peer("island", *addresses), island: Peer("world", *addresses)}
    return peers, tuple(dict.fromkeys(mistakes))


def _misplaced(ends: list[ChainBox], pair: list[str], peer_boxes: set[str]) -> Iterator[tuple[str, str]]:
    names = [box.name for box in ends]
    if len(pair) == 1:
        unset = [name for name in names if name not in peer_boxes]
        remedy = f"write it for {unset[0]!r}, too" if unset else "add the other box to the chain, or switch it on"
        text = f"{pair[0]!r} keeps a connection to another box, but no other box of its chain does"
        yield pair[0], f"{text}; {remedy}"
    elif len(pair) > 2:
        text = f"of {', '.join(map(repr, pair))} only two can share a connection; write it for two boxes of a chain"
        yield pair[2], text
    elif abs(names.index(pair[0]) - names.index(pair[1])) > 1:
        middle = names[names.index(pair[0]) + 1]
        text = f"{middle!r}, between {pair[0]!r} and {pair[1]!r}, would take their connection; remove one of them"
        yield pair[0], text


def _ambiguous(pair: list[str], partners: dict[str, str], connected: set[str]) -> Iterator[tuple[str, str]]:
    for box in pair:
        if box in connected:
            text = f"two chains at a time pass {box!r}, but one connection takes one path"
            yield box, f"{text}; let only one of them carry TCP through it"
            return
        if box in partners and partners[box] not in pair:
            text = f"{box!r} is connected to {partners[box]!r} in another version of the chain"
            yield box, f"{text}; keep that box in this one"
            return


def _address_pairs(network: Network, state: Experiment, chain: Chain) -> Iterator[tuple[str, str]]:
    """Addresses of hosts between which the chain carries TCP."""
    for world in network.world_hosts:
        for island in network.island_hosts:
            if state.carrier(world.address, island.address, Protocol.TCP) == chain:
                yield str(world.address), str(island.address)
