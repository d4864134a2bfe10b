# SPDX-License-Identifier: Apache-2.0
"""Parse a switch's description and table features (7.3.5.1 and 7.3.5.5 of OpenFlow 1.3.5), as far as entries use them.

Open vSwitch answers with 254 tables and every field that it knows: a hundred kilobytes, of which little is used.
"""

import struct
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from atoll_core.errors import plain
from atoll_core.openflow_wire import encoder
from atoll_core.plan.switch_features import SwitchDescription, TableFeatures

_DESCRIPTION = struct.Struct("!256s256s256s32s256s")
_TABLE = struct.Struct("!HB5x32sQQII")
_PROPERTY = struct.Struct("!HH")
_ID = struct.Struct("!I")
_EXPERIMENTER = 0xFFFF0000  # class of a match field whose id has eight bytes

# Types of properties (7.3.5.5.2)
_APPLY_ACTIONS, _MATCH, _WILDCARDS, _APPLY_SET_FIELD = 6, 8, 10, 14

_FIELD_NAMES = {  # class and number of a match field, in the upper 23 bits of its header
    encoder.IN_PORT >> 9: "in_port",
    encoder.ETH_TYPE >> 9: "eth_type",
    encoder.VLAN_VID >> 9: "vlan",
    encoder.IP_PROTO >> 9: "ip_proto",
    encoder.IPV4_SRC >> 9: "ipv4_src",
    encoder.IPV4_DST >> 9: "ipv4_dst",
    encoder.TCP_SRC >> 9: "tcp_src",
    encoder.TCP_DST >> 9: "tcp_dst",
    encoder.UDP_SRC >> 9: "udp_src",
    encoder.UDP_DST >> 9: "udp_dst",
}


def parse_description(body: bytes) -> SwitchDescription:
    """The description in the body of its reply."""
    texts = (plain(text.split(b"\0")[0].decode(errors="replace").strip()) for text in _DESCRIPTION.unpack_from(body))
    return SwitchDescription(*("" if text == "None" else text for text in texts))  # Open vSwitch's word for nothing


def parse_tables(body: bytes) -> tuple[TableFeatures, ...]:
    """The tables in the body of a table features reply; neighbours that differ only in their names are merged.

    Raises MalformedError.
    """
    merged: list[TableFeatures] = []
    for table in _parse_tables(body):
        last = merged[-1] if merged else None
        if last is not None and last == replace(table, first=last.first, last=table.first - 1, name=last.name):
            merged[-1] = replace(last, last=table.last)
        else:
            merged.append(table)
    return tuple(merged)


def _parse_tables(body: bytes) -> Iterator[TableFeatures]:
    for record in encoder.split(body, _TABLE.size):
        _, number, name, _, _, _, max_entries = _TABLE.unpack_from(record)
        properties = dict(_parse_properties(record[_TABLE.size :]))
        matches = _field_names(properties.get(_MATCH, b""))
        wildcards = _field_names(properties.get(_WILDCARDS, b""))
        yield TableFeatures(
            first=number,
            last=number,
            name=plain(name.split(b"\0")[0].decode(errors="replace")),
            max_entries=max_entries,
            matches=tuple(sorted(matches)),
            required=tuple(sorted(matches - wildcards)),
            actions=_action_names(properties.get(_APPLY_ACTIONS, b""), properties.get(_APPLY_SET_FIELD, b"")),
        )


def _parse_properties(body: bytes) -> Iterator[tuple[int, bytes]]:
    for record in encoder.split(body, _PROPERTY.size, length_offset=2, align=8):
        yield int.from_bytes(record[:2]), record[_PROPERTY.size :]


@lru_cache(maxsize=256)
def _field_names(ids: bytes) -> frozenset[str]:
    fields = {_FIELD_NAMES[number] for number in _field_numbers(ids) if number in _FIELD_NAMES}
    matches = {name for name in fields if not name.startswith(("tcp", "udp"))}
    matches |= {"untagged"} if "vlan" in fields else set()
    return frozenset(matches | {f"l4_{end}" for end in ("src", "dst") if {f"tcp_{end}", f"udp_{end}"} <= fields})


def _field_numbers(ids: bytes) -> Iterator[int]:
    offset = 0
    while offset + 4 <= len(ids):
        (header,) = _ID.unpack_from(ids, offset)
        yield header >> 9
        offset += 8 if header & _EXPERIMENTER == _EXPERIMENTER else 4


@lru_cache(maxsize=256)
def _action_names(ids: bytes, settable: bytes) -> tuple[str, ...]:
    kinds: set[int] = set()
    offset = 0
    while offset + 4 <= len(ids):
        kind, length = _PROPERTY.unpack_from(ids, offset)
        kinds.add(kind)
        offset += max(length, 4)
    names = [name for kind, name in ((encoder.OUTPUT, "Output"), (encoder.POP_VLAN, "PopVlan")) if kind in kinds]
    if encoder.PUSH_VLAN in kinds and encoder.VLAN_VID >> 9 in _field_numbers(settable):
        names.append("PushVlan")
    return tuple(names)
