# SPDX-License-Identifier: Apache-2.0
"""Terrestrial latency: world servers reach the chain, and are reached from it, through a delay box.

OpenFlow cannot delay; a box on a trunk port does, one class per VLAN id. A frame gets its server's class as a tag, goes
through the box, comes back with the tag, loses it and goes on. Legs (cookie; the subject is the VLAN id): 1 server to
delay box, 2 delay box into the chain, 3 chain to delay box, 4 delay box to server.
"""

from atoll.model.experiment import Experiment
from atoll.model.network import DelayBox, Host, LatencyClass, Network
from atoll_apps.edges import Edges, address, classes, edges
from atoll_apps.legs import App, Leg, Target, cookie


def legs(network: Network, experiment: Experiment) -> tuple[Leg, ...]:
    """The legs of delayed world hosts between the hosts and the world edge of the chain, in both directions."""
    edge = edges(network, experiment)
    return tuple(
        leg
        for name, (known, box) in classes(network, experiment).items()
        for leg in (
            *_to_island(network, network.host(name), known, box, edge),
            *_to_world(network, network.host(name), known, box, edge),
        )
    )


def _to_island(network: Network, host: Host, known: LatencyClass, box: DelayBox, edge: Edges) -> tuple[Leg, ...]:
    to_box = Leg(
        cookie=cookie(App.LATENCY, 1, known.vlan),
        origin=host.name,
        goal="island",
        note=f"class {known.name} of {box.name}",
        start=host.interface.attached,
        src=address(host),
        side=network.world,
        dst=network.island,
        targets=(Target("island", network.island, box.trunk.attached, push=known.vlan),),
    )
    from_box = Leg(
        cookie=cookie(App.LATENCY, 2, known.vlan),
        origin=box.name,
        goal=edge.into_name,
        note=f"class {known.name} done",
        start=box.trunk.attached,
        src=network.world,
        side=network.world,
        dst=network.island,
        targets=edge.into_chain,
        vlan=known.vlan,
        taps=edge.world_taps,
    )
    return to_box, from_box


def _to_world(network: Network, host: Host, known: LatencyClass, box: DelayBox, edge: Edges) -> tuple[Leg, ...]:
    to_box = tuple(
        Leg(
            cookie=cookie(App.LATENCY, 3, known.vlan),
            origin=source.name,
            goal=host.name,
            note=f"class {known.name} of {box.name}",
            start=source.start,
            src=source.src,
            side=network.island,
            dst=network.world,
            targets=(Target(host.name, address(host), box.trunk.attached, push=known.vlan),),
            taps=edge.world_taps[::-1],
            whole=False,
        )
        for source in edge.out_of_chain
    )
    from_box = Leg(
        cookie=cookie(App.LATENCY, 4, known.vlan),
        origin=box.name,
        goal=host.name,
        note=f"class {known.name} done",
        start=box.trunk.attached,
        src=network.island,
        side=network.island,
        dst=network.world,
        targets=(Target(host.name, address(host), host.interface.attached),),
        vlan=known.vlan,
        whole=False,
    )
    return (*to_box, from_box)
