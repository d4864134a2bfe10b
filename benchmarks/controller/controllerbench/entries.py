# SPDX-License-Identifier: Apache-2.0
"""The plan that is installed: entries such as the planner makes of pairs of hosts, and the frames that prove them.

Each matches four fields (ingress port, no tag, IPv4 source, IPv4 destination; the EtherType comes with them) and has
three actions: a copy to a tap, a class tag, on to the trunk.
"""

import struct
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network

from atoll_core.plan.flow_entry import FlowEntry, Match, Output, PushVlan, Vlan

SWITCH = "sw"
DPID = 1
FROM, TRUNK, TAP = 1, 2, 3  # ports
_CLASSES = 50
_FIRST_CLASS = 101
_SOURCES = IPv4Network("10.16.0.0/12")
_DESTINATIONS = IPv4Network("10.32.0.0/12")
_PER_DESTINATION = 100
_COOKIES = 0xA7 << 56
PROTOCOL = 253  # of the pairs' packets: for experimentation (RFC 3692)


@dataclass(frozen=True, slots=True)
class Pair:
    """Frames from one host to another, and the class they are given."""

    number: int
    source: IPv4Address
    destination: IPv4Address
    vlan: int

    @property
    def cookie(self) -> int:
        """Names the entry."""
        return _COOKIES | self.number

    def entry(self) -> FlowEntry:
        """The flow entry that carries the pair's frames."""
        match = Match(
            in_port=FROM, vlan=Vlan.UNTAGGED, ipv4_src=IPv4Network(self.source), ipv4_dst=IPv4Network(self.destination)
        )
        actions = (Output(TAP), PushVlan(self.vlan), Output(TRUNK))
        return FlowEntry(SWITCH, 1000, match, actions, self.cookie, f"pair {self.number}")

    def frame(self, mark: bytes) -> bytes:
        """An untagged frame of the pair: Ethernet, IPv4, the mark."""
        body = mark.ljust(32, b"\0")
        ends = self.source.packed + self.destination.packed
        header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0, 64, PROTOCOL, 0) + ends
        return bytes.fromhex("020000000002 020000000001 0800".replace(" ", "")) + header + body


def pairs(number: int) -> list[Pair]:
    """That many pairs, no two alike."""
    return [
        Pair(
            number=index,
            source=_SOURCES[1 + index],
            destination=_DESTINATIONS[1 + index // _PER_DESTINATION],
            vlan=_FIRST_CLASS + index % _CLASSES,
        )
        for index in range(number)
    ]


def reclassified(old: list[Pair], index: int) -> list[Pair]:
    """The same plan but for one pair, whose latency class is another one."""
    other = _FIRST_CLASS + (old[index].vlan - _FIRST_CLASS + 1) % _CLASSES
    return [*old[:index], replace(old[index], vlan=other), *old[index + 1 :]]
