# SPDX-License-Identifier: Apache-2.0
"""Parse the flow entries of a switch (7.3.5.2 of OpenFlow 1.3.5).

Like ``encoder``, made for tables of ten thousand entries. An entry is understood if its parsed match is packed to the
bytes that were received. Other entries remain bytes, which ``switch_session.unmanaged_entry`` describes.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network
from typing import Any

from atoll_core.openflow_wire import encoder
from atoll_core.plan.flow_entry import Action, FlowEntry, Match, Output, PopVlan, PushVlan, Vlan

# length, table, seconds, nanoseconds, priority, idle, hard time-out, flags, cookie, packets, bytes
RECORD_HEAD = struct.Struct("!HBxIIHHHH4xQQQ")
_AGGREGATE = struct.Struct("!QQI4x")
_FIELD = struct.Struct("!I")
_ACTION = struct.Struct("!HH")  # type and length, as of a match and an instruction
_MIN_RECORD = RECORD_HEAD.size + 8  # with an empty match
_MIN_INSTRUCTION, _MIN_ACTION = 8, 8  # bytes (7.2.4, 7.2.5)
_APPLY, _SET_FIELD = (struct.pack("!H", kind) for kind in (encoder.APPLY_ACTIONS, encoder.SET_FIELD))
_GOTO_TABLE = struct.pack("!H", 1)
_WITH_ACTIONS = {3, 4, 5}  # write, apply, clear
_VLAN_VID = _FIELD.pack(encoder.VLAN_VID)
_TIMEOUTS_AND_FLAGS = slice(5, 8)  # of a record's fields: those that no FlowEntry has

_NUMBER_FIELDS = {
    encoder.IN_PORT: "in_port",
    encoder.ETH_TYPE: "eth_type",
    encoder.IP_PROTO: "ip_proto",
    encoder.TCP_SRC: "l4_src",
    encoder.TCP_DST: "l4_dst",
    encoder.UDP_SRC: "l4_src",
    encoder.UDP_DST: "l4_dst",
}
_PREFIX_FIELDS = {
    encoder.IPV4_SRC: "ipv4_src",
    encoder.IPV4_SRC_MASKED: "ipv4_src",
    encoder.IPV4_DST: "ipv4_dst",
    encoder.IPV4_DST_MASKED: "ipv4_dst",
}


@dataclass(frozen=True, slots=True)
class EntryStats:
    """One entry as a switch describes it: its table, its counters and its bytes."""

    table: int
    priority: int
    cookie: int
    packets: int
    octets: int
    is_plain: bool  # no time-out, no flag
    match: bytes  # the fields, without header and padding
    instructions: bytes
    raw: bytes

    @property
    def oxm(self) -> bytes:
        """The match as an ofp_match."""
        return encoder.pack_oxm(self.match)

    @property
    def is_pipeline(self) -> bool:
        """Whether it is a table miss (5.4) that drops or leads to another table: switches with several have such."""
        goes_to_table = self.instructions[:2] == _GOTO_TABLE and len(self.instructions) == _MIN_INSTRUCTION
        return self.priority == 0 and not self.match and (goes_to_table or not self.instructions)


def records(body: bytes) -> Iterator[EntryStats]:
    """The records of the body of a flow statistics reply. Raises MalformedError."""
    for raw in encoder.split(body, _MIN_RECORD):
        head = RECORD_HEAD.unpack_from(raw)
        (_, match_length) = _ACTION.unpack_from(raw, RECORD_HEAD.size)
        match_end = RECORD_HEAD.size + match_length
        if match_length < _ACTION.size or match_end > len(raw):
            raise encoder.MalformedError(f"a match of {match_length} bytes in an entry of {len(raw)}")
        yield EntryStats(
            table=head[1],
            priority=head[4],
            cookie=head[8],
            packets=head[9],
            octets=head[10],
            is_plain=not any(head[_TIMEOUTS_AND_FLAGS]),
            match=raw[RECORD_HEAD.size + _ACTION.size : match_end],
            instructions=raw[-(-match_end // 8) * 8 :],
            raw=raw,
        )


def entry_records(body: bytes, table: int) -> Iterator[EntryStats]:
    """The records of the body of a reply about all tables, without the pipeline between those that are not ``table``.

    Raises MalformedError.
    """
    return (record for record in records(body) if record.table == table or not record.is_pipeline)


def record_key(record: EntryStats, table: int) -> bytes:
    """All of a record but its counters and its age, as ``encoder.entry_key``; the table, too, if it is another one."""
    raw = record.raw
    table_mark = b"" if record.table == table else b"table" + bytes([record.table])
    return table_mark + raw[12:20] + raw[24:32] + encoder.pack_oxm(sort_fields(record.match)) + record.instructions


def sort_fields(fields: bytes) -> bytes:
    """Match fields in the order of their numbers; switches send them in any order."""
    return b"".join(sorted(split_fields(fields)))


def split_fields(fields: bytes) -> Iterator[bytes]:
    """The match fields in bytes, each with its header (7.2.3.2)."""
    offset = 0
    while offset + _FIELD.size <= len(fields):
        end = offset + _FIELD.size + fields[offset + 3]
        yield fields[offset:end]
        offset = end


def parse_entry(record: EntryStats, switch: str) -> FlowEntry | None:
    """The entry of a record, if a FlowEntry can express it completely."""
    if not record.is_plain or (match := _parse_match(record.match)) is None:
        return None
    actions = _parse_actions(record.instructions)
    return None if actions is None else FlowEntry(switch, record.priority, match, actions, record.cookie, "")


def entry_count(body: bytes) -> int:
    """The number of entries in the body of an aggregate statistics reply (7.3.5.3)."""
    return _AGGREGATE.unpack_from(body)[2]


def _parse_match(fields: bytes) -> Match | None:
    conditions: dict[str, Any] = {"in_port": None, "eth_type": None}
    for field in split_fields(fields):
        header, content = int.from_bytes(field[:4]), field[4:]
        if header in _NUMBER_FIELDS:
            conditions[_NUMBER_FIELDS[header]] = int.from_bytes(content)
        elif header in _PREFIX_FIELDS:
            conditions[_PREFIX_FIELDS[header]] = _parse_network(content)
        elif header == encoder.VLAN_VID:
            vid = int.from_bytes(content)
            conditions["vlan"] = vid & ~encoder.VID_PRESENT if vid else Vlan.UNTAGGED
        else:
            return None
    if conditions["in_port"] is None:
        return None
    match = Match(**conditions)
    # A mask that is no prefix, a VLAN id without its bit, a port of no protocol: none of them is packed as it came.
    return match if encoder.pack_match(match) == encoder.pack_oxm(sort_fields(fields)) else None


@lru_cache(maxsize=65536)
def _parse_network(content: bytes) -> IPv4Network | None:
    address, mask = content[:4], content[4:] or b"\xff\xff\xff\xff"
    try:
        return IPv4Network((int.from_bytes(address), int.from_bytes(mask).bit_count()))
    except ValueError:  # bits of the address where the mask has none
        return None


@lru_cache(maxsize=4096)
def _parse_actions(instructions: bytes) -> tuple[Action, ...] | None:
    """The actions of an entry's only instruction, apply-actions; None if there is more to it, or it is malformed."""
    if not instructions:
        return ()
    try:
        (action_list,) = action_lists(instructions)
    except (encoder.MalformedError, ValueError):
        return None
    if not instructions.startswith(_APPLY):
        return None
    parsed: list[Action] = []
    actions = iter(action_list)
    for action in actions:
        match int.from_bytes(action[:2]):
            case encoder.OUTPUT if (port := int.from_bytes(action[4:8])) <= encoder.PORT_MAX:
                parsed.append(Output(port))
            case encoder.POP_VLAN:
                parsed.append(PopVlan())
            case encoder.PUSH_VLAN if int.from_bytes(action[4:6]) == encoder.TPID and _sets_vlan(
                set_field := next(actions, b"")
            ):
                parsed.append(PushVlan(int.from_bytes(set_field[8:10]) & ~encoder.VID_PRESENT))
            case _:
                return None
    return tuple(parsed)


def action_lists(instructions: bytes) -> list[list[bytes]]:
    """The actions of each instruction (7.2.4), without any for those of other kinds. Raises MalformedError."""
    return [
        [*encoder.split(piece[8:], _MIN_ACTION, length_offset=2)] if int.from_bytes(piece[:2]) in _WITH_ACTIONS else []
        for piece in encoder.split(instructions, _MIN_INSTRUCTION, length_offset=2)
    ]


def _sets_vlan(action: bytes) -> bool:
    """Whether an action sets the VLAN id."""
    return action[:2] == _SET_FIELD and action[4:8] == _VLAN_VID
