# SPDX-License-Identifier: Apache-2.0
"""The boxes whose kinds have a program, as an experiment uses them (docs/box-kinds.md)."""

import json
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.experiment.path_mtu import PathMtus
from atoll_core.experiment.peers import find_peers
from atoll_core.experiment.tunnels import Tunnel, allocate_tunnels
from atoll_core.lab.box_kind import BoxUse, Configuration
from atoll_core.lab.network import ChainBox, Interface, Network


def box_uses(network: Network, experiment: Experiment) -> dict[str, BoxUse]:
    """Every box that has a program by its kind and is not off, by its name, in a chain or not.

    Raises PlanError if the packets of a chain cannot be encapsulated, or boxes cannot be connected.
    """
    tunnels, refused = allocate_tunnels(network, experiment)
    peers, unconnected = find_peers(network, experiment)
    if refusals := [*refused, *((chain, reason) for _, chain, reason in unconnected)]:
        raise PlanError("; ".join(f"chain {chain.name!r}: {reason}" for chain, reason in refusals))
    boxes = [box for box in experiment.as_used(network).boxes if box.kind.subcommand]
    if not boxes:
        return {}
    settings = {configuration.box: dict(configuration.settings) for configuration in experiment.boxes}
    mtus = PathMtus(network, experiment)
    macs = {str(host.address): host.interface.mac for host in network.hosts}
    return {
        box.name: BoxUse(
            legs=tuple((pair.world.name, pair.island.name) for pair in box.pairs),
            settings=settings.get(box.name, {}),
            world_hosts=tuple(host.address for host in network.world_hosts),
            island_hosts=tuple(host.address for host in network.island_hosts),
            mtu=mtus.common_mtu_at(box),
            macs={leg.name: leg.mac for leg in _legs(box)} | macs,
            leg_mtus={leg.name: leg.mtu for leg in _legs(box)},
            tunnels=tuple(_tunnels(network, box, tunnels, settings)),
            peer=peers.get(box.name),
        )
        for box in boxes
    }


def _legs(box: ChainBox) -> tuple[Interface, ...]:
    return tuple(leg for pair in box.pairs for leg in (pair.world, pair.island))


def _tunnels(
    network: Network, box: ChainBox, tunnels: tuple[Tunnel, ...], settings: Mapping[str, Mapping[str, Any]]
) -> list[Configuration]:
    """The tunnels that end at a box, the first one that carries a packet first. ``settings``: of all boxes."""
    configurations: list[Configuration] = []
    groups: dict[tuple[str, ...], int] = {}  # numbers of links: names would restart programs when a link changes
    for tunnel in sorted(tunnels, key=lambda tunnel: -tunnel.carries.precedence):
        ends = (tunnel.world, tunnel.world_address), (tunnel.island, tunnel.island_address)
        if box.name not in (tunnel.world, tunnel.island):
            continue
        (_, address), (peer, peer_address) = ends if box.name == tunnel.world else ends[::-1]
        peer_port = network.box(peer).world if box.name == tunnel.world else network.box(peer).island
        configurations.append(
            {
                "carries": {
                    "world": str(tunnel.carries.world or network.world),
                    "island": str(tunnel.carries.island or network.island),
                    "protocol": tunnel.carries.protocol and tunnel.carries.protocol.number,
                },
                "peer_at": "island" if box.name == tunnel.world else "world",
                "address": str(address),
                "peer_address": str(peer_address),
                "peer_mac": peer_port.mac,
                "peer_settings": crc32(json.dumps(settings.get(peer, {}), sort_keys=True).encode()),
                "way": groups.setdefault(tunnel.links, len(groups)),
            }
        )
    return configurations
