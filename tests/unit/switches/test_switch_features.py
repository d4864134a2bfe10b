# SPDX-License-Identifier: Apache-2.0
"""What switches say of themselves, and the table that is chosen by it."""

from typing import Any

import pytest
from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

from atoll_core.errors import LabError
from atoll_core.openflow_wire import feature_parser
from atoll_core.plan.switch_features import SwitchDescription, SwitchFeatures, TableFeatures
from atoll_switches.capability_profile import profile
from atoll_switches.entry_placement import choose_table, table_capacity

FIELDS = ("in_port", "eth_type", "vlan_vid", "ip_proto", "ipv4_src", "ipv4_dst", "tcp_src", "tcp_dst")
UDP = ("udp_src", "udp_dst")
ACTIONS = (ofp.OFPAT_OUTPUT, ofp.OFPAT_PUSH_VLAN, ofp.OFPAT_POP_VLAN, ofp.OFPAT_SET_FIELD)
SILENT = SwitchDescription("Maker", "Model", "1.2", "", "")


def table(
    number: int, matches: tuple[str, ...], actions: tuple[int, ...], *, required: tuple[str, ...] = (), most: int = 1500
) -> bytes:
    """A table's features as a switch sends them, packed by os-ken."""

    def fields(kind: int, names: tuple[str, ...]) -> Any:
        ids = [parser.OFPOxmId(type_=name) for name in names]
        return parser.OFPTableFeaturePropOxm(type_=kind, oxm_ids=ids)

    properties = [
        parser.OFPTableFeaturePropInstructions(
            type_=ofp.OFPTFPT_INSTRUCTIONS, instruction_ids=[parser.OFPInstructionId(type_=ofp.OFPIT_APPLY_ACTIONS)]
        ),
        parser.OFPTableFeaturePropNextTables(type_=ofp.OFPTFPT_NEXT_TABLES, table_ids=[100, 200, 201]),
        fields(ofp.OFPTFPT_MATCH, matches),
        fields(ofp.OFPTFPT_WILDCARDS, tuple(name for name in matches if name not in required)),
        parser.OFPTableFeaturePropActions(
            type_=ofp.OFPTFPT_APPLY_ACTIONS, action_ids=[parser.OFPActionId(type_=kind) for kind in actions]
        ),
        fields(ofp.OFPTFPT_APPLY_SETFIELD, ("vlan_vid",) if ofp.OFPAT_SET_FIELD in actions else ()),
    ]
    made = parser.OFPTableFeaturesStats(
        table_id=number,
        name=f"table {number}".encode(),
        metadata_match=0,
        metadata_write=0,
        config=0,
        max_entries=most,
        properties=properties,
    )
    return bytes(made.serialize())


def answer(*tables: bytes) -> SwitchFeatures:
    """What the tables of a switch say of themselves."""
    return SwitchFeatures(SILENT, feature_parser.parse_tables(b"".join(tables)))


def test_a_table_is_read_in_the_words_of_flow_entries() -> None:
    """Fields that only TCP or only UDP has are no L4 match; a VLAN match is also one on untagged frames."""
    (whole,) = feature_parser.parse_tables(table(100, (*FIELDS, *UDP, "eth_dst"), ACTIONS, required=("in_port",)))
    matches = ("eth_type", "in_port", "ip_proto", "ipv4_dst", "ipv4_src", "l4_dst", "l4_src", "untagged", "vlan")
    actions = ("Output", "PopVlan", "PushVlan")
    assert whole == TableFeatures(100, 100, "table 100", 1500, matches, ("in_port",), actions)
    (part,) = feature_parser.parse_tables(table(0, FIELDS, ACTIONS[:3]))
    assert "l4_src" not in part.matches
    assert part.actions == ("Output", "PopVlan")  # a tag that is pushed needs its id set


def test_tables_that_are_alike_are_told_once() -> None:
    """Open vSwitch has 254 of them."""
    alike = [table(number, FIELDS, ACTIONS) for number in range(5)]
    found = feature_parser.parse_tables(b"".join([*alike, table(5, FIELDS, ACTIONS, most=20)]))
    assert [(each.first, each.last, each.max_entries) for each in found] == [(0, 4, 1500), (5, 5, 20)]


def test_a_description_is_read() -> None:
    """Padding goes, and what Open vSwitch calls None."""
    texts = (b"Nicira, Inc.", b"Open vSwitch", b"3.1.0", b"None", b"None")
    sizes = (256, 256, 256, 32, 256)
    body = b"".join(text.ljust(size, b"\0") for text, size in zip(texts, sizes, strict=True))
    assert feature_parser.parse_description(body) == SwitchDescription("Nicira, Inc.", "Open vSwitch", "3.1.0", "", "")


def test_entries_go_to_the_first_table_that_takes_them() -> None:
    """As on hardware whose table 0 only leads on to table 100; the software table behind it is not chosen."""
    switch = answer(
        table(0, ("in_port",), ()), table(100, (*FIELDS, *UDP), ACTIONS), table(200, (*FIELDS, *UDP), ACTIONS)
    )
    assert choose_table(profile("ovs"), switch, "sw-c") == 100
    assert (table_capacity(switch, 100), table_capacity(switch, 7)) == (1500, None)


def test_a_switch_that_tells_nothing_is_taken_at_its_profile() -> None:
    """Table features are optional in OpenFlow 1.3."""
    assert choose_table(profile("ovs"), answer(), "sw-c") == profile("ovs").table


def test_a_switch_that_is_not_what_the_lab_says_is_refused() -> None:
    """With what each table lacks."""
    switch = answer(
        table(0, (*FIELDS, *UDP), ACTIONS[:1]), table(1, (*FIELDS, *UDP), ACTIONS, required=("in_port", "ipv4_src"))
    )
    with pytest.raises(LabError) as refusal:
        choose_table(profile("ovs"), switch, "sw-c")
    assert str(refusal.value) == (
        "sw-c (Maker Model): no table of this switch has the features of driver 'ovs': "
        "table 0 does not do PopVlan, PushVlan; table 1 requires that every entry matches in_port, ipv4_src; "
        "correct the driver in lab.yaml"
    )
