# SPDX-License-Identifier: Apache-2.0
"""From legs to flow entries along the trunks.

Frames take the shortest way. They are never rewritten but for one VLAN tag: the class of a delay box, or what tells two
stretches of a way apart (``atoll_core.plan.tag_layout``). A tap on the way gets its copy where the frames pass; one
elsewhere gets it from where the leg starts, over trunks with the tap's own tag (what vendors call remote mirroring).
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Network

from atoll_apps.segments.segment import Segment, SegmentEnd
from atoll_core.lab.network import PortRef, Tap
from atoll_core.lab.shortest_paths import Topology, TrunkHop
from atoll_core.plan.flow_entry import Action, FlowEntry, Match, Output, PopVlan, PushVlan, Vlan


@dataclass(frozen=True, slots=True)
class CompiledEntry:
    """A flow entry and the leg that asked for it. ``first``: it takes the leg's frames from outside the switches."""

    entry: FlowEntry
    leg: Segment
    first: bool


@dataclass(frozen=True, slots=True)
class _Place:
    """Frames of a leg as they arrive at a switch, and where they go; ``decided``: their tag alone says where."""

    at: PortRef
    src: IPv4Network
    vlan: int | None
    targets: tuple[SegmentEnd, ...]
    decided: bool = False


def compile_segment(
    leg: Segment, fabric: Topology, carry: int | None, tap_vlans: Mapping[str, int]
) -> Iterator[CompiledEntry]:
    """The flow entries of a leg, in the order its frames meet them; on trunks the frames have the tag ``carry``.

    ``tap_vlans``: the tag of copies on their way to each tap. Raises PlanError where no trunk leads.
    """
    passed = _passed_by_all(leg, fabric)
    aside = tuple(tap for tap in leg.taps if tap.interface.attached.switch not in passed)
    waiting = deque([_Place(leg.start, leg.src, leg.vlan, leg.targets)])
    while waiting:
        place = waiting.popleft()
        switch = place.at.switch
        here: list[Action] = []
        first = place.at == leg.start
        vlan = _tag(here, place.vlan, None) if first else place.vlan
        for tap in leg.taps:
            if tap.interface.attached.switch == switch and tap not in aside:
                vlan = _tag(here, vlan, None)
                here.append(Output(tap.interface.attached.port))
        for tap in aside if first else ():
            vlan = _tag(here, vlan, tap_vlans[tap.name])
            here.append(Output(fabric.next_hop(switch, tap.interface.attached.switch).out.port))
        for (push, hop), targets in _ways(place.targets, switch, fabric).items():
            on_trunk = carry if push is None else push
            actions = [*here]
            _tag(actions, vlan, push if hop is None else on_trunk)
            if hop is None:
                for target in targets:
                    yield from _entries(leg, place, (target,), [*actions, Output(target.end.port)])
                continue
            yield from _entries(leg, place, targets, [*actions, Output(hop.out.port)])
            waiting.append(_Place(hop.arrival, leg.stream.src, on_trunk, targets, decided=push is not None))
    for tap in aside:
        yield from _copies(leg, tap, fabric, tap_vlans[tap.name])


def _passed_by_all(leg: Segment, fabric: Topology) -> frozenset[str]:
    """The switches that frames pass from the leg's start whichever end of the stretch they are for."""
    start = leg.start.switch
    ends = leg.ends or tuple(target.end.switch for target in leg.targets)
    ways = [{start, *(hop.arrival.switch for hop in fabric.path(start, end))} for end in ends]
    return frozenset[str].intersection(*map(frozenset, ways)) if ways else frozenset({start})


def _copies(leg: Segment, tap: Tap, fabric: Topology, vlan: int) -> Iterator[CompiledEntry]:
    """What brings the copies that left where the leg starts to a tap elsewhere."""
    end = tap.interface.attached
    copied = replace(leg, goal=tap.name)
    for hop in fabric.path(leg.start.switch, end.switch):
        at = hop.arrival
        if at.switch == end.switch:
            actions: list[Action] = [PopVlan(), Output(end.port)]
        else:
            actions = [Output(fabric.next_hop(at.switch, end.switch).out.port)]
        target = SegmentEnd(tap.name, leg.stream.dst, end)
        yield from _entries(copied, _Place(at, leg.stream.src, vlan, (target,), decided=True), (target,), actions)


def _tag(actions: list[Action], has: int | None, wants: int | None) -> int | None:
    """Add what makes frames with the tag ``has`` frames with the tag ``wants``; what they have then."""
    if has != wants:
        if has is not None:
            actions.append(PopVlan())
        if wants is not None:
            actions.append(PushVlan(wants))
    return wants


def _ways(
    targets: tuple[SegmentEnd, ...], switch: str, fabric: Topology
) -> dict[tuple[int | None, TrunkHop | None], tuple[SegmentEnd, ...]]:
    """Targets by the tag they need and the trunk they are behind (None: they are on this switch)."""
    ways: dict[tuple[int | None, TrunkHop | None], list[SegmentEnd]] = {}
    for target in targets:
        hop = None if target.end.switch == switch else fabric.next_hop(switch, target.end.switch)
        ways.setdefault((target.push, hop), []).append(target)
    return {way: tuple(behind) for way, behind in ways.items()}


def _entries(
    leg: Segment, place: _Place, targets: tuple[SegmentEnd, ...], actions: list[Action]
) -> Iterator[CompiledEntry]:
    """What sends the frames for these targets on: one entry for the whole prefix where possible, or one for each."""
    onward = any(target.end.switch != place.at.switch for target in targets)
    together = place.decided or (leg.whole and onward and len(targets) == len(leg.targets))
    vlan = Vlan.UNTAGGED if place.vlan is None else place.vlan
    for dst, goal in [(leg.stream.dst, leg.goal)] if together else [(target.dst, target.name) for target in targets]:
        match = Match(place.at.port, vlan, ipv4_src=place.src, ipv4_dst=dst, ip_proto=leg.stream.protocol)
        entry = FlowEntry(place.at.switch, leg.stream.priority, match, tuple(actions), leg.cookie, leg.why(goal))
        yield CompiledEntry(entry, leg, first=place.at == leg.start)
