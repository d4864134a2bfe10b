# SPDX-License-Identifier: Apache-2.0
"""Flow entries as values: what any OpenFlow 1.3 switch of the lab is asked to hold.

Matches and actions are kept to what old hardware does at line rate: in_port, VLAN id, eth_type IPv4,
IPv4 prefixes, protocol, ports; push/pop/set VLAN and output (several outputs make a tap).
"""

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Network

IPV4 = 0x0800


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


@dataclass(frozen=True, slots=True)
class Output:
    """Send a copy of the frame out of this port."""

    port: int


@dataclass(frozen=True, slots=True)
class PushVlan:
    """Add an 802.1Q tag with this VLAN id."""

    vlan: int


@dataclass(frozen=True, slots=True)
class PopVlan:
    """Remove the outer 802.1Q tag."""


Action = Output | PushVlan | PopVlan


@dataclass(frozen=True, slots=True)
class FlowEntry:
    """One entry of a switch's table: identity is (switch, priority, match)."""

    switch: str
    priority: int
    match: Match
    actions: tuple[Action, ...]
    cookie: int
    why: str  # the reason, in the user's terms; not sent to the switch
