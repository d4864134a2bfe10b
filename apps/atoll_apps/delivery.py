# SPDX-License-Identifier: Apache-2.0
"""Delivery: between the hosts and the ends of the chain, for all frames that need no delay.

Legs (cookie): 1 world host into the chain, 2 chain to island hosts, 3 island host into the chain, 4 chain to world
hosts. Only declared hosts may send (their whole address is matched where they are attached), and only to declared
hosts is anything delivered.
"""

from atoll.model.experiment import Experiment
from atoll.model.network import Network
from atoll_apps.chain import boxes
from atoll_apps.edges import address, classes, edges
from atoll_apps.legs import App, Leg, Target, cookie


def legs(network: Network, experiment: Experiment) -> tuple[Leg, ...]:
    """The legs of hosts that are not delayed, and those between chain and island."""
    return (*_undelayed(network, experiment), *_island(network, experiment))


def _undelayed(network: Network, experiment: Experiment) -> tuple[Leg, ...]:
    edge = edges(network, experiment)
    delayed = classes(network, experiment)
    hosts = tuple(host for host in network.world_hosts if host.name not in delayed)
    into = tuple(
        Leg(
            cookie=cookie(App.DELIVERY, 1),
            origin=host.name,
            goal=edge.into_name,
            note="not delayed",
            start=host.interface.attached,
            src=address(host),
            side=network.world,
            dst=network.island,
            targets=edge.into_chain,
            taps=edge.world_taps,
        )
        for host in hosts
    )
    back = tuple(
        Leg(
            cookie=cookie(App.DELIVERY, 4),
            origin=source.name,
            goal=host.name,
            note="not delayed",
            start=source.start,
            src=source.src,
            side=network.island,
            dst=network.world,
            targets=(Target(host.name, address(host), host.interface.attached),),
            taps=edge.world_taps[::-1],
            whole=False,
        )
        for source in edge.out_of_chain
        for host in hosts
    )
    return into + back


def _island(network: Network, experiment: Experiment) -> tuple[Leg, ...]:
    passed = boxes(network, experiment.chain)
    if not passed:
        return ()  # the world edge's legs already reach the island hosts
    last = passed[-1]
    taps = edges(network, experiment).island_taps
    into = tuple(
        Leg(
            cookie=cookie(App.DELIVERY, 3),
            origin=host.name,
            goal=last.name,
            note="into the chain",
            start=host.interface.attached,
            src=address(host),
            side=network.island,
            dst=network.world,
            targets=(Target(last.name, network.world, last.island.attached),),
            taps=taps[::-1],
        )
        for host in network.island_hosts
    )
    out = Leg(
        cookie=cookie(App.DELIVERY, 2),
        origin=last.name,
        goal="island",
        note="out of the chain",
        start=last.island.attached,
        src=network.world,
        side=network.world,
        dst=network.island,
        targets=tuple(Target(host.name, address(host), host.interface.attached) for host in network.island_hosts),
        taps=taps,
    )
    return (*into, out)
