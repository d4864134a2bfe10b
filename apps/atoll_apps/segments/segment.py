# SPDX-License-Identifier: Apache-2.0
"""A leg: the way of some frames from the port they enter the switches by to the ports they leave them by.

The apps say which legs there are; ``laying`` turns them into flow entries along the trunks.
"""

from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Network

from atoll_apps.segments.chain_routes import TrafficMatch
from atoll_core.lab.network import PortRef, Tap
from atoll_core.plan.tag_layout import Direction

_COOKIE_MARK = 0xA7  # the first byte of every cookie of ours


class App(IntEnum):
    """Which app asked for an entry; the second byte of its cookie."""

    DELIVERY = 1
    LATENCY = 2
    CHAIN = 3


def cookie(app: App, leg: int, subject: int = 0, route: int = 0) -> int:
    """The cookie of a leg's entries: A7, app (1 byte), leg of that app (1 byte), route (1 byte), subject (4 bytes).

    Legs are numbered in each app's module; the route is 0 for the chain that carries the rest, then the others by name;
    the subject is the class's VLAN id (latency) or the place in the chain (chain). The same leg of the same experiment
    always has the same cookie. An entry that serves several legs has the lowest.
    """
    return _COOKIE_MARK << 56 | app << 48 | leg << 40 | (route & 0xFF) << 32 | subject


@dataclass(frozen=True, slots=True)
class SegmentId:
    """Where a leg lies: in one direction of one chain, in one gap between boxes.

    Gap 0 lies before the first box, gap 1 behind it; gap -1 between world hosts and their delay box.

    Frames of one stretch are told apart by where they go; those of different stretches must never look alike.
    """

    chain: str
    direction: Direction
    gap: int


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """One end of a leg: a port, the addresses whose frames leave there, and the tag they are to leave with."""

    name: str
    dst: IPv4Network
    end: PortRef
    push: int | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """Frames of a ``stream``, from ``src`` within it, that enter at ``start`` and leave at their target.

    ``vlan``: the tag they arrive with, popped at once; None: they arrive untagged. ``taps``, in order, get an
    untagged copy on the way. ``whole``: the targets take everything of the stream, so its prefix is matched until the
    ways part. ``origin``, ``goal`` and ``note`` tell the reason for its entries: ``w3 -> island: class rtt-50``.
    ``box``: the chain box whose leg ``start`` is; None: frames come from hosts, at an edge of the chain. ``ends``: the
    switches that frames of the stretch go to from anywhere, if more than those of the targets.
    """

    cookie: int
    stretch: SegmentId
    origin: str
    goal: str
    note: str
    start: PortRef
    src: IPv4Network
    stream: TrafficMatch
    targets: tuple[SegmentEnd, ...]
    vlan: int | None = None
    taps: tuple[Tap, ...] = ()
    whole: bool = True
    box: str | None = None
    ends: tuple[str, ...] = ()

    def why(self, goal: str) -> str:
        """The reason for an entry that brings frames to ``goal``."""
        return f"{self.origin} -> {goal}: {self.note}"
