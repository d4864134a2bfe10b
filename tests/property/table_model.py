# SPDX-License-Identifier: Apache-2.0
"""A small model of OpenFlow tables: what switches, boxes and taps do with one frame.

It knows nothing of how entries are made.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import IPv4Address

from atoll.model.flow import IPV4, FlowEntry, Match, Output, PopVlan, PushVlan, Vlan
from atoll.model.network import Network, PortRef

_MOST_STEPS = 1000


@dataclass(frozen=True)
class Frame:
    """A frame as far as flow entries see it."""

    src: IPv4Address
    dst: IPv4Address
    vlan: int | None = None
    eth_type: int = IPV4


@dataclass(frozen=True)
class Seen:
    """A machine or tap a frame came to, and the frame as it was then."""

    name: str
    frame: Frame


class TableModel:
    """The switches of a network holding some entries, its trunks, and its boxes, which pass every frame on."""

    def __init__(self, network: Network, entries: Iterable[FlowEntry]) -> None:
        self.entries = tuple(entries)
        self.far_end: dict[PortRef, PortRef] = {}
        for trunk in network.trunks:
            self.far_end |= {trunk.a: trunk.b, trunk.b: trunk.a}
        self.machines: dict[PortRef, str] = {host.interface.attached: host.name for host in network.hosts}
        self.machines |= {tap.interface.attached: tap.name for tap in network.taps}
        self.exits: dict[PortRef, PortRef] = {}
        for box in network.boxes:
            self.machines |= {box.world.attached: box.name, box.island.attached: box.name}
            self.exits |= {box.world.attached: box.island.attached, box.island.attached: box.world.attached}
        for delay in network.delay_boxes:
            self.machines[delay.trunk.attached] = delay.name
            self.exits[delay.trunk.attached] = delay.trunk.attached

    def send(self, frame: Frame, start: PortRef) -> list[Seen]:
        """What the frame and its copies come to, in order; AssertionError on loops and ambiguous entries."""
        seen: list[Seen] = []
        waiting = deque([(frame, start)])
        for _ in range(_MOST_STEPS):
            if not waiting:
                return seen
            arrived, at = waiting.popleft()
            for left, port in self.outputs(arrived, at):
                if port in self.far_end:
                    waiting.append((left, self.far_end[port]))
                    continue
                assert port in self.machines, f"sent to {port}, where nothing is attached"
                seen.append(Seen(self.machines[port], left))
                if port in self.exits:
                    waiting.append((left, self.exits[port]))
        raise AssertionError(f"{frame} loops")

    def outputs(self, frame: Frame, at: PortRef) -> list[tuple[Frame, PortRef]]:
        """The frames a switch sends for one that arrives; none if no entry matches."""
        found = [entry for entry in self.entries if entry.switch == at.switch and matches(entry.match, frame, at.port)]
        best = [entry for entry in found if entry.priority == max(each.priority for each in found)]
        assert len({entry.actions for entry in best}) <= 1, f"ambiguous at {at}: {best}"
        sent: list[tuple[Frame, PortRef]] = []
        for action in best[0].actions if best else ():
            match action:
                case PushVlan(vlan):
                    assert frame.vlan is None, "two tags"
                    frame = replace(frame, vlan=vlan)
                case PopVlan():
                    assert frame.vlan is not None, "no tag to pop"
                    frame = replace(frame, vlan=None)
                case Output(port):
                    assert port != at.port, "a switch drops output to the ingress port"
                    sent.append((frame, PortRef(at.switch, port)))
        return sent


def matches(match: Match, frame: Frame, in_port: int) -> bool:
    """Whether an entry's match takes the frame (OpenFlow 1.3.5, 7.2.2)."""
    return (
        match.in_port == in_port
        and match.eth_type in (None, frame.eth_type)
        and (match.vlan is None or match.vlan == (Vlan.UNTAGGED if frame.vlan is None else frame.vlan))
        and (match.ipv4_src is None or frame.src in match.ipv4_src)
        and (match.ipv4_dst is None or frame.dst in match.ipv4_dst)
    )
