# SPDX-License-Identifier: Apache-2.0
"""The latency of a server changed under traffic: how soon it shows, and what becomes of packets under way."""

import json
from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest

from tests.lab.sandbox import ROOT, Sandbox

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]

LINK_MS, CLASSES_MS = 20.0, {"rtt-20": 20.0, "rtt-80": 80.0}
BUSY_MS = 20.0  # what a busy machine may add; a third of what the change makes


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Up from 20 ms to 80 ms, then down again."""
    with Sandbox(tmp_path_factory.mktemp("latency")) as sandbox:
        python = ROOT / ".venv" / "bin" / "python"
        done = sandbox.run("env", f"PYTHONPATH={ROOT}", python, "-m", "tests.lab.latency_guest")
        assert done.returncode == 0, done.stderr
        yield json.loads(done.stdout)


def shift_of(change: dict[str, Any]) -> dict[str, Any]:
    return next(stage for stage in change["stages"] if stage["stage"] == "shift")


def test_it_is_one_change_of_flow_in_each_direction(found: dict[str, Any]) -> None:
    for change in found["changes"]:
        shift = shift_of(change)
        assert (shift["subject"], shift["added"], shift["deleted"]) == ("latency", 2, 0)


def test_it_shows_in_the_first_ping_sent_after_it(found: dict[str, Any]) -> None:
    """So within one round-trip time; and in no ping whose answer came before it."""
    replies = [line for line in found["lines"]["ping"] if line.get("type") == "reply"]
    before_ms = CLASSES_MS["rtt-20"]
    for change in found["changes"]:
        began_ns = shift_of(change)["began_ns"]
        ended_ns = began_ns + shift_of(change)["duration_ns"]
        earlier = [r["rtt_ns"] / 1e6 for r in replies if r["sent_ns"] + r["rtt_ns"] < began_ns][-20:]
        later = [r["rtt_ns"] / 1e6 for r in replies if r["sent_ns"] > ended_ns][:20]
        now_ms = CLASSES_MS[change["to"]]
        assert median(earlier) == pytest.approx(LINK_MS + before_ms, abs=BUSY_MS)
        assert median(later) == pytest.approx(LINK_MS + now_ms, abs=BUSY_MS)
        assert min(later) > LINK_MS + now_ms - 1
        before_ms = now_ms


def test_nothing_is_lost_and_packets_under_way_keep_their_delay(found: dict[str, Any]) -> None:
    """When the delay shrinks newer packets overtake those that are within the delay box: these come, only later."""
    pings = found["lines"]["ping"]
    last_ns = max(line["sent_ns"] for line in pings if line.get("type") == "reply")
    lost = [line for line in pings if line.get("type") == "lost"]
    assert all(line["sent_ns"] > last_ns - 200_000_000 for line in lost), "only those that were under way at the end"
    packets = [line for line in found["lines"]["udp"] if line.get("type") == "packet"]
    numbers = [packet["seq"] for packet in packets]
    assert sorted(numbers) == list(range(found["sent"]["sent_packets"]))
    overtaken = [packet for packet, best in zip(packets, best_so_far(numbers), strict=True) if packet["seq"] < best]
    shrinks_ns = shift_of(found["changes"][1])["began_ns"]
    assert overtaken
    for packet in overtaken:
        assert packet["sent_ns"] < shrinks_ns + shift_of(found["changes"][1])["duration_ns"]
        assert packet["received_ns"] > shrinks_ns


def best_so_far(numbers: list[int]) -> list[int]:
    """The highest number up to each place."""
    highest: list[int] = []
    for number in numbers:
        highest.append(max(number, highest[-1] if highest else number))
    return highest
