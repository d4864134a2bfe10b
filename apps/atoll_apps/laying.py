# SPDX-License-Identifier: Apache-2.0
"""From legs to flow entries along the trunks.

Frames are never rewritten but for one VLAN tag: the class of a delay box, or what tells two stretches of a way apart
(``atoll.model.layout``). It is popped where a leg starts, and before every copy for a tap.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network

from atoll.model.errors import PlanError
from atoll.model.flow import Action, FlowEntry, Match, Output, PopVlan, PushVlan, Vlan
from atoll.model.network import PortRef, Tap
from atoll.model.paths import Fabric, Hop
from atoll_apps.legs import Leg, Target


@dataclass(frozen=True, slots=True)
class Laid:
    """A flow entry and the leg that asked for it. ``first``: it takes the leg's frames from outside the switches."""

    entry: FlowEntry
    leg: Leg
    first: bool


@dataclass(frozen=True, slots=True)
class _Place:
    """Frames of a leg as they arrive at a switch: what they carry, and what is still to be done with them.

    ``decided``: their tag alone says where they go.
    """

    at: PortRef
    src: IPv4Network
    vlan: int | None
    taps: tuple[Tap, ...]
    targets: tuple[Target, ...]
    decided: bool = False


def lay(leg: Leg, fabric: Fabric, carry: int | None) -> Iterator[Laid]:
    """The flow entries of a leg, in the order its frames meet them; on trunks the frames have the tag ``carry``.

    Raises PlanError where frames would have to leave a switch by the port they came in.
    """
    waiting = deque([_Place(leg.start, leg.src, leg.vlan, leg.taps, leg.targets)])
    while waiting:
        place = waiting.popleft()
        switch = place.at.switch
        vlan, here = place.vlan, list[Action]()
        if place.at == leg.start and vlan is not None:
            vlan = _tag(here, vlan, None)
        taps = place.taps
        while taps and taps[0].interface.attached.switch == switch:
            vlan = _tag(here, vlan, None)
            here.append(Output(taps[0].interface.attached.port))
            taps = taps[1:]
        if taps:
            hop = fabric.next_hop(switch, taps[0].interface.attached.switch)
            _tag(here, vlan, carry)
            yield from _entries(leg, place, place.targets, [*here, Output(hop.out.port)])
            waiting.append(_Place(hop.arrival, leg.stream.src, carry, taps, place.targets))
            continue
        for (push, hop), targets in _ways(place.targets, switch, fabric).items():
            on_trunk = carry if push is None else push
            actions = [*here]
            _tag(actions, vlan, push if hop is None else on_trunk)
            if hop is None:
                for target in targets:
                    yield from _entries(leg, place, (target,), [*actions, Output(target.end.port)])
                continue
            yield from _entries(leg, place, targets, [*actions, Output(hop.out.port)])
            decided = push is not None
            waiting.append(_Place(hop.arrival, leg.stream.src, on_trunk, (), targets, decided))


def _tag(actions: list[Action], has: int | None, wants: int | None) -> int | None:
    """Add what makes frames with the tag ``has`` frames with the tag ``wants``; what they have then."""
    if has != wants:
        if has is not None:
            actions.append(PopVlan())
        if wants is not None:
            actions.append(PushVlan(wants))
    return wants


def _ways(
    targets: tuple[Target, ...], switch: str, fabric: Fabric
) -> dict[tuple[int | None, Hop | None], tuple[Target, ...]]:
    """Targets by the tag they need and the trunk they are behind (None: they are on this switch)."""
    ways: dict[tuple[int | None, Hop | None], tuple[Target, ...]] = {}
    for target in targets:
        hop = None if target.end.switch == switch else fabric.next_hop(switch, target.end.switch)
        ways[target.push, hop] = (*ways.get((target.push, hop), ()), target)
    return ways


def _entries(leg: Leg, place: _Place, targets: tuple[Target, ...], actions: list[Action]) -> Iterator[Laid]:
    """What sends the frames for these targets on: one entry for the whole prefix where possible, or one for each."""
    if Output(place.at.port) in actions:
        # OpenFlow 1.3.5, 5.1: a frame is never sent out of its own ingress port by a plain output action.
        msg = (
            f"{leg.why(leg.goal)}: the frames would have to leave {place.at.switch} by port {place.at.port}, "
            "through which they come; put the taps and boxes they pass one after the other on one switch, "
            "or on a way that does not turn back"
        )
        raise PlanError(msg)
    onward = any(target.end.switch != place.at.switch for target in targets)
    together = place.decided or (leg.whole and onward and len(targets) == len(leg.targets))
    vlan = Vlan.UNTAGGED if place.vlan is None else place.vlan
    for dst, goal in [(leg.stream.dst, leg.goal)] if together else [(target.dst, target.name) for target in targets]:
        match = Match(place.at.port, vlan, ipv4_src=place.src, ipv4_dst=dst, ip_proto=leg.stream.protocol)
        entry = FlowEntry(place.at.switch, leg.stream.priority, match, tuple(actions), leg.cookie, leg.why(goal))
        yield Laid(entry, leg, first=place.at == leg.start)
