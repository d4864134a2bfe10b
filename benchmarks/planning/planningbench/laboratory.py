# SPDX-License-Identifier: Apache-2.0
"""The full-size laboratory with as many world servers and island clients as are asked for."""

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

from atoll_core.description.loader import load_experiment
from atoll_core.experiment.experiment import Chain, Experiment, Protocol, TrafficSelector
from atoll_core.lab.network import Host, HostRole, Interface, Network
from atoll_core.lab.port_ref import PortRef

_LABORATORY = Path(__file__).parents[3] / "examples" / "laboratory.yaml"
_FIRST_PORT = 1000
_GROWN = {
    HostRole.WORLD_SERVER: ("w", ("sw-w1", "sw-w2")),
    HostRole.ISLAND_CLIENT: ("pi", ("sw-i1", "sw-i2")),
}


def laboratory(servers: int, clients: int) -> tuple[Network, Experiment]:
    """The laboratory of that size and its experiment: each server has a latency class, two or more share one."""
    network, experiment = load_experiment(_LABORATORY)
    numbers = {HostRole.WORLD_SERVER: servers, HostRole.ISLAND_CLIENT: clients}
    others = tuple(host for host in network.hosts if host.role not in numbers)
    hosts = tuple(host for role, number in numbers.items() for host in _hosts(network, role, number))
    classes = [known.name for box in network.delay_boxes for known in box.classes]
    delayed = [host.name for host in (*hosts, *others) if host.role.is_world]
    latency = tuple((name, classes[number % len(classes)]) for number, name in enumerate(delayed))
    return replace(network, hosts=(*hosts, *others)), replace(experiment, latency=latency)


def without(experiment: Experiment, *hops: str) -> Experiment:
    """The experiment without these boxes and taps in its chain."""
    rest = tuple(hop for hop in experiment.chain.hops if hop not in hops)
    return replace(experiment, chain=replace(experiment.chain, hops=rest))


def branched(network: Network, experiment: Experiment) -> Experiment:
    """The experiment with a chain for one protocol and one for a quarter of the island."""
    hops = without(experiment, "pep-w", "pep-i").chain.hops
    quarter = IPv4Network((network.island[4 * 256], 24))
    return replace(
        experiment,
        branches=(
            Chain("pings", hops, TrafficSelector(protocol=Protocol.ICMP)),
            Chain("quarter", hops, TrafficSelector(island=quarter)),
        ),
    )


def _hosts(network: Network, role: HostRole, number: int) -> Iterator[Host]:
    prefix, switches = _GROWN[role]
    base = (network.world if role.is_world else network.island)[4 * 256 + 1]
    side = 1 if role.is_world else 2
    for index in range(number):
        attached = PortRef(switches[index % len(switches)], _FIRST_PORT + index // len(switches))
        mac = f"02:00:{side:02x}:00:{index >> 8:02x}:{index & 0xFF:02x}"
        name = f"{prefix}{index + 1}"
        yield Host(name, role, base + index, Interface(f"{name}-eth0", mac, attached))
