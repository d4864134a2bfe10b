# SPDX-License-Identifier: Apache-2.0
"""Probes of a swap: frames between hosts that prove its entries. Pure.

Together they take every entry at the edge and every new one behind it, as a switch may have some of its entries in
hardware before others.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from ipaddress import IPv4Network
from itertools import product

from atoll_apps.compiler.flow_compiler import CompiledEntry
from atoll_controller.probing.probe_frames import OTHER_PROTOCOL
from atoll_controller.tracing.table_model import Frame, Lookup, SwitchTables, matches
from atoll_core.experiment.experiment import Experiment, Protocol
from atoll_core.experiment.host_groups import Side, Sides
from atoll_core.lab.network import Host, Network
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.flow_entry import FlowEntry, Vlan
from atoll_core.plan.tag_layout import Direction

_Installed = tuple[CompiledEntry, FlowEntry]
"""A compiled entry, and the entry on the switches for it."""

# An echo request is answered by any host; the other protocols are for chains that are chosen by them.
_PROTOCOLS = (Protocol.ICMP, Protocol.UDP, Protocol.TCP, None)

_MAX_SHADOWED = 32  # frames that some other entry took, where this one could have


@dataclass(frozen=True, slots=True)
class Probe:
    """A frame from one host to another that ``entry`` takes, or will take, into ``chain``.

    ``protocol``: as the IPv4 header numbers it.
    """

    entry: FlowEntry
    src: str
    dst: str
    chain: str
    protocol: int


class Probes:
    """Finds frames that take the chains of one experiment."""

    def __init__(self, network: Network, experiment: Experiment) -> None:
        self._experiment = experiment
        self._ends = Sides(network, experiment)
        self._latency = dict(experiment.latency)
        self._hosts = {host.name: host for host in network.hosts}
        self._edge = {host.interface.attached for host in network.hosts}
        self._hosts_by_group: dict[tuple[Side, IPv4Network | None], dict[object, Host]] = {}

    def at_edge(self, entries: Iterable[_Installed]) -> tuple[Probe, ...]:
        """A frame for each of these entries of the edge, if it takes frames of any host."""
        probes = (self._probe(compiled, entry, number) for number, (compiled, entry) in enumerate(entries))
        return tuple(filter(None, probes))

    def behind(self, entries: Iterable[FlowEntry], tables: SwitchTables, probes: Sequence[Probe]) -> tuple[Probe, ...]:
        """Frames in addition to ``probes``, so that each of these entries takes one that passes the edge, if possible.

        ``tables``: those after the shift.
        """
        steps_of = cache(partial(self._steps, tables))  # many entries have the same candidates
        edge = {probe.entry for probe in probes}
        unproven = {entry for entry in entries if entry.actions and _ingress(entry) not in self._edge}
        for probe in probes:
            unproven.difference_update(_entries_used(steps_of(probe.src, probe.dst, probe.protocol)))
        further: list[Probe] = []
        for entry in [entry for entry in entries if entry in unproven]:
            shadowed = 0  # an entry of the old version takes its frames, until that is collected
            for src, dst, protocol, chain in self._candidates(entry) if entry in unproven else ():
                steps = steps_of(src, dst, protocol)
                used = _entries_used(steps)
                edge_entry = next((entry_used for entry_used in used if entry_used in edge), None)
                if edge_entry is not None and entry in used:
                    further.append(Probe(edge_entry, src, dst, chain, protocol))
                    unproven.difference_update(used)
                    break
                shadowed += any(step.at == _ingress(entry) and matches(entry.match, step.frame) for step in steps)
                if shadowed == _MAX_SHADOWED:
                    break
        return tuple(further)

    def _steps(self, tables: SwitchTables, src: str, dst: str, protocol: int) -> list[Lookup]:
        """The lookups of a host's frame on its path."""
        start, end = self._hosts[src], self._hosts[dst]
        steps = tables.walk(Frame(start.address, end.address, protocol=protocol), start.interface.attached)
        return [step for step in steps if isinstance(step, Lookup)]

    def _candidates(self, entry: FlowEntry) -> Iterator[tuple[str, str, int, str]]:
        """Pairs of hosts whose frames an entry may take, with protocol and chain: one of each two kinds of hosts."""
        match, ends = entry.match, self._ends
        for sources, targets in ((ends.world, ends.island), (ends.island, ends.world)):
            for src, dst in product(self._samples(sources, match.ipv4_src), self._samples(targets, match.ipv4_dst)):
                for number, chain in self._carriers(entry, src, dst):
                    yield src.name, dst.name, number, chain

    def _samples(self, side: Side, prefix: IPv4Network | None) -> Iterable[Host]:
        """A host of each kind within a prefix: behind the edge, packets of hosts of equal kind take the same entries.

        Unless an entry is for one address: then it is the only host within its prefix.
        """
        if (side, prefix) not in self._hosts_by_group:
            self._hosts_by_group[side, prefix] = {
                (host.interface.attached.switch, self._latency.get(host.name), side.membership(host)): host
                for host in side.hosts_in(prefix)
            }
        return self._hosts_by_group[side, prefix].values()

    def _probe(self, compiled: CompiledEntry, entry: FlowEntry, rotation: int) -> Probe | None:
        """A frame that the entry takes; the destination host changes with ``rotation``, to reach all hosts."""
        to_island = compiled.segment.gap_id.direction is Direction.TO_ISLAND
        sources, targets = (self._ends.world, self._ends.island)[:: 1 if to_island else -1]
        receivers = targets.hosts_in(entry.match.ipv4_dst)
        offset = rotation % len(receivers) if receivers else 0
        refused_groups: set[object] = set()
        for src in sources.hosts_in(entry.match.ipv4_src):
            if not self._arrives(src, compiled, entry):
                continue
            for dst in (*receivers[offset:], *receivers[:offset]):
                groups = sources.membership(src), targets.membership(dst)
                if groups in refused_groups:
                    continue
                for protocol, chain in self._carriers(entry, src, dst):
                    if chain == compiled.segment.gap_id.chain:
                        return Probe(entry, src.name, dst.name, chain, protocol)
                refused_groups.add(groups)  # the result is the same for all pairs of these groups
        return None

    def _arrives(self, src: Host, compiled: CompiledEntry, entry: FlowEntry) -> bool:
        """Whether a host's frames arrive at the start of the segment (its port or a delay box) with the entry's tag."""
        if compiled.segment.gap_id.direction is not Direction.TO_ISLAND or compiled.segment.box is not None:
            return True
        delayed_by = compiled.segment.delayed_by
        if delayed_by is not None:
            return self._latency.get(src.name) == delayed_by
        return entry.match.vlan == Vlan.UNTAGGED

    def _carriers(self, entry: FlowEntry, src: Host, dst: Host) -> Iterator[tuple[int, str]]:
        """The protocols that an entry may take between these hosts, and the chains that carry them."""
        world, island = (src, dst) if src.role.is_world else (dst, src)
        for protocol in _PROTOCOLS:
            number = OTHER_PROTOCOL if protocol is None else protocol.number
            if entry.match.ip_proto in (None, number):
                yield number, self._experiment.carrier(world.address, island.address, protocol).name


def _ingress(entry: FlowEntry) -> PortRef:
    return PortRef(entry.switch, entry.match.in_port)


def _entries_used(steps: Iterable[Lookup]) -> list[FlowEntry]:
    return [step.entry for step in steps if step.entry is not None]
