# SPDX-License-Identifier: Apache-2.0
"""Replies that a faulty or malicious switch sends: a record of no length ends the request; no parser runs for ever."""

import signal
import struct
from collections.abc import Callable, Generator
from typing import Any

import pytest
from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

from atoll_controller.openflow.app import parse_message
from atoll_controller.openflow.switch_session import unmanaged_entry
from atoll_core.openflow_wire import encoder, feature_parser
from atoll_core.openflow_wire.flow_stats import parse_entry, records
from atoll_core.plan.flow_entry import FlowEntry, Match
from tests.unit.controller.test_openflow_codec import DATAPATH, as_told

ENDLESS_S = 2.0


@pytest.fixture(autouse=True)
def _ended_if_endless() -> Generator[None]:
    """Raise in a parser that does not end: it would fill the memory before the test's time is over."""

    def stop(*_: object) -> None:
        raise TimeoutError("the parser does not end")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, ENDLESS_S)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def table_features(properties: bytes, length: int | None = None) -> bytes:
    """The features of one table, with these bytes as its properties."""
    length = 64 + len(properties) if length is None else length
    return struct.pack("!HB5x32sQQII", length, 0, b"", 0, 0, 0, 0) + properties


def flow_record(instructions: bytes) -> bytes:
    """A flow entry that matches everything, as a switch tells of it, with these bytes as its instructions."""
    answer = as_told(FlowEntry("sw", 9, Match(1), (), 4, ""), [], parser.OFPMatch())
    return struct.pack("!H", len(answer) + len(instructions)) + answer[2:] + instructions


@pytest.mark.parametrize(
    "read",
    [
        lambda: encoder.group_numbers(bytes(16)),
        lambda: encoder.meter_numbers(bytes(16)),
        lambda: feature_parser.parse_tables(table_features(b"", length=0)),
        lambda: feature_parser.parse_tables(table_features(bytes(8))),
        lambda: list(records(bytes(64))),
        lambda: list(records(flow_record(b"")[:-1])),
        lambda: parse_message(DATAPATH, 4, ofp.OFPT_HELLO, 16, 1, bytes(8) + struct.pack("!HH4x", 7, 0)),
    ],
    ids=["groups", "meters", "tables", "properties", "entries", "a cut entry", "hello"],
)
def test_a_record_of_no_length_is_refused(read: Callable[[], Any]) -> None:
    """It has no end: what comes behind it cannot be found."""
    with pytest.raises(encoder.MalformedError, match="a record of "):
        read()


@pytest.mark.parametrize(
    "instructions",
    [
        struct.pack("!HH4x", ofp.OFPIT_APPLY_ACTIONS, 0),
        struct.pack("!HH4xHH4x", ofp.OFPIT_APPLY_ACTIONS, 16, ofp.OFPAT_POP_VLAN, 0),
        struct.pack("!HH4xHH4x", ofp.OFPIT_WRITE_ACTIONS, 16, ofp.OFPAT_OUTPUT, 0),
    ],
)
def test_an_entry_with_malformed_instructions_is_foreign(instructions: bytes) -> None:
    """It can still be shown and deleted: its match is known."""
    (record,) = records(flow_record(instructions))
    assert parse_entry(record, "sw") is None
    entry = unmanaged_entry(record, "sw", 0)
    assert "its instructions are malformed: a record of 0 bytes at byte " in entry.why
    assert (entry.priority, entry.cookie) == (9, 4)


@pytest.mark.parametrize(
    ("version", "kind", "body", "passed_on"),
    [
        (4, ofp.OFPT_MULTIPART_REPLY, struct.pack("!HH4x", ofp.OFPMP_GROUP, 0) + bytes(64), True),
        (4, ofp.OFPT_QUEUE_GET_CONFIG_REPLY, bytes(64), False),
        (1, 17, struct.pack("!HH", 1, 0) + bytes(88), False),
    ],
    ids=["group statistics", "queues", "statistics of OpenFlow 1.0"],
)
def test_the_framework_gets_no_message_that_it_would_read_for_ever(
    version: int, kind: int, body: bytes, passed_on: bool
) -> None:
    """Nobody here requests these; a switch may send them all the same. One that is passed on is not parsed."""
    length = 8 + len(body)
    message = parse_message(DATAPATH, version, kind, length, 1, struct.pack("!BBHI", version, kind, length, 1) + body)
    assert (message and message.body) == (body[8:] if passed_on else None)
