# SPDX-License-Identifier: Apache-2.0
"""A leg: the way of some frames from the port they enter the switches by to the ports they leave them by.

The apps say which legs there are; ``lay`` turns one into the flow entries along the trunks. Frames are never
rewritten except for a latency class's VLAN tag, which is popped where a leg starts and pushed after its last tap.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from ipaddress import IPv4Network

from atoll.model.errors import PlanError
from atoll.model.flow import Action, FlowEntry, Match, Output, PopVlan, PushVlan, Vlan
from atoll.model.network import PortRef, Tap
from atoll.model.paths import Fabric, Hop

# Entries of one plan never overlap, so one priority serves all. Below it the table miss drops; above it there is room.
PRIORITY = 1000

_COOKIE_MARK = 0xA7  # the first byte of every cookie of ours


class App(IntEnum):
    """Which app asked for an entry; the second byte of its cookie."""

    DELIVERY = 1
    LATENCY = 2
    CHAIN = 3


def cookie(app: App, leg: int, subject: int = 0) -> int:
    """The cookie of a leg's entries: A7, app (1 byte), leg of that app (1 byte), a zero byte, subject (4 bytes).

    Legs are numbered in each app's module; the subject is the class's VLAN id (latency) or the place in the chain
    (chain). The same leg of the same experiment always has the same cookie. An entry that serves several legs has
    the lowest.
    """
    return _COOKIE_MARK << 56 | app << 48 | leg << 40 | subject


@dataclass(frozen=True, slots=True)
class Target:
    """One end of a leg: a port, the addresses whose frames leave there, and the class tag they are to leave with."""

    name: str
    dst: IPv4Network
    end: PortRef
    push: int | None = None


@dataclass(frozen=True, slots=True)
class Leg:
    """Frames from ``src`` (of the prefix ``side``) to ``dst`` that enter at ``start`` and leave at their target.

    ``vlan``: the class tag they arrive with, popped at once; None: they arrive untagged. ``taps``, in order, get an
    untagged copy on the way. ``whole``: the targets take everything for ``dst``, so the prefix is matched until the
    ways part. ``origin``, ``goal`` and ``note`` tell the reason for its entries: ``w3 -> island: class rtt-50``.
    """

    cookie: int
    origin: str
    goal: str
    note: str
    start: PortRef
    src: IPv4Network
    side: IPv4Network
    dst: IPv4Network
    targets: tuple[Target, ...]
    vlan: int | None = None
    taps: tuple[Tap, ...] = ()
    whole: bool = True

    def why(self, goal: str) -> str:
        """The reason for an entry that brings frames to ``goal``."""
        return f"{self.origin} -> {goal}: {self.note}"


@dataclass(frozen=True, slots=True)
class _Place:
    """Frames of a leg as they arrive at a switch: what they carry, and what is still to be done with them."""

    at: PortRef
    src: IPv4Network
    vlan: int | Vlan
    pop: bool
    taps: tuple[Tap, ...]
    targets: tuple[Target, ...]


def lay(leg: Leg, fabric: Fabric) -> Iterator[FlowEntry]:
    """The flow entries of a leg, in the order its frames meet them.

    Raises PlanError where frames would have to leave a switch by the port they came in.
    """
    arrived = Vlan.UNTAGGED if leg.vlan is None else leg.vlan
    waiting = deque([_Place(leg.start, leg.src, arrived, leg.vlan is not None, leg.taps, leg.targets)])
    while waiting:
        place = waiting.popleft()
        switch = place.at.switch
        here: list[Action] = [PopVlan()] if place.pop else []
        taps = place.taps
        while taps and taps[0].interface.attached.switch == switch:
            here.append(Output(taps[0].interface.attached.port))
            taps = taps[1:]
        vlan = Vlan.UNTAGGED if place.pop else place.vlan
        if taps:
            hop = fabric.next_hop(switch, taps[0].interface.attached.switch)
            yield from _entries(leg, place, place.targets, [*here, Output(hop.out.port)])
            waiting.append(_Place(hop.arrival, leg.side, vlan, False, taps, place.targets))
            continue
        for (push, hop), targets in _ways(place.targets, switch, fabric).items():
            tag: list[Action] = [] if push is None else [PushVlan(push)]
            if hop is None:
                for target in targets:
                    yield from _entries(leg, place, (target,), [*here, *tag, Output(target.end.port)])
                continue
            yield from _entries(leg, place, targets, [*here, *tag, Output(hop.out.port)])
            onward = tuple(replace(target, push=None) for target in targets)
            waiting.append(_Place(hop.arrival, leg.side, vlan if push is None else push, False, (), onward))


def _ways(
    targets: tuple[Target, ...], switch: str, fabric: Fabric
) -> dict[tuple[int | None, Hop | None], tuple[Target, ...]]:
    """Targets by the tag they need and the trunk they are behind (None: they are on this switch)."""
    ways: dict[tuple[int | None, Hop | None], tuple[Target, ...]] = {}
    for target in targets:
        hop = None if target.end.switch == switch else fabric.next_hop(switch, target.end.switch)
        ways[target.push, hop] = (*ways.get((target.push, hop), ()), target)
    return ways


def _entries(leg: Leg, place: _Place, targets: tuple[Target, ...], actions: list[Action]) -> Iterator[FlowEntry]:
    """What sends the frames for these targets on: one entry for the whole prefix where possible, or one for each.

    A class tag alone decides where a frame goes: tagged frames on their way to the delay box need only the prefix.
    """
    if Output(place.at.port) in actions:
        # OpenFlow 1.3.5, 5.1: a frame is never sent out of its own ingress port by a plain output action.
        msg = (
            f"{leg.why(leg.goal)}: the frames would have to leave {place.at.switch} by port {place.at.port}, "
            "through which they come; put the taps and boxes they pass one after the other on one switch, "
            "or on a way that does not turn back"
        )
        raise PlanError(msg)
    tagged = isinstance(place.vlan, int) and not place.pop
    onward = any(target.end.switch != place.at.switch for target in targets)
    together = tagged or (leg.whole and onward and len(targets) == len(leg.targets))
    for dst, goal in [(leg.dst, leg.goal)] if together else [(target.dst, target.name) for target in targets]:
        match = Match(in_port=place.at.port, vlan=place.vlan, ipv4_src=place.src, ipv4_dst=dst)
        yield FlowEntry(place.at.switch, PRIORITY, match, tuple(actions), leg.cookie, leg.why(goal))
