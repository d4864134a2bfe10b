# SPDX-License-Identifier: Apache-2.0
"""Compile segments to flow entries along the trunks.

Frames take the shortest path. Only one VLAN tag is ever changed: the class of a delay box, or a tag that distinguishes
two gaps of a path (``atoll_core.plan.tag_layout``). A tap on the path gets its copy where the frames pass. One
elsewhere gets it from the start of the segment, over trunks, with the tap's own tag (remote mirroring).
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Network

from atoll_apps.segments.segment import Segment, SegmentEnd
from atoll_core.lab.network import Tap
from atoll_core.lab.port_ref import PortRef
from atoll_core.lab.shortest_paths import Topology, TrunkHop
from atoll_core.plan.flow_entry import Action, FlowEntry, Match, Output, PopVlan, PushVlan, Vlan


@dataclass(frozen=True, slots=True)
class CompiledEntry:
    """A flow entry and its segment. ``at_start``: frames of the segment enter the switches here."""

    entry: FlowEntry
    segment: Segment
    at_start: bool


@dataclass(frozen=True, slots=True)
class _Arrival:
    """Frames of a segment that arrive at a switch, and their targets; ``by_tag``: the tag alone selects the target."""

    at: PortRef
    src: IPv4Network
    vlan: int | None
    targets: tuple[SegmentEnd, ...]
    by_tag: bool = False


def compile_segment(
    segment: Segment, topology: Topology, gap_vlan: int | None, tap_vlans: Mapping[str, int]
) -> Iterator[CompiledEntry]:
    """The flow entries of a segment, in the order of its path; on trunks the frames have the tag ``gap_vlan``.

    ``tap_vlans``: the tag of copies for each tap. Raises PlanError where there is no path.
    """
    common_switches = _switches_on_all_paths(segment, topology)
    remote_taps = tuple(tap for tap in segment.taps if tap.interface.attached.switch not in common_switches)
    arrivals = deque([_Arrival(segment.start, segment.src, segment.vlan, segment.targets)])
    while arrivals:
        arrival = arrivals.popleft()
        switch = arrival.at.switch
        first_actions: list[Action] = []
        at_start = arrival.at == segment.start
        vlan = _retag(first_actions, arrival.vlan, None) if at_start else arrival.vlan
        for tap in segment.taps:
            if tap.interface.attached.switch == switch and tap not in remote_taps:
                vlan = _retag(first_actions, vlan, None)
                first_actions.append(Output(tap.interface.attached.port))
        for tap in remote_taps if at_start else ():
            vlan = _retag(first_actions, vlan, tap_vlans[tap.name])
            first_actions.append(Output(topology.next_hop(switch, tap.interface.attached.switch).out.port))
        for (push, hop), targets in _targets_by_hop(arrival.targets, switch, topology).items():
            is_pushed_last = gap_vlan is not None and all(target.push_last for target in targets)
            trunk_vlan = gap_vlan if push is None or is_pushed_last else push
            actions = [*first_actions]
            _retag(actions, vlan, push if hop is None else trunk_vlan)
            if hop is None:
                for target in targets:
                    yield from _entries(segment, arrival, (target,), [*actions, Output(target.end.port)])
                continue
            yield from _entries(segment, arrival, targets, [*actions, Output(hop.out.port)])
            src = segment.src if segment.by_source else segment.stream.src
            arrivals.append(
                _Arrival(hop.arrival, src, trunk_vlan, targets, by_tag=push is not None and not is_pushed_last)
            )
    for tap in remote_taps:
        yield from _copies(segment, tap, topology, tap_vlans[tap.name])


def _switches_on_all_paths(segment: Segment, topology: Topology) -> frozenset[str]:
    """The switches that all frames of the segment pass, to any of its ends."""
    start = segment.start.switch
    ends = segment.ends or tuple(target.end.switch for target in segment.targets)
    paths = [{start, *(hop.arrival.switch for hop in topology.path(start, end))} for end in ends]
    return frozenset[str].intersection(*map(frozenset, paths)) if paths else frozenset({start})


def _copies(segment: Segment, tap: Tap, topology: Topology, vlan: int) -> Iterator[CompiledEntry]:
    """The entries that take copies from the start of the segment to a tap on another switch."""
    end = tap.interface.attached
    copy = replace(segment, goal=tap.name)
    for hop in topology.path(segment.start.switch, end.switch):
        port = hop.arrival
        if port.switch == end.switch:
            actions: list[Action] = [PopVlan(), Output(end.port)]
        else:
            actions = [Output(topology.next_hop(port.switch, end.switch).out.port)]
        target = SegmentEnd(tap.name, segment.stream.dst, end)
        yield from _entries(copy, _Arrival(port, segment.stream.src, vlan, (target,), by_tag=True), (target,), actions)


def _retag(actions: list[Action], old: int | None, new: int | None) -> int | None:
    """Add the actions that change the tag ``old`` to ``new``; returns ``new``."""
    if old != new:
        if old is not None:
            actions.append(PopVlan())
        if new is not None:
            actions.append(PushVlan(new))
    return new


def _targets_by_hop(
    targets: tuple[SegmentEnd, ...], switch: str, topology: Topology
) -> dict[tuple[int | None, TrunkHop | None], tuple[SegmentEnd, ...]]:
    """Targets by the tag that they need and the trunk towards them (None: they are on this switch)."""
    targets_by_hop: dict[tuple[int | None, TrunkHop | None], list[SegmentEnd]] = {}
    for target in targets:
        hop = None if target.end.switch == switch else topology.next_hop(switch, target.end.switch)
        targets_by_hop.setdefault((target.push, hop), []).append(target)
    return {key: tuple(ends) for key, ends in targets_by_hop.items()}


def _entries(
    segment: Segment, arrival: _Arrival, targets: tuple[SegmentEnd, ...], actions: list[Action]
) -> Iterator[CompiledEntry]:
    """The entries that forward frames for these targets: one for the whole prefix if possible, else one for each."""
    leaves_switch = any(target.end.switch != arrival.at.switch for target in targets)
    is_one_entry = arrival.by_tag or (segment.takes_all and leaves_switch and len(targets) == len(segment.targets))
    vlan = Vlan.UNTAGGED if arrival.vlan is None else arrival.vlan
    ends = [(segment.stream.dst, segment.goal)] if is_one_entry else [(target.dst, target.name) for target in targets]
    for dst, goal in ends:
        match = Match(arrival.at.port, vlan, ipv4_src=arrival.src, ipv4_dst=dst, ip_proto=segment.stream.protocol)
        reason = f"{segment.origin} -> {goal}: {segment.note}"
        entry = FlowEntry(arrival.at.switch, segment.stream.priority, match, tuple(actions), segment.cookie, reason)
        yield CompiledEntry(entry, segment, at_start=arrival.at == segment.start)
