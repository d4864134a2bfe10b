# SPDX-License-Identifier: Apache-2.0
"""Choose probes that prove a plan: pairs of hosts whose packets, both ways, use every reachable entry. Pure."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from atoll_apps.control import is_control
from atoll_controller.fabric.swap_plan import chain_drain_ns, latency_drain_ns
from atoll_controller.probing.probe_frames import OTHER_PROTOCOL, TCP
from atoll_controller.tracing.table_model import Delivery, Frame, Lookup, Step, SwitchTables
from atoll_core.experiment.experiment import Experiment, Protocol
from atoll_core.experiment.host_groups import Sides
from atoll_core.lab.network import Host, Network
from atoll_core.plan.flow_entry import FlowEntry

_MAX_PAIRS = 4  # pairs tried for an entry that no pair before has used


@dataclass(frozen=True, slots=True)
class Path:
    """A probe from a world host to an island host and back. ``protocol``: None for one without a name.

    ``steps``: its steps on the way there. ``end``: the last station: TCP may end at a box before the destination.
    """

    world: str
    island: str
    protocol: Protocol | None
    chain: str
    steps: tuple[Step, ...]
    entries: frozenset[FlowEntry]  # used by its packets, there and back
    end: str

    @property
    def number(self) -> int:
        """The protocol as the IPv4 header numbers it."""
        return OTHER_PROTOCOL if self.protocol is None else self.protocol.number

    @property
    def name(self) -> str:
        """The protocol as text."""
        return f"protocol {OTHER_PROTOCOL}" if self.protocol is None else self.protocol.value


def covering_paths(network: Network, experiment: Experiment, entries: Iterable[FlowEntry]) -> tuple[Path, ...]:
    """A small set of paths that together use every entry that packets between hosts can use.

    Drop entries for addresses without a host are in none. Raises PlanError as ``SwitchTables.walk``.
    """
    walks = _Walks(network, experiment, entries)
    paths: list[Path] = []
    unused = set(walks.entries)
    for path in itertools.chain(_host_paths(network, walks), _entry_paths(walks, unused)):
        if path.entries & unused or not paths:
            paths.append(path)
            unused -= path.entries
    return tuple(paths)


def max_rtt_ns(network: Network, experiment: Experiment) -> int:
    """The longest time of a packet and its answer: links' full queues, delays, delay boxes."""
    chains = max(chain_drain_ns(network, experiment, chain) for chain in experiment.chains)
    return 2 * (chains + latency_drain_ns(network, experiment))


def path_of_sender(network: Network, steps: tuple[Step, ...], protocol: int, host: str) -> tuple[tuple[Step, ...], str]:
    """The part of a path for one sender's packets, and its end: a box may end TCP and open a new connection."""
    if protocol == TCP:
        ends = {box.name for box in network.boxes if box.ends_connections}
        for index, step in enumerate(steps):
            if isinstance(step, Delivery) and step.name in ends:
                return steps[: index + 1], step.name
    return steps, host


class _Walks:
    """The paths of packets through some entries."""

    def __init__(self, network: Network, experiment: Experiment, entries: Iterable[FlowEntry]) -> None:
        self.entries = tuple(entries)
        self.ends = Sides(network, experiment)
        self._network = network
        self._experiment = experiment
        self._tables = SwitchTables(network, self.entries)
        named_protocols = {chain.carries.protocol for chain in experiment.chains} - {None}
        # A protocol that selects no chain takes the path of ICMP; if ICMP selects one, that of unnamed protocols.
        default = None if Protocol.ICMP in named_protocols else Protocol.ICMP
        self.protocols = (default, *sorted(named_protocols - {None}, key=str))

    def path(self, world: Host, island: Host, protocol: Protocol | None) -> Path:
        number = OTHER_PROTOCOL if protocol is None else protocol.number
        chain = self._experiment.carrier(world.address, island.address, protocol)
        forward = self._tables.walk(Frame(world.address, island.address, protocol=number), world.interface.attached)
        backward = self._tables.walk(Frame(island.address, world.address, protocol=number), island.interface.attached)
        steps, end = path_of_sender(self._network, forward, number, island.name)
        used_steps = (*steps, *backward) if end == island.name else steps
        entries = frozenset(step.entry for step in used_steps if isinstance(step, Lookup) and step.entry is not None)
        return Path(world.name, island.name, protocol, chain.name, steps, entries, end)


def _host_paths(network: Network, walks: _Walks) -> Iterator[Path]:
    """Pairs of each protocol, so that every host is in one."""
    worlds, islands = network.world_hosts, network.island_hosts
    for protocol in walks.protocols:
        for number in range(max(len(worlds), len(islands)) if worlds and islands else 0):
            yield walks.path(worlds[number % len(worlds)], islands[number % len(islands)], protocol)


def _entry_paths(walks: _Walks, unused: set[FlowEntry]) -> Iterator[Path]:
    """For each unused entry some pairs whose packets it may match."""
    for entry in walks.entries:
        if entry in unused and entry.actions and not is_control(entry.cookie):  # the agents' connections prove those
            for candidate in itertools.islice(_candidates(walks, entry), _MAX_PAIRS):
                yield walks.path(*candidate)
                if entry not in unused:
                    break


def _candidates(walks: _Walks, entry: FlowEntry) -> Iterator[tuple[Host, Host, Protocol | None]]:
    match = entry.match
    for protocol in walks.protocols:
        if match.ip_proto not in (None, OTHER_PROTOCOL if protocol is None else protocol.number):
            continue
        for world, island in ((match.ipv4_src, match.ipv4_dst), (match.ipv4_dst, match.ipv4_src)):
            for pair in itertools.product(walks.ends.world.hosts_in(world), walks.ends.island.hosts_in(island)):
                yield *pair, protocol
