# SPDX-License-Identifier: Apache-2.0
"""What the tables of a hardware switch take, and how the switch reports them. Pure.

The pipeline is ``standard-match`` of ProCurve: table 0 is read-only and leads to the policy engine in hardware; another
table has entries in software. Sources: the profiles of switch-configs.
"""

import struct
from dataclasses import dataclass

from atoll_core.openflow_wire import encoder
from atoll_core.openflow_wire.flow_stats import action_lists, split_fields
from atoll_switches.capability_profile import Profile

START, SOFTWARE = 0, 200
"""The read-only table in which the pipeline starts; the table of entries in software."""

# Types and codes of errors (7.5.4)
BAD_REQUEST, BAD_ACTION, BAD_INSTRUCTION, BAD_MATCH, FLOW_MOD_FAILED = 1, 2, 3, 4, 5
BAD_TYPE, BAD_MULTIPART = 1, 2  # of requests
BAD_ACTION_TYPE, UNSUPPORTED_INSTRUCTION, BAD_FIELD = 0, 1, 6
TABLE_FULL, BAD_TABLE_ID, NOT_PERMITTED = 1, 2, 4  # of flow-mods

GOTO_TABLE, METER = 1, 6  # instructions (7.2.4)
_INSTRUCTIONS = {GOTO_TABLE, encoder.APPLY_ACTIONS}

_FIELD_NUMBERS = {  # of a profile's matches: numbers of match fields (7.2.3.7)
    "in_port": (0,),
    "eth_type": (5,),
    "vlan": (6,),
    "ip_proto": (10,),
    "ipv4_src": (11,),
    "ipv4_dst": (12,),
    "l4_src": (13, 15),
    "l4_dst": (14, 16),
}
_ACTION_TYPES = {
    "Output": (encoder.OUTPUT,),
    "PushVlan": (encoder.PUSH_VLAN, encoder.SET_FIELD),
    "PopVlan": (encoder.POP_VLAN,),
}
_ETH_TYPE, _VLAN_VID = 5, 6
_SOFTWARE_FIELDS = frozenset(range(17)) - {1, 2}  # in software: MAC addresses, VLAN priority and ports, too
_SOFTWARE_ACTIONS = frozenset({encoder.OUTPUT, encoder.PUSH_VLAN, encoder.POP_VLAN, encoder.SET_FIELD})
_FIELD_BYTES = {0: 4, 3: 6, 4: 6, 5: 2, 6: 2, 7: 1, 8: 1, 9: 1, 10: 1, 11: 4, 12: 4, 13: 2, 14: 2, 15: 2, 16: 2}
_MASKABLE = {3, 4, 6, 11, 12}

_FEATURES = struct.Struct("!HB5x32sQQII")
_PROPERTY = struct.Struct("!HH")
_BASIC = 0x8000  # the class of the fields of OpenFlow itself


class RefusedError(Exception):
    """The switch answers with this error: type and code."""

    def __init__(self, kind: int, code: int) -> None:
        super().__init__(kind, code)
        self.kind = kind
        self.code = code


@dataclass(frozen=True, slots=True)
class TwinTable:
    """One table. ``max_entries``: as the switch reports it."""

    number: int
    name: str
    max_entries: int
    fields: frozenset[int]
    actions: frozenset[int]
    only_ipv4: bool = False
    several_outputs: bool = True
    leads_to: int | None = None

    def require(self, match: bytes, instructions: bytes) -> None:
        """Raise RefusedError for an entry that the table does not take. ``match``: fields, in any order."""
        numbers = dict(_match_fields(match))
        if not self.fields.issuperset(numbers):
            raise RefusedError(BAD_MATCH, BAD_FIELD)
        if self.only_ipv4 and numbers.keys() != set() and numbers.get(_ETH_TYPE) != b"\x08\x00":
            raise RefusedError(BAD_MATCH, BAD_FIELD)
        for instruction in encoder.split(instructions, 8, length_offset=2):
            if int.from_bytes(instruction[:2]) not in _INSTRUCTIONS:
                raise RefusedError(BAD_INSTRUCTION, UNSUPPORTED_INSTRUCTION)
        kinds = [int.from_bytes(action[:2]) for actions in action_lists(instructions) for action in actions]
        if not self.actions.issuperset(kinds) or (kinds.count(encoder.OUTPUT) > 1 and not self.several_outputs):
            raise RefusedError(BAD_ACTION, BAD_ACTION_TYPE)

    def features(self) -> bytes:
        """Its record in a reply with table features (7.3.5.5)."""
        instructions = b"".join(_PROPERTY.pack(kind, 4) for kind in sorted(_INSTRUCTIONS))
        actions = b"".join(_PROPERTY.pack(kind, 4) for kind in sorted(self.actions))
        matches = b"".join(_field_header(field, masked=field in _MASKABLE) for field in sorted(self.fields))
        exact = b"".join(_field_header(field) for field in sorted(self.fields))
        settable = _field_header(_VLAN_VID) if encoder.SET_FIELD in self.actions else b""
        properties = b"".join(
            _packed_property(kind, ids)
            for kind, ids in (
                (0, instructions),
                (2, bytes([self.leads_to] if self.leads_to is not None else [])),
                (4, actions),
                (6, actions),
                (8, matches),
                (10, exact),
                (12, settable),
                (14, settable),
            )
        )
        name = self.name.encode().ljust(32, b"\0")
        length = _FEATURES.size + len(properties)
        return _FEATURES.pack(length, self.number, name, 0, 0, 0, self.max_entries) + properties


def tables_of(kind: Profile, max_entries: int) -> dict[int, TwinTable]:
    """The tables of a kind of hardware, by number; ``max_entries``: of the one in hardware."""
    fields = frozenset(number for name in kind.matches for number in _FIELD_NUMBERS.get(name, ()))
    actions = frozenset(kind for name in kind.actions for kind in _ACTION_TYPES.get(name, ()))
    hardware = TwinTable(
        kind.table,
        "Policy Engine Table",
        max_entries,
        fields,
        actions,
        kind.only_ipv4,
        several_outputs=kind.supports("several-outputs"),
        leads_to=SOFTWARE,
    )
    start = TwinTable(START, "Start of Pipeline", 0, frozenset(), frozenset(), leads_to=kind.table)
    software = TwinTable(SOFTWARE, "SW Table 1", 65536, _SOFTWARE_FIELDS, _SOFTWARE_ACTIONS)
    return {table.number: table for table in (start, hardware, software)}


def _match_fields(match: bytes) -> list[tuple[int, bytes]]:
    """Number and content of each field; those of other classes have numbers that no table has."""
    headers = [(int.from_bytes(field[:4]), field[4:]) for field in split_fields(match)]
    return [(header >> 9 & 0x7F if header >> 16 == _BASIC else header >> 9, content) for header, content in headers]


def _field_header(field: int, *, masked: bool = False) -> bytes:
    return struct.pack("!I", _BASIC << 16 | field << 9 | masked << 8 | _FIELD_BYTES[field] << masked)


def _packed_property(kind: int, ids: bytes) -> bytes:
    length = _PROPERTY.size + len(ids)
    return _PROPERTY.pack(kind, length) + ids + bytes(-length % 8)
