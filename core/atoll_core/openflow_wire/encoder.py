# SPDX-License-Identifier: Apache-2.0
"""Messages to a switch, packed by hand: flow-mods, packets out, barriers and requests for statistics, as bytes.

Plans of ten thousand entries go through here, and building a framework's objects for them would take most of the time
of an installation. ``test_openflow_codec.py`` proves the bytes equal to what os-ken makes of the same entry.
Section numbers are those of OpenFlow 1.3.5.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Network

from atoll_core.plan.flow_entry import Action, FlowEntry, Match, Output, PopVlan, PushVlan, UnmanagedEntry, Vlan

VERSION = 0x04  # OpenFlow 1.3
VID_PRESENT = 0x1000  # OFPVID_PRESENT (7.2.3.7)
TPID = 0x8100  # 802.1Q
UDP = 17
PORT_MAX = 0xFFFFFF00  # OFPP_MAX (7.2.1): reserved ports are above

# Types of messages (7.1) and of multipart messages (7.3.5)
PACKET_OUT, FLOW_MOD, GROUP_MOD, METER_MOD = 13, 14, 15, 29
MULTIPART_REQUEST, MULTIPART_REPLY, BARRIER_REQUEST = 18, 19, 20
DESCRIPTION, FLOW, AGGREGATE, TABLE_STATISTICS, PORT_STATISTICS = range(5)
GROUPS, METERS, TABLE_FEATURES = 7, 10, 12

# Headers of the match fields that entries use (7.2.3.2: class 0x8000, field, has-mask, bytes), in the fields' order.
IN_PORT, ETH_TYPE, VLAN_VID, IP_PROTO = 0x80000004, 0x80000A02, 0x80000C02, 0x80001401
IPV4_SRC, IPV4_SRC_MASKED, IPV4_DST, IPV4_DST_MASKED = 0x80001604, 0x80001708, 0x80001804, 0x80001908
TCP_SRC, TCP_DST, UDP_SRC, UDP_DST = 0x80001A02, 0x80001C02, 0x80001E02, 0x80002002

# Types of actions (7.2.5) and the one instruction used (7.2.4)
OUTPUT, PUSH_VLAN, POP_VLAN, SET_FIELD = 0, 17, 18, 25
APPLY_ACTIONS = 4

ALL_TABLES = 0xFF  # OFPTT_ALL (7.3.4.1)
_ANY = 0xFFFFFFFF  # OFPP_ANY, OFPG_ANY and OFP_NO_BUFFER alike
_FULL_PACKET = 0xFFE5  # OFPCML_MAX
_ADD, _DELETE_STRICT = 0, 4  # commands of a flow-mod (7.3.4.2)
_DELETE = 2  # of a group-mod (7.3.4.3) and of a meter-mod (7.3.4.5) alike

HEADER = struct.Struct("!BBHI")
FLOW_MOD_HEAD = struct.Struct("!BBHIQQBBHHHIIIH2x")
_PACKET_OUT = struct.Struct("!BBHIIIH6x")
_GROUP_OR_METER_MOD = struct.Struct("!BBHIHHI")
_GROUP, _METER = struct.Struct("!H2xI"), struct.Struct("!HHI")  # length and number of a description (7.3.5.9, 7.3.5.13)
_MULTIPART = struct.Struct("!BBHIHH4x")
FLOW_REQUEST_BODY = struct.Struct("!B3xII4xQQ")
_KEY_HEAD = struct.Struct("!HHHHQ")  # priority, idle and hard time-out, flags, cookie
_OUTPUT = struct.Struct("!HHIH6x")
_PUSH_VLAN = struct.Struct("!HHH2x")
_SET_VLAN = struct.Struct("!HHIH6x")
_POP_VLAN = struct.pack("!HH4x", POP_VLAN, 8)
_U8, _U16, _U32, _MASKED = struct.Struct("!IB"), struct.Struct("!IH"), struct.Struct("!II"), struct.Struct("!III")


class MalformedError(Exception):
    """A switch sent bytes that OpenFlow does not allow; the message is one line."""


def split(body: bytes, min_length: int, length_offset: int = 0, align: int = 1) -> Iterator[bytes]:
    """The records of a body, each of which has its own length in two bytes at ``length_offset``.

    ``align``: each record is padded to a multiple of it. Raises MalformedError at a record that is shorter than
    ``min_length`` bytes, which could have no end, or that ends behind the body.
    """
    offset = 0
    while offset < len(body):
        length = int.from_bytes(body[offset + length_offset : offset + length_offset + 2])
        if length < min_length or offset + length > len(body):
            raise MalformedError(f"a record of {length} bytes at byte {offset} of {len(body)}")
        yield body[offset : offset + length]
        offset += -(-length // align) * align


def add(entry: FlowEntry, table: int, xid: int) -> bytes:
    """The flow-mod that adds the entry, or replaces the one of the same priority and match (6.4)."""
    actions = _pack_instructions(entry.actions)
    return flow_mod(xid, entry.cookie, table, _ADD, entry.priority, pack_match(entry.match), actions)


def delete(entry: FlowEntry | UnmanagedEntry, table: int, xid: int) -> bytes:
    """The flow-mod that deletes exactly this entry, with any actions and cookie (strict: 6.4).

    ``table``: where entries of plans are; a foreign one knows its own.
    """
    if isinstance(entry, UnmanagedEntry):
        return flow_mod(xid, 0, entry.table, _DELETE_STRICT, entry.priority, bytes.fromhex(entry.oxm), b"")
    return flow_mod(xid, 0, table, _DELETE_STRICT, entry.priority, pack_match(entry.match), b"")


def entry_key(entry: FlowEntry) -> bytes:
    """The bytes that identify an entry, as ``flow_stats.record_key`` of the same entry in a switch's table."""
    head = _KEY_HEAD.pack(entry.priority, 0, 0, 0, entry.cookie)
    return head + pack_match(entry.match) + _pack_instructions(entry.actions)


def table_digest(keys: Iterable[bytes]) -> str:
    """The digest of a table's content, independent of the order of its entries: equal digests, equal tables."""
    total = hashlib.sha256()
    for key in sorted(keys):
        total.update(len(key).to_bytes(4))
        total.update(key)
    return total.hexdigest()


def message(kind: int, xid: bytes = bytes(4), body: bytes = b"") -> bytes:
    """A message of this type (7.1)."""
    return struct.pack("!BBH", VERSION, kind, HEADER.size + len(body)) + xid + body


def barrier(xid: int) -> bytes:
    """A barrier request (7.3.8): its reply confirms that all messages before it were processed."""
    return HEADER.pack(VERSION, BARRIER_REQUEST, HEADER.size, xid)


def delete_group(group: int, xid: int) -> bytes:
    """The group-mod that deletes a group (7.3.4.3), and with it the entries that refer to it."""
    return _GROUP_OR_METER_MOD.pack(VERSION, GROUP_MOD, _GROUP_OR_METER_MOD.size, xid, _DELETE, 0, group)


def delete_meter(meter: int, xid: int) -> bytes:
    """The meter-mod that deletes a meter (7.3.4.5), and with it the entries that refer to it."""
    return _GROUP_OR_METER_MOD.pack(VERSION, METER_MOD, _GROUP_OR_METER_MOD.size, xid, _DELETE, 0, meter)


def meter_request(xid: int) -> bytes:
    """A request for the configuration of all meters (7.3.5.13)."""
    return multipart_request(METERS, xid, struct.pack("!I4x", _ANY))


def group_numbers(body: bytes) -> tuple[int, ...]:
    """The numbers of the groups that a reply describes (7.3.5.9), ascending."""
    return _numbers(_GROUP, body)


def meter_numbers(body: bytes) -> tuple[int, ...]:
    """The numbers of the meters that a reply describes (7.3.5.13), ascending."""
    return _numbers(_METER, body)


def _numbers(head: struct.Struct, body: bytes) -> tuple[int, ...]:
    return tuple(sorted(head.unpack_from(piece)[-1] for piece in split(body, head.size)))


def packet_out(entry: FlowEntry, frame: bytes, xid: int) -> bytes:
    """The message that has a switch deal with a frame as the entry would: as come in by its port (7.3.7)."""
    actions = _pack_actions(entry.actions)
    length = _PACKET_OUT.size + len(actions) + len(frame)
    head = (VERSION, PACKET_OUT, length, xid, _ANY, entry.match.in_port, len(actions))
    return _PACKET_OUT.pack(*head) + actions + frame


def flow_request(table: int, xid: int, kind: int = FLOW) -> bytes:
    """A request for all entries of a table (FLOW: 7.3.5.2), or for their number and sums (AGGREGATE: 7.3.5.3)."""
    return multipart_request(kind, xid, FLOW_REQUEST_BODY.pack(table, _ANY, _ANY, 0, 0) + pack_oxm(b""))


def port_request(xid: int) -> bytes:
    """A request for the counters of all ports (7.3.5.6)."""
    return multipart_request(PORT_STATISTICS, xid, struct.pack("!I4x", _ANY))


def multipart_request(kind: int, xid: int, body: bytes = b"") -> bytes:
    """A multipart request of that kind (7.3.5), all of it in one message."""
    return _MULTIPART.pack(VERSION, MULTIPART_REQUEST, _MULTIPART.size + len(body), xid, kind, 0) + body


def pack_match(match: Match) -> bytes:
    """An ofp_match (7.2.3.1): the fields in the order of their numbers, padded to 8 bytes."""
    return pack_oxm(match_fields(match))


def match_fields(match: Match) -> bytes:
    """The fields of a match in the order of their numbers (7.2.3.2)."""
    fields = [_U32.pack(IN_PORT, match.in_port)]
    if match.eth_type is not None:
        fields.append(_U16.pack(ETH_TYPE, match.eth_type))
    if match.vlan is not None:
        vid = 0 if isinstance(match.vlan, Vlan) else match.vlan | VID_PRESENT
        fields.append(_U16.pack(VLAN_VID, vid))
    if match.ip_proto is not None:
        fields.append(_U8.pack(IP_PROTO, match.ip_proto))
    if match.ipv4_src is not None:
        fields.append(_pack_prefix(match.ipv4_src, IPV4_SRC, IPV4_SRC_MASKED))
    if match.ipv4_dst is not None:
        fields.append(_pack_prefix(match.ipv4_dst, IPV4_DST, IPV4_DST_MASKED))
    source, destination = (UDP_SRC, UDP_DST) if match.ip_proto == UDP else (TCP_SRC, TCP_DST)
    if match.l4_src is not None:
        fields.append(_U16.pack(source, match.l4_src))
    if match.l4_dst is not None:
        fields.append(_U16.pack(destination, match.l4_dst))
    return b"".join(fields)


def pack_oxm(fields: bytes) -> bytes:
    """An ofp_match around fields that are packed already."""
    length = 4 + len(fields)  # of the match without its padding
    return struct.pack("!HH", 1, length) + fields + bytes(-length % 8)


@lru_cache(maxsize=4096)
def _pack_prefix(prefix: IPv4Network, exact: int, masked: int) -> bytes:
    address = int(prefix.network_address)
    if prefix.prefixlen == prefix.max_prefixlen:
        return _U32.pack(exact, address)
    return _MASKED.pack(masked, address, int(prefix.netmask))


@lru_cache(maxsize=4096)
def _pack_instructions(actions: tuple[Action, ...]) -> bytes:
    """The one instruction that applies the actions; none at all for an entry that drops."""
    if not actions:
        return b""
    packed = _pack_actions(actions)
    return struct.pack("!HH4x", APPLY_ACTIONS, 8 + len(packed)) + packed


def _pack_actions(actions: tuple[Action, ...]) -> bytes:
    return b"".join(_pack_action(action) for action in actions)


def _pack_action(action: Action) -> bytes:
    match action:
        case Output(port):
            return _OUTPUT.pack(OUTPUT, 16, port, _FULL_PACKET)
        case PushVlan(vlan):
            return _PUSH_VLAN.pack(PUSH_VLAN, 8, TPID) + _SET_VLAN.pack(SET_FIELD, 16, VLAN_VID, vlan | VID_PRESENT)
        case PopVlan():
            return _POP_VLAN


def flow_mod(xid: int, cookie: int, table: int, command: int, priority: int, match: bytes, packed: bytes) -> bytes:
    """A flow-mod (7.3.4.2); ``match``: an ofp_match, ``packed``: the instructions."""
    length = FLOW_MOD_HEAD.size + len(match) + len(packed)
    head = (VERSION, FLOW_MOD, length, xid, cookie, 0, table, command, 0, 0, priority, _ANY, _ANY, _ANY, 0)
    return FLOW_MOD_HEAD.pack(*head) + match + packed
