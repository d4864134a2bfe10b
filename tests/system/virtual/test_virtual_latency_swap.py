# SPDX-License-Identifier: Apache-2.0
"""The latency of a server changed under traffic: how soon it shows, and what becomes of packets under way."""

from itertools import pairwise
from typing import Any

import pytest

from tests.support.virtual_runs import HANGS_S, said_inside

pytestmark = [pytest.mark.virtual, pytest.mark.timeout(HANGS_S)]

LINK_MS, CLASSES_MS = 20.0, {"rtt-20": 20.0, "rtt-80": 80.0}  # there and back
LATE_MS = 0.2  # the serialisation of packets at 100 Mbit/s and 1 Gbit/s, one behind the other


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Up from 20 ms to 80 ms, then down again."""
    return said_inside("tests.guests.latency_guest", tmp_path_factory.mktemp("latency"))


def shift_of(change: dict[str, Any]) -> dict[str, Any]:
    return next(stage for stage in change["stages"] if stage["stage"] == "shift")


def test_it_is_one_change_of_flow_in_each_direction(found: dict[str, Any]) -> None:
    for change in found["changes"]:
        shift = shift_of(change)
        assert (shift["subject"], shift["added"], shift["deleted"]) == ("latency", 2, 0)


def test_it_shows_in_the_first_ping_sent_after_it(found: dict[str, Any]) -> None:
    """So within one round-trip time; and in no ping whose answer came before it."""
    replies = [line for line in found["lines"]["ping"] if line.get("type") == "reply"]
    before_ms = LINK_MS + CLASSES_MS["rtt-20"]
    for change, (first_ns, last_ns) in zip(found["changes"], periods(found), strict=True):
        began_ns = shift_of(change)["began_ns"]
        ended_ns = began_ns + shift_of(change)["duration_ns"]
        now_ms = LINK_MS + CLASSES_MS[change["to"]]
        about = [r for r in replies if first_ns < r["sent_ns"] and r["sent_ns"] + r["rtt_ns"] < last_ns]
        earlier = [r["rtt_ns"] / 1e6 for r in about if r["sent_ns"] + r["rtt_ns"] < began_ns]
        later = [r["rtt_ns"] / 1e6 for r in about if r["sent_ns"] > ended_ns]
        assert len(earlier) > 50
        assert len(later) > 50
        assert all(before_ms <= rtt_ms <= before_ms + LATE_MS for rtt_ms in earlier)
        assert all(now_ms <= rtt_ms <= now_ms + LATE_MS for rtt_ms in later)
        before_ms = now_ms


def test_no_ping_is_lost(found: dict[str, Any]) -> None:
    """But those that were under way at the end."""
    pings = found["lines"]["ping"]
    ended_ns = max(line["sent_ns"] for line in pings if "sent_ns" in line)
    lost = [line for line in pings if line.get("type") == "lost"]
    assert all(line["sent_ns"] > ended_ns - (LINK_MS + CLASSES_MS["rtt-20"] + LATE_MS) * 1e6 for line in lost)


def test_nothing_is_lost_and_packets_under_way_keep_their_delay(found: dict[str, Any]) -> None:
    """All packets sent before an instant of the shift have the old delay, all others the new one.

    When the delay shrinks newer packets overtake those that are within the delay box: these come, only later.
    """
    packets = sorted((line for line in found["lines"]["udp"] if line.get("type") == "packet"), key=lambda p: p["seq"])
    assert [packet["seq"] for packet in packets] == list(range(found["sent"]["sent_packets"]))
    before_ms = CLASSES_MS["rtt-20"]
    for change, (first_ns, last_ns) in zip(found["changes"], periods(found), strict=True):
        about = [packet for packet in packets if first_ns < packet["sent_ns"] <= last_ns]
        extra_ms = [(p["received_ns"] - p["sent_ns"]) / 1e6 - LINK_MS / 2 for p in about]
        now_ms = CLASSES_MS[change["to"]]
        new = [abs(each - now_ms / 2) < abs(each - before_ms / 2) for each in extra_ms]
        assert new == sorted(new), "old, then new"
        for each, is_new in zip(extra_ms, new, strict=True):
            delay_ms = (now_ms if is_new else before_ms) / 2
            assert delay_ms <= each <= delay_ms + LATE_MS
        turned_ns = about[new.index(True)]["sent_ns"]
        assert 0 <= turned_ns - shift_of(change)["began_ns"] <= shift_of(change)["duration_ns"]
        before_ms = now_ms
    overtaken = {one["seq"] for one, then in pairwise(packets) if one["received_ns"] > then["received_ns"]}
    assert overtaken, "packets in the delay box when it shrank"


def periods(found: dict[str, Any]) -> list[tuple[int, int]]:
    """The time about each change: from the one before to the one after."""
    began_ns = [0, *(shift_of(change)["began_ns"] for change in found["changes"]), 2**63]
    ended_ns = [0, *(s["began_ns"] + s["duration_ns"] for s in map(shift_of, found["changes"]))]
    return list(zip(ended_ns[:-1], began_ns[2:], strict=True))
