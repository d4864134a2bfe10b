# SPDX-License-Identifier: Apache-2.0
"""Flow entries of OpenFlow 1.3 switches, as values.

Matches and actions are limited to those that old hardware does at line rate: in_port, VLAN id, eth_type (IPv4; ARP of
in-band control), IPv4 prefixes, protocol, ports; push/pop/set VLAN and output (several outputs make a tap).
"""

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Network

from atoll_core.codec import tagged

IPV4 = 0x0800
ARP = 0x0806


class Vlan(StrEnum):
    """VLAN conditions that are not a VLAN id."""

    UNTAGGED = "untagged"


@dataclass(frozen=True, slots=True)
class Match:
    """A flow entry's match; None leaves a field open. ``vlan``: a VLAN id, or Vlan.UNTAGGED."""

    in_port: int
    vlan: int | Vlan | None = None
    eth_type: int | None = IPV4
    ipv4_src: IPv4Network | None = None
    ipv4_dst: IPv4Network | None = None
    ip_proto: int | None = None
    l4_src: int | None = None
    l4_dst: int | None = None

    def __str__(self) -> str:
        vlan = (
            "any VLAN" if self.vlan is None else str(self.vlan) if isinstance(self.vlan, Vlan) else f"VLAN {self.vlan}"
        )
        text = f"port {self.in_port}, {vlan}, {self.ipv4_src or 'any'} -> {self.ipv4_dst or 'any'}"
        if self.eth_type != IPV4:
            kind = "ARP" if self.eth_type == ARP else f"EtherType {self.eth_type or 0:#06x}"
            text += ", any protocol" if self.eth_type is None else f", {kind}"
        numbers = (("protocol", self.ip_proto), ("from port", self.l4_src), ("to port", self.l4_dst))
        return text + "".join(f", {name} {number}" for name, number in numbers if number is not None)


@tagged("Output")
@dataclass(frozen=True, slots=True)
class Output:
    """Send a copy of the frame out of this port."""

    port: int


@tagged("PushVlan")
@dataclass(frozen=True, slots=True)
class PushVlan:
    """Add an 802.1Q tag with this VLAN id."""

    vlan: int


@tagged("PopVlan")
@dataclass(frozen=True, slots=True)
class PopVlan:
    """Remove the outer 802.1Q tag."""


Action = Output | PushVlan | PopVlan


EntryId = tuple[str, int, Match]
"""Switch, priority, match."""


@dataclass(frozen=True, slots=True)
class FlowEntry:
    """One entry of a switch's table: identity is (switch, priority, match)."""

    switch: str
    priority: int
    match: Match
    actions: tuple[Action, ...]
    cookie: int
    why: str  # the reason, in the user's terms; not sent to the switch

    @property
    def identity(self) -> EntryId:
        """The key by which switches distinguish entries."""
        return self.switch, self.priority, self.match

    def __str__(self) -> str:
        return f"{self.switch}: priority {self.priority}, {self.match}: {describe_actions(self.actions)}"


@dataclass(frozen=True, slots=True)
class UnmanagedEntry:
    """An entry on a switch that atoll did not install.

    No FlowEntry can express it (NORMAL, a time-out, a MAC match), or it is in another table than the plan's. This
    describes it well enough to show and delete it.
    """

    switch: str
    priority: int
    cookie: int
    oxm: str  # the match as on the wire (OpenFlow 1.3.5, 7.2.2: ofp_match), hexadecimal
    why: str  # the entry in words, as far as they go
    table: int = 0

    def __str__(self) -> str:
        return f"{self.switch}: priority {self.priority}, {self.why}"


def describe_actions(actions: tuple[Action, ...]) -> str:
    """Actions in words: ``pop, port 21, port 15``; without any, ``drop``."""
    return ", ".join(map(_describe_action, actions)) or "drop"


def _describe_action(action: Action) -> str:
    match action:
        case Output(port):
            return f"port {port}"
        case PushVlan(vlan):
            return f"push {vlan}"
        case PopVlan():
            return "pop"


def sort_key(entry: FlowEntry) -> tuple[str, int, tuple[int, ...]]:
    """The order entries are listed in: switch, priority (highest first), match field by field, open fields first."""
    match = entry.match
    vlan = 0 if match.vlan is Vlan.UNTAGGED else match.vlan
    prefixes = (*_prefix_key(match.ipv4_src), *_prefix_key(match.ipv4_dst))
    fields = (match.in_port, vlan, *prefixes, match.eth_type, match.ip_proto, match.l4_src, match.l4_dst)
    return entry.switch, -entry.priority, tuple(-1 if field is None else field for field in fields)


def _prefix_key(prefix: IPv4Network | None) -> tuple[int, int]:
    return (-1, -1) if prefix is None else (int(prefix.network_address), prefix.prefixlen)
