# SPDX-License-Identifier: Apache-2.0
"""A segment: the path of some frames from one port at which they enter the switches to the ports at which they leave.

The apps yield segments; ``flow_compiler`` compiles them to flow entries along the trunks.
"""

from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Network

from atoll_apps.segments.chain_routes import TrafficMatch
from atoll_core.lab.network import Tap
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.tag_layout import Direction

COOKIE_MARK = 0xA7
"""The first byte of every cookie that atoll uses."""


class App(IntEnum):
    """The app of an entry; the second byte of its cookie."""

    DELIVERY = 1
    LATENCY = 2
    CHAIN = 3
    CONTROL = 4


def cookie(app: App, segment: int, subject: int = 0, route: int = 0) -> int:
    """The cookie of a segment's entries: A7, app (1 byte), segment (1 byte), route (1 byte), subject (4 bytes).

    Segments are numbered in each app's module. The route is 0 for the main chain; the others are numbered by name. The
    subject is the class's VLAN id (latency) or the index of the gap (chain). A segment of an experiment always has the
    same cookie. An entry of several segments has the lowest.
    """
    return COOKIE_MARK << 56 | app << 48 | segment << 40 | (route & 0xFF) << 32 | subject


@dataclass(frozen=True, slots=True)
class GapId:
    """One gap between boxes, in one direction of one chain.

    Gap 0 is before the first box, gap 1 behind it, gap -1 between world hosts and their delay box.
    Frames of one gap are distinguished by their destination; frames of different gaps must be distinguishable.
    """

    chain: str
    direction: Direction
    gap: int


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """One end of a segment: a port, the destination addresses of frames that leave there, and their tag.

    ``push_last``: the last switch pushes the tag if the gap has a tag of its own, which frames then have on trunks.
    """

    name: str
    dst: IPv4Network
    end: PortRef
    push: int | None = None
    push_last: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """Frames of a ``stream``, from ``src`` within it, that enter at ``start`` and leave at their target.

    ``vlan``: the tag with which they arrive, which is popped; None: untagged. ``taps``, in order, get an untagged copy
    on the path. ``takes_all``: the targets receive the whole stream, so its prefix is matched until the paths split.
    ``origin``, ``goal`` and ``note`` form the reason of its entries: ``w3 -> island: class rtt-50``. ``box``: the chain
    box at ``start``; None: frames arrive from hosts, at an edge of the chain. ``ends``: all switches at which frames
    leave the gap, if there are more than those of the targets. ``delayed_by``: the class by which a delay box at
    ``start`` has delayed them. ``by_source``: trunks match ``src``, as untagged frames of other sources go elsewhere.
    """

    cookie: int
    gap_id: GapId
    origin: str
    goal: str
    note: str
    start: PortRef
    src: IPv4Network
    stream: TrafficMatch
    targets: tuple[SegmentEnd, ...]
    vlan: int | None = None
    taps: tuple[Tap, ...] = ()
    takes_all: bool = True
    box: str | None = None
    ends: tuple[str, ...] = ()
    delayed_by: str | None = None
    by_source: bool = False
