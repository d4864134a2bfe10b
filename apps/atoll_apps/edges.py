# SPDX-License-Identifier: Apache-2.0
"""The two edges of a chain: where frames enter it and leave it, however many boxes it has, none included."""

from dataclasses import dataclass
from ipaddress import IPv4Network

from atoll.model.experiment import Experiment
from atoll.model.network import DelayBox, Host, LatencyClass, Network, PortRef, Tap
from atoll_apps.chain import boxes
from atoll_apps.legs import Target
from atoll_apps.taps import taps_by_gap


@dataclass(frozen=True, slots=True)
class Source:
    """A port through which frames come, and the addresses that may send there."""

    name: str
    start: PortRef
    src: IPv4Network


@dataclass(frozen=True, slots=True)
class Edges:
    """What delivery and latency connect: the ends of the chain, and the taps before its first and after its last box.

    Without boxes the island hosts themselves stand at both ends, and ``world_taps`` holds all taps.
    """

    into_chain: tuple[Target, ...]  # where island-bound frames go from the world edge
    into_name: str
    out_of_chain: tuple[Source, ...]  # where world-bound frames come from
    world_taps: tuple[Tap, ...]
    island_taps: tuple[Tap, ...]


def address(host: Host) -> IPv4Network:
    """The host's address as a prefix of 32 bits."""
    return IPv4Network(host.address)


def edges(network: Network, experiment: Experiment) -> Edges:
    """The edges of the experiment's chain."""
    passed = boxes(network, experiment.chain)
    gaps = taps_by_gap(network, experiment.chain)
    if passed:
        first = passed[0]
        into = (Target(first.name, network.island, first.world.attached),)
        out_of = (Source(first.name, first.world.attached, network.island),)
        return Edges(into, first.name, out_of, gaps[0], gaps[-1])
    hosts = network.island_hosts
    into = tuple(Target(host.name, address(host), host.interface.attached) for host in hosts)
    out_of = tuple(Source(host.name, host.interface.attached, address(host)) for host in hosts)
    return Edges(into, "island", out_of, gaps[0], ())


def classes(network: Network, experiment: Experiment) -> dict[str, tuple[LatencyClass, DelayBox]]:
    """For each delayed world host its latency class, and the delay box that carries it.

    Raises KeyError for a class that no delay box carries, which no resolved experiment names.
    """
    carried = {known.name: (known, box) for box in network.delay_boxes for known in box.classes}
    return {host: carried[name] for host, name in experiment.latency}
