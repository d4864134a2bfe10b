# SPDX-License-Identifier: Apache-2.0
"""Flow entries to OpenFlow 1.3 bytes and back: our bytes are those that os-ken makes of the same entry."""

import random
import struct
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser
from os_ken.ofproto.ofproto_protocol import ProtocolDesc

from atoll_controller.openflow.switch_session import unmanaged_entry
from atoll_core.openflow_wire import encoder
from atoll_core.openflow_wire.flow_stats import entry_count, entry_records, parse_entry, record_key, records
from atoll_core.plan.flow_entry import Action, FlowEntry, Match, Output, PopVlan, PushVlan, UnmanagedEntry, Vlan

DATAPATH = ProtocolDesc(version=ofp.OFP_VERSION)
XID = 4711

_prefixes = st.none() | st.builds(
    lambda address, length: IPv4Network((address, length), strict=False),
    st.integers(0, 2**32 - 1).map(IPv4Address),
    st.integers(1, 32),
)
_l4 = st.none() | st.integers(0, 65535)
_matches = st.builds(
    Match,
    in_port=st.integers(1, 65279),
    vlan=st.none() | st.just(Vlan.UNTAGGED) | st.integers(1, 4094),
    ipv4_src=_prefixes,
    ipv4_dst=_prefixes,
) | st.builds(Match, in_port=st.integers(1, 65279), ip_proto=st.sampled_from([6, 17]), l4_src=_l4, l4_dst=_l4)
_actions = st.lists(
    st.builds(Output, port=st.integers(1, 65279)) | st.builds(PushVlan, vlan=st.integers(1, 4094)) | st.just(PopVlan()),
    max_size=4,
).map(tuple)
_entries = st.builds(
    FlowEntry,
    switch=st.just("sw"),
    priority=st.integers(0, 65535),
    match=_matches,
    actions=_actions,
    cookie=st.integers(0, 2**64 - 1),
    why=st.just(""),
)


def framework_fields(match: Match) -> dict[str, Any]:
    """A match in os-ken's names."""
    udp = match.ip_proto == encoder.UDP
    ends = ("udp_src", "udp_dst") if udp else ("tcp_src", "tcp_dst")
    vid = None if match.vlan is None else 0 if isinstance(match.vlan, Vlan) else match.vlan | ofp.OFPVID_PRESENT
    fields: dict[str, Any] = {
        "in_port": match.in_port,
        "vlan_vid": vid,
        "eth_type": match.eth_type,
        "ipv4_src": match.ipv4_src and (str(match.ipv4_src.network_address), str(match.ipv4_src.netmask)),
        "ipv4_dst": match.ipv4_dst and (str(match.ipv4_dst.network_address), str(match.ipv4_dst.netmask)),
        "ip_proto": match.ip_proto,
        ends[0]: match.l4_src,
        ends[1]: match.l4_dst,
    }
    for name, prefix in (("ipv4_src", match.ipv4_src), ("ipv4_dst", match.ipv4_dst)):
        if prefix is not None and prefix.prefixlen == 32:
            fields[name] = str(prefix.network_address)
    return {name: field for name, field in fields.items() if field is not None}


def framework_actions(actions: tuple[Action, ...]) -> list[Any]:
    """Actions as os-ken's objects."""
    made: list[Any] = []
    for action in actions:
        match action:
            case Output(port):
                made.append(parser.OFPActionOutput(port))
            case PushVlan(vlan):
                made.append(parser.OFPActionPushVlan(0x8100))
                made.append(parser.OFPActionSetField(vlan_vid=vlan | ofp.OFPVID_PRESENT))
            case PopVlan():
                made.append(parser.OFPActionPopVlan())
    return made


def framework_bytes(message: Any) -> bytes:
    """A message as os-ken would send it."""
    message.set_xid(XID)
    message.serialize()
    return bytes(message.buf)


def framework_flow_mod(entry: FlowEntry, **fields: Any) -> bytes:
    """A flow-mod for an entry, by os-ken."""
    return framework_bytes(
        parser.OFPFlowMod(
            DATAPATH,
            priority=entry.priority,
            out_port=ofp.OFPP_ANY,
            out_group=ofp.OFPG_ANY,
            match=parser.OFPMatch(**framework_fields(entry.match)),
            **fields,
        )
    )


def essences(body: bytes) -> list[bytes]:
    """What a reply about all tables holds, the plan's being table 0."""
    return [record_key(record, 0) for record in entry_records(body, 0)]


def as_told(entry: FlowEntry, instructions: list[Any], match: Any, **fields: Any) -> bytes:
    """An entry as a switch tells of it (7.3.5.2): a record around the match and the instructions that os-ken packs."""
    made = parser.OFPFlowMod(DATAPATH, match=match, instructions=instructions)
    answer = framework_bytes(made)[48:]
    times = [fields.get(name, 0) for name in ("idle_timeout", "hard_timeout", "flags")]
    head = struct.pack("!HBxIIHHHH4xQQQ", 48 + len(answer), 0, 1, 2, entry.priority, *times, entry.cookie, 3, 4)
    return head + answer


def _apply(*actions: Any) -> list[Any]:
    return [parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, list(actions))]


@given(_entries)
def test_adding_packs_what_os_ken_packs(entry: FlowEntry) -> None:
    """Byte for byte, whatever the entry."""
    instructions = _apply(*framework_actions(entry.actions)) if entry.actions else []
    expected = framework_flow_mod(
        entry, cookie=entry.cookie, table_id=100, command=ofp.OFPFC_ADD, instructions=instructions
    )
    assert encoder.add(entry, 100, XID) == expected


@given(_entries)
def test_deleting_is_strict_and_packs_what_os_ken_packs(entry: FlowEntry) -> None:
    """Only the very entry is meant, by priority and match; whatever its actions and cookie are on the switch."""
    assert encoder.delete(entry, 7, XID) == framework_flow_mod(entry, table_id=7, command=ofp.OFPFC_DELETE_STRICT)


@given(_entries.filter(lambda entry: entry.actions), st.binary(min_size=14, max_size=200))
def test_sending_packs_what_os_ken_packs(entry: FlowEntry, frame: bytes) -> None:
    """A frame as come in by the entry's port, with the entry's actions (without any os-ken packs it wrongly)."""
    made = parser.OFPPacketOut(
        DATAPATH, ofp.OFP_NO_BUFFER, entry.match.in_port, framework_actions(entry.actions), data=frame
    )
    assert encoder.packet_out(entry, frame, XID) == framework_bytes(made)


def test_requests_are_those_of_os_ken() -> None:
    """Barriers, and requests for entries, their number, ports, description and table features."""
    everything = parser.OFPMatch()
    assert encoder.barrier(XID) == framework_bytes(parser.OFPBarrierRequest(DATAPATH))
    for kind, request in (
        (encoder.FLOW, parser.OFPFlowStatsRequest),
        (encoder.AGGREGATE, parser.OFPAggregateStatsRequest),
    ):
        made = request(DATAPATH, 0, 5, ofp.OFPP_ANY, ofp.OFPG_ANY, 0, 0, everything)
        assert encoder.flow_request(5, XID, kind) == framework_bytes(made)
    assert encoder.port_request(XID) == framework_bytes(parser.OFPPortStatsRequest(DATAPATH, 0, ofp.OFPP_ANY))
    described = framework_bytes(parser.OFPDescStatsRequest(DATAPATH, 0))
    assert encoder.multipart_request(encoder.DESCRIPTION, XID) == described
    featured = framework_bytes(parser.OFPTableFeaturesStatsRequest(DATAPATH, 0, []))
    assert encoder.multipart_request(encoder.TABLE_FEATURES, XID) == featured


@given(st.lists(_entries, max_size=5))
def test_what_is_told_is_what_was_added(entries: list[FlowEntry]) -> None:
    """Entries come back from a switch's statistics as they went, with their counters."""
    body = told_by_switch(entries)
    assert [parse_entry(record, "sw") for record in records(body)] == entries
    assert all((record.packets, record.octets) == (3, 4) for record in records(body))


def told_by_switch(entries: list[FlowEntry]) -> bytes:
    """The body of a reply that tells of these entries."""
    return b"".join(
        as_told(
            entry,
            _apply(*framework_actions(entry.actions)) if entry.actions else [],
            parser.OFPMatch(**framework_fields(entry.match)),
        )
        for entry in entries
    )


@given(st.lists(_entries, min_size=1, max_size=5), st.randoms())
def test_a_table_has_the_digest_of_what_was_asked_for(entries: list[FlowEntry], order: random.Random) -> None:
    """In whatever order it is told; any difference shows in the digest."""
    wanted = encoder.table_digest(map(encoder.entry_key, entries))
    answer = list(entries)
    order.shuffle(answer)
    assert encoder.table_digest(essences(told_by_switch(answer))) == wanted
    assert encoder.table_digest(essences(told_by_switch(answer[1:]))) != wanted
    other = replace(answer[0], cookie=answer[0].cookie ^ 1)
    assert encoder.table_digest(essences(told_by_switch([other, *answer[1:]]))) != wanted


def test_fields_told_in_another_order_make_no_difference() -> None:
    """Open vSwitch tells the protocol after the addresses, which OpenFlow's numbers put before them."""
    entry = FlowEntry("sw", 9, Match(1, ipv4_dst=IPv4Network("10.0.0.0/8"), ip_proto=6, l4_dst=80), (), 4, "")
    (record,) = records(told_by_switch([entry]))
    fields = record.match
    protocol = fields.index(bytes.fromhex("80001401"))
    moved = fields[:protocol] + fields[protocol + 5 :] + fields[protocol : protocol + 5]
    body = record.raw[:48] + encoder.pack_oxm(moved) + record.instructions
    assert body != record.raw
    assert encoder.table_digest(essences(body)) == encoder.table_digest([encoder.entry_key(entry)])
    assert [parse_entry(each, "sw") for each in records(body)] == [entry]


def test_a_time_out_shows_in_the_digest() -> None:
    """As everything does that no plan could ask for."""
    entry = FlowEntry("sw", 9, Match(1), (), 4, "")
    body = as_told(entry, [], parser.OFPMatch(**framework_fields(entry.match)), idle_timeout=60)
    assert encoder.table_digest(essences(body)) != encoder.table_digest([encoder.entry_key(entry)])


def test_the_number_of_entries_is_read() -> None:
    """From the body of an aggregate reply: packets, bytes, entries, padding."""
    assert entry_count(bytes(16) + (4711).to_bytes(4) + bytes(4)) == 4711


_OUT = parser.OFPActionOutput(3)


@pytest.mark.parametrize(
    ("fields", "instructions", "options", "words"),
    [
        ({}, _apply(parser.OFPActionOutput(ofp.OFPP_NORMAL)), {}, "any frame: port NORMAL"),
        ({"in_port": 1}, _apply(parser.OFPActionOutput(ofp.OFPP_CONTROLLER)), {}, "in_port 1: port CONTROLLER"),
        ({"in_port": 1}, _apply(_OUT), {"idle_timeout": 60}, "in_port 1: port 3, idle time-out 60 s"),
        ({"in_port": 1}, _apply(_OUT), {"flags": 1}, "in_port 1: port 3"),
        ({"in_port": 1}, [parser.OFPInstructionGotoTable(5)], {}, "in_port 1: GotoTable"),
        ({"in_port": 1}, [*_apply(_OUT), parser.OFPInstructionGotoTable(5)], {}, "in_port 1: port 3, GotoTable"),
        ({"in_port": 1, "vlan_vid": (0x1000, 0x1000)}, _apply(_OUT), {}, "in_port 1, vlan_vid 4096/4096: port 3"),
        ({"in_port": 1, "vlan_vid": 5}, _apply(_OUT), {}, "in_port 1, vlan_vid 5: port 3"),
        (
            {"in_port": 1, "eth_type": 0x800, "ipv4_dst": ("10.0.0.1", "255.0.0.255")},
            _apply(_OUT),
            {},
            "in_port 1, eth_type 2048, ipv4_dst 10.0.0.1/255.0.0.255: port 3",
        ),
        ({"eth_dst": "02:00:00:00:00:01", "in_port": 1}, [], {}, "in_port 1, eth_dst 02:00:00:00:00:01: drop"),
        ({"in_port": 1}, _apply(parser.OFPActionPushVlan(0x88A8), _OUT), {}, "in_port 1: PushVlan, port 3"),
        ({"in_port": 1}, _apply(parser.OFPActionPushVlan(0x8100), _OUT), {}, "in_port 1: PushVlan, port 3"),
        ({"in_port": 1}, _apply(parser.OFPActionSetField(eth_src="02:00:00:00:00:01")), {}, "in_port 1: SetField"),
    ],
)
def test_what_no_plan_could_ask_for_is_foreign(
    fields: dict[str, Any], instructions: list[Any], options: dict[str, Any], words: str
) -> None:
    """It is shown in words, and can be deleted by the very match it has."""
    wanted = FlowEntry("sw", 9, Match(1), (), 4, "")
    match = parser.OFPMatch(**fields)
    (record,) = records(as_told(wanted, instructions, match, **options))
    assert parse_entry(record, "sw") is None
    entry = unmanaged_entry(record, "sw", 0)
    assert isinstance(entry, UnmanagedEntry)
    assert (entry.switch, entry.priority, entry.cookie) == ("sw", 9, 4)
    assert sorted(entry.why.split(": ")[0].split(", ")) == sorted(words.split(": ", maxsplit=1)[0].split(", "))
    assert entry.why.split(": ")[1] == words.split(": ")[1]
    made = parser.OFPFlowMod(
        DATAPATH,
        command=ofp.OFPFC_DELETE_STRICT,
        priority=9,
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
        match=match,
    )
    assert encoder.delete(entry, 0, XID) == framework_bytes(made)
