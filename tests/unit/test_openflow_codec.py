# SPDX-License-Identifier: Apache-2.0
"""Flow entries to OpenFlow 1.3 bytes and back."""

from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser
from os_ken.ofproto.ofproto_protocol import ProtocolDesc

from atoll.model.flow import FlowEntry, ForeignEntry, Match, Output, PopVlan, PushVlan, Vlan
from atoll.openflow.codec import add_message, delete_message, entry_from

DATAPATH = ProtocolDesc(version=ofp.OFP_VERSION)

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


def sent(message: Any) -> Any:
    """The message as its receiver parses it."""
    message.set_xid(1)
    message.serialize()
    return parser.OFPFlowMod.parser(DATAPATH, ofp.OFP_VERSION, ofp.OFPT_FLOW_MOD, len(message.buf), 1, message.buf)


@given(_entries)
def test_what_is_added_is_what_is_read(entry: FlowEntry) -> None:
    """An entry comes back from the wire as it went; its table and command are the ones asked for."""
    message = sent(add_message(DATAPATH, entry, table=100))
    assert (message.table_id, message.command) == (100, ofp.OFPFC_ADD)
    assert entry_from(message, "sw") == entry


@given(_entries)
def test_deleting_is_strict(entry: FlowEntry) -> None:
    """Only the very entry is meant, by priority and match; whatever its actions and cookie are on the switch."""
    message = sent(delete_message(DATAPATH, entry, table=0))
    assert (message.command, message.priority, message.cookie_mask) == (ofp.OFPFC_DELETE_STRICT, entry.priority, 0)
    assert (message.out_port, message.out_group) == (ofp.OFPP_ANY, ofp.OFPG_ANY)
    assert dict(message.match.items()) == dict(sent(add_message(DATAPATH, entry, 0)).match.items())


def _apply(*actions: Any) -> list[Any]:
    return [parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, list(actions))]


_OUT = parser.OFPActionOutput(3)


@pytest.mark.parametrize(
    ("fields", "instructions", "options", "words"),
    [
        ({}, _apply(parser.OFPActionOutput(ofp.OFPP_NORMAL)), {}, "any frame: port NORMAL"),
        ({"in_port": 1}, _apply(parser.OFPActionOutput(ofp.OFPP_CONTROLLER)), {}, "in_port 1: port CONTROLLER"),
        ({"in_port": 1}, _apply(_OUT), {"idle_timeout": 60}, "in_port 1: port 3, idle time-out 60 s"),
        ({"in_port": 1}, [parser.OFPInstructionGotoTable(5)], {}, "in_port 1: GotoTable"),
        ({"in_port": 1}, [*_apply(_OUT), parser.OFPInstructionGotoTable(5)], {}, "in_port 1: port 3, GotoTable"),
        ({"in_port": 1, "vlan_vid": (0x1000, 0x1000)}, _apply(_OUT), {}, "in_port 1, vlan_vid 4096/4096: port 3"),
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
    made = parser.OFPFlowMod(
        DATAPATH, priority=9, cookie=4, match=parser.OFPMatch(**fields), instructions=instructions, **options
    )
    entry = entry_from(sent(made), "sw")
    assert isinstance(entry, ForeignEntry)
    assert (entry.switch, entry.priority, entry.cookie, entry.why) == ("sw", 9, 4, words)
    gone = sent(delete_message(DATAPATH, entry, table=0))
    assert dict(gone.match.items()) == dict(made.match.items())
    assert (gone.command, gone.priority) == (ofp.OFPFC_DELETE_STRICT, 9)
