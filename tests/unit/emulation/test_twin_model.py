# SPDX-License-Identifier: Apache-2.0
"""The model of a hardware switch: what it refuses, when it answers, and when its data plane follows."""

import struct
from dataclasses import fields, replace
from ipaddress import IPv4Network

import pytest

from atoll_core.lab.twin import TwinBehaviour, TwinSettings
from atoll_core.openflow_wire import encoder, feature_parser
from atoll_core.openflow_wire.flow_stats import parse_entry
from atoll_core.plan.flow_entry import FlowEntry, Match, Output, PopVlan, PushVlan
from atoll_core.plan.switch_features import SwitchFeatures
from atoll_core.units import Duration
from atoll_switches.capability_profile import behaviour, profile
from atoll_switches.entry_placement import choose_table, table_capacity
from tests.support.twins import AT_ONCE, Desk, reported

HARDWARE, SOFTWARE = 100, 200
BARRIER = encoder.barrier(0)
BAD_FIELD, BAD_ACTION, TABLE_FULL, BAD_TABLE, NOT_PERMITTED = (4, 6), (2, 0), (5, 1), (5, 2), (5, 4)
ISLAND = IPv4Network("10.20.0.0/16")


def entry(port: int = 1, *actions: Output | PushVlan | PopVlan, **match: object) -> FlowEntry:
    """An entry that every module takes, unless the arguments say otherwise."""
    return FlowEntry("s", 1000, replace(Match(port, ipv4_dst=ISLAND), **match), actions or (Output(2),), port, "")


def added(number: FlowEntry, table: int = HARDWARE) -> bytes:
    return encoder.add(number, table, 0)


def test_flow_mods_are_taken_at_the_rate_of_the_hardware() -> None:
    """The barrier behind 50 of them is answered when the last one was taken."""
    desk = Desk("procurve-v2", replace(AT_ONCE, flow_mods_per_s=100))
    for port in range(1, 51):
        desk.send(added(entry(port)))
    barrier = desk.send(BARRIER)
    desk.until(10)
    assert [at for at, message in desk.replies if message[1] == 21] == [pytest.approx(0.5)]
    assert desk.answers(barrier)
    assert [at for at, _ in desk.operations] == [pytest.approx(number / 100) for number in range(1, 51)]


def test_the_data_plane_follows_after_the_barrier_within_its_lag_and_in_order() -> None:
    """The switch's own tables have the entries at once: reading back proves nothing."""
    desk = Desk("procurve-v2", replace(AT_ONCE, lag_min=Duration.parse("250 ms"), lag_max=Duration.parse("3 s")))
    for number in range(20):
        desk.send(added(entry(1 + number)), number * 10.0)
        desk.send(BARRIER, number * 10.0)
        desk.until(number * 10.0)
        assert len(desk.model.entries) == number + 1
        assert len(desk.model.forwarding) == number
        desk.until(number * 10.0 + 9)
    lags = [follows - answered for (answered, _), (follows, _) in zip(desk.replies, desk.operations, strict=True)]
    assert all(0.25 <= lag <= 3.0 for lag in lags)
    assert max(lags) - min(lags) > 1.0, "they are drawn anew"
    ports = [int.from_bytes(message[56:60]) for _, message in desk.operations]
    assert ports == list(range(1, 21))


def test_a_seed_draws_the_same_lags() -> None:
    def lag(seed: int) -> float:
        desk = Desk("procurve-v2", TwinSettings(flow_mods_per_s=0, seed=seed))
        desk.send(added(entry()))
        desk.until(5)
        return desk.operations[0][0]

    assert lag(7) == lag(7) != lag(8)


def test_a_twin_without_early_barriers_answers_when_its_data_plane_has_followed() -> None:
    """And what comes behind the barrier waits, too."""
    lag = Duration.parse("2 s")
    desk = Desk("procurve-v2", replace(AT_ONCE, lag_min=lag, lag_max=lag, early_barriers=False))
    desk.send(added(entry()))
    desk.send(BARRIER)
    behind = desk.send(encoder.flow_request(HARDWARE, 0, encoder.AGGREGATE))
    desk.until(1.9)
    assert (desk.replies, desk.operations) == ([], [])
    desk.until(2.1)
    assert [at for at, _ in desk.operations] == [pytest.approx(2.0)]
    assert [message[1] for _, message in desk.replies] == [21, encoder.MULTIPART_REPLY]
    assert desk.answers(behind)


def test_an_entry_is_told_as_it_was_sent() -> None:
    desk = Desk("procurve-v2", AT_ONCE)
    sent = entry(3, PushVlan(101), Output(20))
    desk.send(added(sent))
    assert [parse_entry(each, "s") for each in desk.entries(0.1, HARDWARE)] == [sent]


def test_counters_stay_as_they_are_for_twenty_seconds() -> None:
    """They are those of the bridge when it was read last."""
    desk = Desk("procurve-v2", replace(AT_ONCE, statistics=Duration.parse("20 s")))
    desk.send(added(entry()))
    desk.bridge = reported(entry(), HARDWARE, 5)
    assert [each.packets for each in desk.entries(19.9, HARDWARE)] == [0]
    assert [each.packets for each in desk.entries(20.0, HARDWARE)] == [5]
    desk.bridge = reported(entry(), HARDWARE, 6)
    assert [each.packets for each in desk.entries(39.9, HARDWARE)] == [5]
    assert [each.packets for each in desk.entries(40.1, HARDWARE)] == [6]
    assert desk.reads == [pytest.approx(20.0), pytest.approx(40.0)]


def test_counters_can_be_current() -> None:
    desk = Desk("procurve-v2", AT_ONCE)
    desk.send(added(entry()))
    for packets in (1, 2):
        desk.bridge = reported(entry(), HARDWARE, packets)
        assert [each.packets for each in desk.entries(1.0, HARDWARE)] == [packets]


@pytest.mark.parametrize(
    ("driver", "wrong", "error"),
    [
        ("procurve-v1", entry(1, PushVlan(5), Output(2)), BAD_ACTION),
        ("procurve-v1", entry(1, Output(2), Output(3)), BAD_ACTION),
        ("procurve-v1", entry(1, eth_type=None, ipv4_dst=None), BAD_FIELD),
        ("procurve-v1", entry(1, eth_type=0x0806, ipv4_dst=None), BAD_FIELD),
        ("procurve-v2", entry(1, ip_proto=6, l4_dst=80), BAD_FIELD),
    ],
)
def test_the_hardware_table_refuses_what_only_software_can_do(
    driver: str, wrong: FlowEntry, error: tuple[int, int]
) -> None:
    """The software table takes it, and a twin that refuses nothing takes it everywhere."""
    desk = Desk(driver, AT_ONCE)
    refused = desk.send(added(wrong))
    desk.send(added(wrong, SOFTWARE))
    desk.until(1)
    assert desk.errors() == [(refused, *error)]
    assert [each.table for each in desk.model.entries] == [SOFTWARE]
    lenient = Desk(driver, replace(AT_ONCE, refuses=False))
    lenient.send(added(wrong))
    lenient.until(1)
    assert lenient.errors() == []


@pytest.mark.parametrize("driver", ["procurve-v2", "procurve-v3"])
def test_newer_hardware_pushes_tags_and_copies(driver: str) -> None:
    desk = Desk(driver, AT_ONCE)
    desk.send(added(entry(1, PushVlan(5), Output(2), Output(3))))
    desk.until(1)
    assert desk.errors() == []


def test_tables_that_take_nothing_refuse() -> None:
    desk = Desk("procurve-v2", AT_ONCE)
    start, unknown = desk.send(added(entry(), 0)), desk.send(added(entry(), 7))
    desk.until(1)
    assert desk.errors() == [(start, *NOT_PERMITTED), (unknown, *BAD_TABLE)]


def test_a_full_table_refuses_new_entries_but_not_changed_ones() -> None:
    """Room that access lists use is not in the table's features; what is deleted makes room."""
    desk = Desk("procurve-v2", replace(AT_ONCE, max_entries=5, occupied=2))
    for port in (1, 2, 3):
        desk.send(added(entry(port)))
    fourth = desk.send(added(entry(4)))
    desk.send(added(entry(3, Output(9))))
    desk.send(encoder.delete(entry(1), HARDWARE, 0))
    desk.send(added(entry(4)))
    desk.until(1)
    assert desk.errors() == [(fourth, *TABLE_FULL)]
    assert table_capacity(features_of(desk), HARDWARE) == 5
    assert {each.cookie for each in desk.model.entries} == {2, 3, 4}


def features_of(desk: Desk) -> SwitchFeatures:
    described = desk.send(encoder.multipart_request(encoder.DESCRIPTION, 0), 50.0)
    tables = desk.send(encoder.multipart_request(encoder.TABLE_FEATURES, 0), 50.0)
    desk.until(50.0)
    return SwitchFeatures(
        feature_parser.parse_description(desk.answers(described)[0][16:]),
        feature_parser.parse_tables(b"".join(message[16:] for message in desk.answers(tables))),
    )


@pytest.mark.parametrize("driver", ["procurve-v1", "procurve-v2", "procurve-v3"])
def test_entries_of_plans_go_to_its_hardware_table(driver: str) -> None:
    """By its own table features: the read-only table takes none, and the one in software is behind."""
    features = features_of(Desk(driver, AT_ONCE))
    assert choose_table(profile(driver), features, "sw") == HARDWARE
    assert [table.first for table in features.tables] == [0, HARDWARE, SOFTWARE]
    assert features.description.hardware == profile(driver).title


def test_entries_in_software_pass_the_meter() -> None:
    """A hundred packets a second for all of them; not if the limit is switched off."""
    for limit, metered in ((100, True), (0, False)):
        desk = Desk("procurve-v2", replace(AT_ONCE, software_packets_per_s=limit))
        desk.send(added(entry(), SOFTWARE))
        desk.send(added(entry(2)))
        desk.until(1)
        meter = struct.pack("!HHI", 6, 8, 1)
        assert [meter in message for _, message in desk.operations] == [metered, False]


def test_a_deletion_that_is_not_strict_takes_all_that_match() -> None:
    """In the bridge each is deleted by itself: its pipeline stays."""
    desk = Desk("procurve-v2", AT_ONCE)
    for port in (1, 2):
        desk.send(added(entry(port)))
    message = bytearray(encoder.delete(entry(1), encoder.ALL_TABLES, 0))
    message[25] = 3
    desk.send(bytes(message))
    desk.until(1)
    assert [each.cookie for each in desk.model.entries] == [2]
    assert [message[24:26] for _, message in desk.operations][2:] == [bytes([HARDWARE, 4])]


def test_the_read_only_table_is_told_and_leads_to_the_hardware() -> None:
    first, *_ = Desk("procurve-v2", AT_ONCE).entries(0.0)
    assert (first.table, first.is_pipeline, first.instructions[4]) == (0, True, HARDWARE)


def test_a_reboot_forgets_everything() -> None:
    desk = Desk("procurve-v2", AT_ONCE)
    desk.send(added(entry()))
    desk.until(1)
    desk.send(added(entry(2)), 2)
    desk.model.reset(2.0)
    desk.until(3)
    assert (desk.model.entries, desk.model.forwarding, len(desk.operations)) == ([], [], 1)


def test_a_broken_connection_loses_messages_and_keeps_entries() -> None:
    desk = Desk("procurve-v2", replace(AT_ONCE, flow_mods_per_s=1))
    for port in (1, 2, 3):
        desk.send(added(entry(port)))
    desk.until(1)
    desk.model.drop_messages()
    desk.until(10)
    assert [each.cookie for each in desk.model.entries] == [1]


def test_groups_and_meters_are_none_and_cannot_be_made() -> None:
    """The meter of the bridge is the twin's own business."""
    desk = Desk("procurve-v2", AT_ONCE)
    asked = [desk.send(encoder.meter_request(0)), desk.send(encoder.multipart_request(encoder.GROUPS, 0))]
    desk.send(encoder.delete_group(1, 0))
    desk.until(1)
    assert [encoder.meter_numbers(desk.answers(xid)[0][16:]) for xid in asked] == [(), ()]
    assert [(kind, code) for _, kind, code in desk.errors()] == [(1, 1)]


def test_long_replies_come_in_parts() -> None:
    """A message has at most 65535 bytes; all but the last say that more follow."""
    desk = Desk("procurve-v2", AT_ONCE)
    for port in range(1, 1501):
        desk.send(added(entry(port)))
    xid = desk.send(encoder.flow_request(HARDWARE, 0))
    desk.until(1)
    parts = desk.answers(xid)
    assert len(parts) > 1
    assert all(len(part) == int.from_bytes(part[2:4]) for part in parts)
    assert [part[11] for part in parts] == [1] * (len(parts) - 1) + [0]


@pytest.mark.parametrize("driver", ["procurve-v1", "procurve-v2", "procurve-v3"])
def test_every_behaviour_has_a_value_and_a_source_in_the_profile(driver: str) -> None:
    facts = profile(driver).twin
    assert [fact.name for fact in facts] == [field.name for field in fields(TwinBehaviour)]
    assert all(fact.source for fact in facts)
    assert not [fact.name for fact in facts if fact.verified and fact.source == "none"]


def test_one_end_of_the_lag_moves_the_other_if_it_must() -> None:
    for given, lags in (
        (TwinSettings(lag_max=Duration(0)), ("0 ns", "0 ns")),
        (TwinSettings(lag_min=Duration.parse("9 s")), ("9 s", "9 s")),
        (TwinSettings(lag_max=Duration.parse("9 s")), ("250 ms", "9 s")),
    ):
        found = behaviour("procurve-v2", given)
        assert (found.lag_min, found.lag_max) == tuple(map(Duration.parse, lags))
