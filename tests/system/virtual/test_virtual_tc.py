# SPDX-License-Identifier: Apache-2.0
"""Links and delay boxes of the kernel's traffic control: counters, changes, refusals, and what they leave.

When packets leave them is in test_virtual_link.py and, for very many settings, in test_virtual_rates.py.
"""

from itertools import pairwise
from typing import Any

import pytest

from tests.guests.tc_guest import CLASSES, JITTER, LATER, LOSSY, TO_ISLAND, TO_WORLD
from tests.support.virtual_runs import said_inside

pytestmark = pytest.mark.virtual

LATE_NS = 3000  # a timer, its clock of 256 ns, and a program that reads the clock


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All that tc_guest measures, in one kernel."""
    return said_inside("tests.guests.tc_guest", tmp_path_factory.mktemp("tc"))


@pytest.fixture(scope="module")
def link(found: dict[str, Any]) -> dict[str, Any]:
    return found["link"]


def one_way_ns(passage: dict[str, Any]) -> list[int]:
    """Of the packets that arrived, in the order of their arrival."""
    return [arrived - passage["sent"][number] for number, arrived in passage["arrived"]]


def test_each_direction_has_its_own_delay(link: dict[str, Any]) -> None:
    for way, direction in (("to_island", TO_ISLAND), ("to_world", TO_WORLD)):
        times = one_way_ns(link["idle"][way])
        assert len(times) == 20
        assert all(0 <= each - direction.delay.ns <= LATE_NS for each in times), times
        counted = link["idle_mark"][way]
        assert (counted["in_packets"], counted["out_packets"], counted["dropped_packets"]) == (20, 20, 0)


def test_delay_under_load_tops_out_at_delay_and_full_queue(link: dict[str, Any]) -> None:
    """The trap: netem below tbf holds either setting alone, and grows without bound with both."""
    times = one_way_ns(link["load"])
    full_ns = TO_ISLAND.queue.bytes * 8 * 10**9 // TO_ISLAND.rate.bit_s
    packet_ns = 1500 * 8 * 10**9 // TO_ISLAND.rate.bit_s
    assert full_ns - 2 * packet_ns <= max(times) - TO_ISLAND.delay.ns <= full_ns + LATE_NS
    numbers = [number for number, _ in link["load"]["arrived"]]
    assert numbers == sorted(numbers)


def test_counters_account_for_every_packet_and_byte(link: dict[str, Any]) -> None:
    counted, load = link["load_mark"]["to_island"], link["load"]
    sent, arrived = len(load["sent"]), len(load["arrived"])
    assert (counted["in_packets"], counted["out_packets"]) == (sent, arrived)
    assert counted["dropped_packets"] == counted["dropped_queue_packets"] == sent - arrived > 0
    for direction in ("in", "out", "dropped"):
        assert counted[f"{direction}_bytes"] == 1500 * counted[f"{direction}_packets"]
    assert TO_ISLAND.queue.bytes - 1500 < counted["queue_max_bytes"] <= TO_ISLAND.queue.bytes
    assert (counted["queue_bytes"], counted["held_packets"], counted["overloaded"]) == (0, 0, False)
    assert link["load_mark"]["to_world"]["in_packets"] == 0


def test_counters_are_sums_since_the_start(link: dict[str, Any]) -> None:
    marks = [link[name]["to_island"]["in_bytes"] for name in ("idle_mark", "load_mark")]
    assert link["counters"]["to_island"]["in_bytes"] == sum(marks)


def test_a_change_of_a_running_link_takes_effect(link: dict[str, Any]) -> None:
    assert link["change"]["ok"], link["change"]
    times = one_way_ns(link["changed"])
    assert len(times) == 20
    assert all(0 <= each - LATER.to_island.delay.ns <= LATE_NS for each in times), times


def test_what_tc_cannot_do_while_it_runs_is_refused_in_words(link: dict[str, Any]) -> None:
    assert not link["impossible"]["ok"]
    assert "tc refused 'qdisc change dev sat-i" in link["impossible"]["error"]
    assert not link["trace"]["ok"]
    assert "--backend engine" in link["trace"]["error"]


def test_a_box_that_ends_leaves_the_interfaces_as_they_were(found: dict[str, Any]) -> None:
    assert found["link"]["left"] == found["delay"]["left"] == []


def test_an_undo_that_fails_is_tried_again_and_says_what_is_left(found: dict[str, Any]) -> None:
    """The next box undoes it before it begins, or is refused."""
    undone = found["undo"]
    assert undone["once"] == undone["after"] == {"status": 0, "said": "", "left": []}
    for case in ("always", "next"):
        assert undone[case]["status"] == 1
        assert undone[case]["left"]
        assert "settings are not undone: " in undone[case]["said"]
        for what in ("netem on sat-i", "clsact on sat-w", "(Cannot allocate memory"):
            assert what in undone[case]["said"]


def test_loss_is_counted_apart_and_jitter_keeps_the_order(found: dict[str, Any]) -> None:
    counted, arrived = found["impaired"]["mark"], found["impaired"]["arrived"]
    # 1000 packets, probability 0.2: five standard deviations are 63.
    assert 137 <= counted["dropped_loss_packets"] <= 263
    assert counted["dropped_queue_packets"] == 0
    assert counted["in_packets"] - counted["dropped_loss_packets"] == counted["out_packets"] == len(arrived)
    assert counted["in_bytes"] == 114 * counted["in_packets"], "Ethernet frames are counted"
    assert all(one < other for (one, _), (other, _) in pairwise(arrived))
    times = one_way_ns(found["impaired"])
    assert min(times) >= LOSSY.delay.ns - JITTER.amount.ns
    assert max(times) <= LOSSY.delay.ns + JITTER.amount.ns + LATE_NS
    assert max(times) - min(times) > JITTER.amount.ns / 2


def test_frames_of_no_class_are_dropped_and_counted(found: dict[str, Any]) -> None:
    delay = found["delay"]
    assert delay["returned"] == len(CLASSES)
    assert delay["mark"]["unknown_vlan_packets"] == 2
    counted = {
        int(vlan): (each["in_packets"], each["out_packets"], each["out_bytes"])
        for vlan, each in delay["mark"]["classes"].items()
    }
    assert counted == dict.fromkeys(CLASSES, (1, 1, 100))


def test_a_setting_the_kernel_refuses_is_named_and_nothing_is_left(found: dict[str, Any]) -> None:
    refused = found["refusals"]["unknown"]
    assert (refused["status"], refused["left"]) == (1, [])
    assert "tc refused 'qdisc add dev ifb-to-island" in refused["said"]
    assert refused["said"].count("\n") == 1


def test_a_setting_that_did_not_take_is_found_by_reading_it_back(found: dict[str, Any]) -> None:
    refused = found["refusals"]["other"]
    assert (refused["status"], refused["left"]) == (1, [])
    assert "tbf on 'ifb-to-island': limit is 30000, requested 40000" in refused["said"]


def test_an_answer_that_does_not_come_is_named_with_what_the_box_said(found: dict[str, Any]) -> None:
    """The guest waits a minute of virtual time, no longer."""
    assert found["unanswered"].startswith("the box ran for 60 s without 'mark': ")
    assert "missing field `id`" in found["unanswered"]


def test_the_machine_says_that_it_has_both_backends(found: dict[str, Any]) -> None:
    assert (found["machine"]["link_backends"], found["machine"]["datapath"]) == ("engine, tc", "kernel")
