# SPDX-License-Identifier: Apache-2.0
"""What a switch says of its entries (7.3.5.2 of OpenFlow 1.3.5), from bytes to flow entries.

Like ``wire``, made for tables of ten thousand entries. An entry is understood when packing what was understood gives
the very match that was received; any other is left as the bytes of its record, for ``foreign`` to put into words.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network
from typing import Any

from atoll.model.flow import Action, FlowEntry, Match, Output, PopVlan, PushVlan, Vlan
from atoll.openflow import wire

# length, table, seconds, nanoseconds, priority, idle, hard time-out, flags, cookie, packets, bytes
_RECORD = struct.Struct("!HBxIIHHHH4xQQQ")
_AGGREGATE = struct.Struct("!QQI4x")
_FIELD = struct.Struct("!I")
_ACTION = struct.Struct("!HH")
_TIMED_OR_FLAGGED = slice(5, 8)  # of a record's fields: what no FlowEntry has

_NUMBERS = {
    wire.IN_PORT: "in_port",
    wire.ETH_TYPE: "eth_type",
    wire.IP_PROTO: "ip_proto",
    wire.TCP_SRC: "l4_src",
    wire.TCP_DST: "l4_dst",
    wire.UDP_SRC: "l4_src",
    wire.UDP_DST: "l4_dst",
}
_PREFIXES = {
    wire.IPV4_SRC: "ipv4_src",
    wire.IPV4_SRC_MASKED: "ipv4_src",
    wire.IPV4_DST: "ipv4_dst",
    wire.IPV4_DST_MASKED: "ipv4_dst",
}


@dataclass(frozen=True, slots=True)
class Record:
    """One entry as a switch describes it: its counters and its bytes."""

    priority: int
    cookie: int
    packets: int
    octets: int
    plain: bool  # no time-out, no flag
    match: bytes  # the fields, without header and padding
    instructions: bytes
    whole: bytes

    @property
    def oxm(self) -> bytes:
        """The match as an ofp_match."""
        return wire.pack_oxm(self.match)


def records(body: bytes) -> Iterator[Record]:
    """The records of the body of a flow statistics reply."""
    offset = 0
    while offset < len(body):
        head = _RECORD.unpack_from(body, offset)
        match_at = offset + _RECORD.size
        (_, match_length) = _ACTION.unpack_from(body, match_at)
        end = offset + head[0]
        instructions_at = match_at + (match_length + 7) // 8 * 8
        yield Record(
            priority=head[4],
            cookie=head[8],
            packets=head[9],
            octets=head[10],
            plain=not any(head[_TIMED_OR_FLAGGED]),
            match=body[match_at + 4 : match_at + match_length],
            instructions=body[instructions_at:end],
            whole=body[offset:end],
        )
        offset = end


def essences(body: bytes) -> Iterator[bytes]:
    """Of each record in the body of a flow statistics reply all but its counters and its age, as ``wire.essence``."""
    for record in records(body):
        whole = record.whole
        yield whole[12:20] + whole[24:32] + wire.pack_oxm(ordered(record.match)) + record.instructions


def ordered(fields: bytes) -> bytes:
    """Match fields in the order of their numbers; switches tell them in an order of their own."""
    parts: list[bytes] = []
    offset = 0
    while offset < len(fields):
        end = offset + 4 + fields[offset + 3]
        parts.append(fields[offset:end])
        offset = end
    parts.sort()
    return b"".join(parts)


def understood(record: Record, switch: str) -> FlowEntry | None:
    """The entry of a record, if a FlowEntry says all of it."""
    if not record.plain:
        return None
    actions = _actions(record.instructions)
    match = _match(record.match)
    if actions is None or match is None:
        return None
    return FlowEntry(switch, record.priority, match, actions, record.cookie, "")


def entry_count(body: bytes) -> int:
    """The number of entries in the body of an aggregate statistics reply (7.3.5.3)."""
    return _AGGREGATE.unpack_from(body)[2]


def _match(fields: bytes) -> Match | None:
    found: dict[str, Any] = {"in_port": None, "eth_type": None}
    offset = 0
    while offset < len(fields):
        (header,) = _FIELD.unpack_from(fields, offset)
        end = offset + 4 + (header & 0xFF)
        content = fields[offset + 4 : end]
        if header in _NUMBERS:
            found[_NUMBERS[header]] = int.from_bytes(content)
        elif header in _PREFIXES:
            found[_PREFIXES[header]] = _network(content)
        elif header == wire.VLAN_VID:
            vid = int.from_bytes(content)
            found["vlan"] = vid & ~wire.VID_PRESENT if vid else Vlan.UNTAGGED
        else:
            return None
        offset = end
    if found["in_port"] is None:
        return None
    match = Match(**found)
    # A mask that is no prefix, a VLAN id without its bit, a port of no protocol: none of them is packed as it came.
    return match if wire.pack_match(match) == wire.pack_oxm(ordered(fields)) else None


@lru_cache(maxsize=65536)
def _network(content: bytes) -> IPv4Network | None:
    address, mask = content[:4], content[4:] or b"\xff\xff\xff\xff"
    try:
        return IPv4Network((int.from_bytes(address), int.from_bytes(mask).bit_count()))
    except ValueError:  # bits of the address where the mask has none
        return None


@lru_cache(maxsize=4096)
def _actions(instructions: bytes) -> tuple[Action, ...] | None:
    """The actions of an entry's only instruction, apply-actions; None if there is more to it."""
    if not instructions:
        return ()
    kind, length = _ACTION.unpack_from(instructions)
    if kind != wire.APPLY_ACTIONS or length != len(instructions):
        return None
    found: list[Action] = []
    rest = instructions[8:]
    while rest:
        kind, length = _ACTION.unpack_from(rest)
        action, rest = rest[:length], rest[length:]
        match kind:
            case wire.OUTPUT if (port := int.from_bytes(action[4:8])) <= wire.PORT_MAX:
                found.append(Output(port))
            case wire.POP_VLAN:
                found.append(PopVlan())
            case wire.PUSH_VLAN if int.from_bytes(action[4:6]) == wire.TPID and _sets_vlan(rest):
                found.append(PushVlan(int.from_bytes(rest[8:10]) & ~wire.VID_PRESENT))
                rest = rest[16:]
            case _:
                return None
    return tuple(found)


def _sets_vlan(actions: bytes) -> bool:
    """Whether the first of these actions sets the VLAN id."""
    if not actions or _ACTION.unpack_from(actions)[0] != wire.SET_FIELD:
        return False
    return _FIELD.unpack_from(actions, 4)[0] == wire.VLAN_VID
