# SPDX-License-Identifier: Apache-2.0
"""The load that an experiment can put on trunks, and the sizes that socket buffers need.

The satellite links bound the traffic: in either direction a chain carries no more than their rate for long, so every
trunk on its path must carry that. Bytes in flight are bounded, too: beyond that the link's queue drops packets.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from atoll_core.experiment.experiment import Experiment, Link
from atoll_core.experiment.traffic import Load
from atoll_core.lab.network import DelayBox, Network, Trunk
from atoll_core.lab.port_ref import PortRef
from atoll_core.lab.shortest_paths import Topology
from atoll_core.units import Duration, Rate, Size

_MIN_RTT_NS = 10**6


@dataclass(frozen=True, slots=True)
class TrunkSteering:
    """The inputs for the trunks that frames of one chain cross, and for their rate."""

    hops: tuple[str, ...]  # boxes and taps of the network, from world to island
    links: tuple[Link, ...]
    latency: tuple[tuple[str, str], ...]  # (world host, latency class)

    @property
    def to_island(self) -> Rate:
        """The highest rate of the chain's links towards the island."""
        return max((link.to_island.rate for link in self.links), default=Rate(0))

    @property
    def to_world(self) -> Rate:
        """The highest rate of the chain's links towards the world."""
        return max((link.to_world.rate for link in self.links), default=Rate(0))


@dataclass(frozen=True, slots=True, order=True)
class _Station:
    """A host, delay box or chain box: the switches before and behind it, and those of the taps that follow it.

    Each tap has a mark of whether it copies frames to the island only.
    """

    entry_switch: str
    exit_switch: str
    taps: tuple[tuple[str, bool], ...]


def total_rates(steerings: Iterable[TrunkSteering]) -> tuple[Rate, Rate]:
    """The rates of the traffic of all chains to the island and to the world."""
    groups = _grouped_by_links(steerings)
    to_island = sum(max(steering.to_island.bit_s for steering in group) for group in groups)
    to_world = sum(max(steering.to_world.bit_s for steering in group) for group in groups)
    return Rate(to_island), Rate(to_world)


def delay_boxes_in_use(network: Network, steerings: Iterable[TrunkSteering]) -> Iterator[tuple[DelayBox, bool]]:
    """The delay boxes that frames cross, and whether they do by the trunk.

    A delayed frame crosses a trunk twice, to the box and back, so each direction carries the traffic to both ends. A
    class with ports has cables of its own, of which each direction carries one direction of the traffic.
    """
    used = {name for steering in steerings for _, name in steering.latency}
    for box in network.delay_boxes:
        if classes := [latency for latency in box.classes if latency.name in used]:
            yield box, not all(latency.ports for latency in classes)


def trunk_loads(network: Network, steerings: Iterable[TrunkSteering]) -> Iterator[tuple[Trunk, PortRef, Rate]]:
    """The load of every trunk in each direction, by the port of its switch, if one server sent everything."""
    topology = Topology.of(network)
    total: Counter[PortRef] = Counter()
    for group in _grouped_by_links(steerings):
        group_load: Counter[PortRef] = Counter()
        for steering in group:
            group_load |= _loads(network, topology, steering)
        total += group_load
    for trunk in network.trunks:
        yield from ((trunk, port, Rate(total[port])) for port in (trunk.a, trunk.b))


def _grouped_by_links(steerings: Iterable[TrunkSteering]) -> list[list[TrunkSteering]]:
    """Chains grouped by their links: chains with the same links share their rate, others add up."""
    groups: dict[frozenset[str], list[TrunkSteering]] = {}
    for steering in steerings:
        groups.setdefault(frozenset(link.box for link in steering.links), []).append(steering)
    return list(groups.values())


def _loads(network: Network, topology: Topology, steering: TrunkSteering) -> Counter[PortRef]:
    """The bit/s that leave by each trunk port."""
    island_bound: Counter[PortRef] = Counter()
    world_bound: Counter[PortRef] = Counter()
    class_by_host = dict(steering.latency)
    servers = {(host.interface.attached.switch, class_by_host.get(host.name)) for host in network.world_hosts}
    clients = {host.interface.attached.switch for host in network.island_hosts}
    paths = {tuple(_stations(network, steering, *server, client)) for server in servers for client in clients}
    for path in sorted(paths):
        island_bound |= _crossings(topology, path)
        world_bound |= _crossings(topology, _reversed(path))
    crossed = {*island_bound, *world_bound}
    to_island, to_world = steering.to_island.bit_s, steering.to_world.bit_s
    return Counter({port: island_bound[port] * to_island + world_bound[port] * to_world for port in crossed})


def longest_rtt(network: Network, steering: TrunkSteering) -> Duration:
    """The longest base RTT of the experiment: the links at their longest, and the longest latency class in use."""
    used = {name for _, name in steering.latency}
    terrestrial = [delay.rtt.ns for box in network.delay_boxes for delay in box.classes if delay.name in used]
    return Duration(rtt_of_links(steering).ns + max(terrestrial, default=0))


def rtt_of_links(steering: TrunkSteering) -> Duration:
    """The base RTT of the links at their longest."""
    directions = (direction for link in steering.links for direction in (link.to_island, link.to_world))
    return Duration(sum(direction.delays[1].ns for direction in directions))


def time_between_flows(experiment: Experiment, load: Load) -> Duration:
    """The time between two flows of a channel: two round trips of the links, and its pause."""
    rtt_ns = sum(direction.delay.ns for link in experiment.links for direction in (link.to_island, link.to_world))
    return Duration(2 * max(rtt_ns, _MIN_RTT_NS) + (load.think.mean.ns if load.think else 0))


def bottleneck(steering: TrunkSteering) -> Rate:
    """The rate of the faster direction: in each, the slowest link in the chain decides."""
    if not steering.links:
        return Rate(0)
    return max(
        min(link.to_island.rate for link in steering.links),
        min(link.to_world.rate for link in steering.links),
    )


def bandwidth_delay_product(rate: Rate, rtt: Duration) -> Size:
    """Bytes in flight that fill a path of this rate and round-trip time, rounded up."""
    return Size(-(-rate.bit_s * rtt.ns // (8 * 10**9)))


def _stations(
    network: Network, steering: TrunkSteering, switch: str, delay_class: str | None, last_switch: str
) -> Iterator[_Station]:
    """The stations on the path of an island-bound frame, and the taps behind each.

    ``switch``, ``delay_class``: of the server. ``last_switch``: that of the client.
    """
    taps = {tap.name: tap for tap in network.taps}
    boxes = {box.name: box for box in network.boxes}
    station = _Station(switch, switch, ())
    for box in network.delay_boxes:
        for ends in (box.ends(latency) for latency in box.classes if latency.name == delay_class):
            yield station
            station = _Station(ends.world.attached.switch, ends.island.attached.switch, ())
    for hop in steering.hops:
        if box := boxes.get(hop):
            yield station
            station = _Station(box.world.attached.switch, box.island.attached.switch, ())
        elif not taps[hop].physical:
            tap = (taps[hop].interface.attached.switch, taps[hop].to_island_only)
            station = replace(station, taps=(*station.taps, tap))
    yield station
    yield _Station(last_switch, last_switch, ())


def _crossings(topology: Topology, stations: Iterable[_Station]) -> Counter[PortRef]:
    """The number of times that a frame, or its copy for a tap on another switch, leaves by each trunk port."""
    crossings: Counter[PortRef] = Counter()
    for near, far in pairwise(stations):
        path = topology.path(near.exit_switch, far.entry_switch)
        crossings.update(hop.out for hop in path)
        passed = {near.exit_switch, *(hop.arrival.switch for hop in path)}
        for switch, _ in near.taps:
            if switch not in passed:
                crossings.update(hop.out for hop in topology.path(near.exit_switch, switch))
    return crossings


def _reversed(path: tuple[_Station, ...]) -> tuple[_Station, ...]:
    """The path of a frame in the other direction: the taps between two stations that see it stay there."""
    taps = [tuple(tap for tap in station.taps if not tap[1]) for station in path[:-1]]
    return tuple(
        _Station(station.exit_switch, station.entry_switch, taps_between)
        for station, taps_between in zip(reversed(path), (*reversed(taps), ()), strict=True)
    )
