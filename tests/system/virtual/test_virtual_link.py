# SPDX-License-Identifier: Apache-2.0
"""Links of both backends hold every packet to its instant: in virtual time there is nothing else it could wait for.

The same trains pass tc, the engine, and the engine that leaves departures to the kernel; what a link is to do with
each packet is computed here once more, in a dozen lines. Reading the clock takes 256 ns of virtual time, so a program
that wakes up is a few of these late; a timer of the kernel's is not.
"""

import json
import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest

from atoll_core.plan.tc_settings import VIRTUAL_SLACK, bucket_bytes
from atoll_emulation.uml.boot import VirtualClock, run_in_uml
from atoll_emulation.uml.kernel import find_virtual_kernel
from tests.guests.virtual_link_guest import CLASSES, KINDS, SHARED, MarkedPacket, Train, marked_packets, trains
from tests.support.virtual_runs import HANGS_S

pytestmark = pytest.mark.virtual

TICK_NS = 256  # of the clock
BY_KERNEL_NS = 3 * TICK_NS
BY_WAKING_NS = 12 * TICK_NS
TRAINS = trains()
ENGINES = [("kernel", BY_KERNEL_NS), ("engine", BY_WAKING_NS)]


@dataclass(frozen=True)
class Passage:
    """A train through a link: for each packet when it was sent, when it arrived (None: lost), when it should have."""

    train: Train
    sent: list[int]
    arrived: list[int | None]
    due: list[Fraction | None]
    mark: dict[str, Any]

    @property
    def lost(self) -> list[bool]:
        return [instant is None for instant in self.arrived]


def due(train: Train, sent: list[int]) -> list[Fraction | None]:
    """When each packet leaves a byte queue, a transmitter that sends it whole, and the propagation after.

    Noise changes nothing in that: a packet that is lost at the receiver has taken its time.
    """
    free, waiting, instants = Fraction(0), list[tuple[Fraction, int]](), list[Fraction | None]()
    for now, (_, packet_bytes) in zip(sent, train.packets, strict=True):
        waiting = [(begin, held) for begin, held in waiting if begin > now]
        if free > now and sum(held for _, held in waiting) + packet_bytes > train.direction.queue.bytes:
            instants.append(None)
            continue
        begin = max(free, Fraction(now))
        waiting.append((begin, packet_bytes))
        free = begin + serialisation_ns(train, packet_bytes)
        instants.append(free + train.direction.delay.ns)
    return instants


def serialisation_ns(train: Train, count: int) -> Fraction:
    return Fraction(count * 8 * 10**9, train.direction.rate.bit_s)


def bucket_ns(train: Train) -> Fraction:
    """How much earlier tbf sends what its bucket holds."""
    return serialisation_ns(train, bucket_bytes(train.direction.rate, VIRTUAL_SLACK))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All that virtual_link_guest measures, in one kernel."""
    command = [sys.executable, "-m", "tests.guests.virtual_link_guest"]
    output, kernel = tmp_path_factory.mktemp("links"), find_virtual_kernel()
    status, console = run_in_uml(command, output, limit_s=HANGS_S, kernel=kernel, clock=VirtualClock(1), memory_mb=700)
    assert status == 0, console
    return json.loads(console)


@pytest.fixture(scope="module")
def passages(found: dict[str, Any]) -> dict[tuple[str, str], Passage]:
    """By train and kind of link."""
    return {
        (name, kind): Passage(
            train, measured["sent"], measured["arrived"], due(train, measured["sent"]), measured["mark"]
        )
        for name, train in TRAINS.items()
        for kind, measured in found["links"][name].items()
    }


Passages = dict[tuple[str, str], Passage]


@pytest.mark.parametrize("name", TRAINS)
@pytest.mark.parametrize(("kind", "late_ns"), ENGINES)
def test_the_engine_sends_every_packet_when_it_is_due(passages: Passages, name: str, kind: str, late_ns: int) -> None:
    passage = passages[name, kind]
    if passage.train.direction.loss is None:
        assert passage.lost == [instant is None for instant in passage.due]
    off = [a - d for a, d in zip(passage.arrived, passage.due, strict=True) if a is not None and d is not None]
    assert all(0 <= late <= late_ns for late in off), (float(min(off)), float(max(off)))
    assert passage.mark["lateness_max_ns"] <= late_ns
    assert passage.mark["scheduled_windows_over_rate"] == 0


def test_departures_left_to_the_kernel_are_never_late(passages: Passages) -> None:
    assert {passages[name, "kernel"].mark["lateness_max_ns"] for name in TRAINS} == {0}


@pytest.mark.parametrize("name", ["mixed", "lossy", "fast"])
def test_both_backends_agree_within_one_packets_serialisation(passages: Passages, name: str) -> None:
    """Departure by departure, although tbf sends as soon as its bucket has enough and not once all is sent."""
    tc, engine = passages[name, "tc"], passages[name, "kernel"]
    ahead_ns = bucket_ns(tc.train)
    sent = list(zip(tc.sent, engine.sent, strict=True))
    arrived = [(a, b) for a, b in zip(tc.arrived, engine.arrived, strict=True) if a is not None and b is not None]
    if tc.train.direction.loss:
        assert len(arrived) > len(sent) / 3  # of those that neither has lost, 0.49
    else:
        assert len(arrived) == len(sent)
    # The trains are sent by a program that reads the clock: the two differ by some of its ticks.
    (start, other_start), later = sent[0], max(abs((b - a) - (sent[0][1] - sent[0][0])) for a, b in sent)
    apart = [(b - other_start) - (a - start) for a, b in arrived]
    assert later < 100 * TICK_NS
    assert -later - BY_WAKING_NS <= min(apart) <= max(apart) <= ahead_ns + later


@pytest.mark.parametrize("name", ["mixed", "lossy", "fast"])
def test_tbf_sends_what_its_bucket_holds_earlier_than_a_transmitter(passages: Passages, name: str) -> None:
    """But nothing before it came."""
    passage = passages[name, "tc"]
    ahead_ns = bucket_ns(passage.train)
    assert passage.train.direction.loss or not any(passage.lost)
    for sent, arrived, instant in zip(passage.sent, passage.arrived, passage.due, strict=True):
        assert instant is not None
        if arrived is None:
            continue
        expected_ns = max(Fraction(sent + passage.train.direction.delay.ns), instant - ahead_ns)
        assert 0 <= arrived - expected_ns <= BY_WAKING_NS


def test_both_backends_lose_the_same_to_a_full_queue(passages: Passages) -> None:
    """At no packet does one have lost more than one packet more than the other."""
    tc, engine = passages["full", "tc"].lost, passages["full", "kernel"].lost
    assert sum(tc) == sum(engine) > 0
    assert all(abs(sum(tc[:count]) - sum(engine[:count])) <= 1 for count in range(len(tc)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TRAINS)
def test_every_packet_is_accounted_for(passages: Passages, name: str, kind: str) -> None:
    passage = passages[name, kind]
    mark, lost = passage.mark, sum(passage.lost)
    lost_bytes = sum(size for gone, (_, size) in zip(passage.lost, passage.train.packets, strict=True) if gone)
    cause, other = ("loss", "queue") if passage.train.direction.loss else ("queue", "loss")
    counted = {name: (mark[f"dropped_{name}_packets"], mark[f"dropped_{name}_bytes"]) for name in (cause, other)}
    assert counted == {cause: (lost, lost_bytes), other: (0, 0)}
    assert (mark["in_packets"], mark["dropped_packets"], mark["dropped_bytes"]) == (len(passage.sent), lost, lost_bytes)
    assert (mark["out_packets"], mark["held_packets"]) == (len(passage.sent) - lost, 0)
    assert (
        mark["in_bytes"] == mark["out_bytes"] + mark["dropped_bytes"] == sum(size for _, size in passage.train.packets)
    )


@pytest.mark.parametrize(("kind", "late_ns"), ENGINES)
def test_frames_that_wait_to_be_read_arrived_before_a_change_a_mark_and_the_end(
    found: dict[str, Any], kind: str, late_ns: int
) -> None:
    """All of them, however many: none is taken for one that arrived when it was read."""
    waited = found["waiting"][kind]
    assert waited["changed"]["ok"]
    delays = [after - before for before, after in zip(waited["sent"], waited["arrived"], strict=True)]
    # 1000 frames of 46 bytes last 37 us.
    assert max(delays) <= 20_000_000 + 40_000 + late_ns + 1000 * TICK_NS
    assert [waited[mark]["in_packets"] for mark in ("mark", "next_mark", "done")] == [1001] * 3
    for mark in ("mark", "next_mark", "done"):
        counted = waited[mark]
        assert (counted["clamped_packets"], counted["clamped_max_ns"], counted["unstamped_packets"]) == (0, 0, 0)
        assert (counted["unread_packets"], counted["no_checksum_packets"], counted["stall_count"]) == (0, 0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_delay_classes_delay_by_exactly_their_own(found: dict[str, Any], kind: str) -> None:
    for vlan, rtt in CLASSES.items():
        half_ns = int(rtt.split()[0]) * 500_000
        took = found["classes"][kind][str(vlan)]
        assert len(took) == 20
        assert all(half_ns <= each <= half_ns + BY_WAKING_NS for each in took), took


def test_tc_counts_what_was_lost_after_it_had_used_the_link(passages: Passages) -> None:
    mark = passages["lossy", "tc"].mark
    assert mark["lost_after_packets"] == mark["dropped_loss_packets"] > 0
    assert mark["lost_after_bytes"] == mark["dropped_loss_bytes"]
    assert not mark["overloaded"]


def test_tc_was_overloaded_until_the_mark_and_not_for_ever(found: dict[str, Any]) -> None:
    """Without losses the kernel's counter of drops tells; with them, a netem that was found full."""
    assert found["overloaded"] == {"mixed": [True, False], "lossy": [True, False]}


def test_sojourn_times_of_tc_are_those_of_looks_at_its_queue(passages: Passages) -> None:
    mark, direction = passages["full", "tc"].mark, TRAINS["full"].direction
    full_ns = direction.queue.bytes * 8 * 10**9 // direction.rate.bit_s
    assert 0.9 * full_ns < mark["sojourn_max_ns"] <= full_ns
    assert mark["sojourn_count"] == sum(count for _, count in mark["sojourn_histogram"])
    assert 0 < mark["sojourn_sum_ns"] < mark["sojourn_count"] * full_ns


@dataclass
class TwoQueues:
    """A transmitter with two queues, kept the slow way: when each packet has been sent."""

    sent: dict[int, Fraction]
    free: Fraction
    waiting: tuple[list[int], list[int]]

    def serve(self, until: Fraction, packets: tuple[MarkedPacket, ...]) -> None:
        while self.free <= until and any(self.waiting):
            number = (self.waiting[0] or self.waiting[1]).pop(0)
            self.send(number, packets)

    def send(self, number: int, packets: tuple[MarkedPacket, ...]) -> None:
        self.free += Fraction(packets[number].bytes * 8 * 10**9, SHARED.rate.bit_s)
        self.sent[number] = self.free


def two_queues(packets: tuple[MarkedPacket, ...], sent: list[int], *, with_le: bool = True) -> dict[int, Fraction]:
    """When each packet leaves the link ``SHARED``; those that find no room are missing."""
    assert SHARED.low_priority is not None
    limits = (SHARED.queue.bytes, SHARED.low_priority.queue.bytes)
    link = TwoQueues({}, Fraction(0), ([], []))
    for number, (packet, now) in enumerate(zip(packets, map(Fraction, sent), strict=True)):
        if packet.is_le and not with_le:
            continue
        link.serve(now, packets)
        queue = link.waiting[packet.is_le]
        if link.free <= now:
            link.free = now
            link.send(number, packets)
        elif sum(packets[each].bytes for each in queue) + packet.bytes <= limits[packet.is_le]:
            queue.append(number)
    link.serve(link.free + 10**12, packets)
    return {number: end + SHARED.delay.ns for number, end in link.sent.items()}


@pytest.mark.parametrize(("kind", "late_ns"), ENGINES)
def test_the_engine_serves_two_queues_to_the_instant(found: dict[str, Any], kind: str, late_ns: int) -> None:
    packets, measured = marked_packets(), found["shared"][kind]
    due_ns = two_queues(packets, measured["sent"])
    arrived = {number: instant for number, instant in enumerate(measured["arrived"]) if instant is not None}
    assert arrived.keys() == due_ns.keys()
    off = [arrived[number] - due_ns[number] for number in due_ns]
    assert all(0 <= late <= late_ns for late in off), (float(min(off)), float(max(off)))
    mark, low = measured["mark"], [number for number, packet in enumerate(packets) if packet.is_le]
    sent = [number for number in low if number in due_ns]
    assert 20 < len(low) - len(sent) == mark["dropped_low_priority_packets"] == mark["dropped_packets"]
    assert (mark["low_priority_in_packets"], mark["low_priority_sent_packets"]) == (len(low), len(sent))
    assert mark["low_priority_sent_bytes"] == sum(packets[number].bytes for number in sent)
    assert mark["low_priority_queue_max_bytes"] <= 6000 < mark["low_priority_queue_max_bytes"] + 1500


def test_tc_lets_packets_marked_le_wait_for_all_others(found: dict[str, Any]) -> None:
    """Others leave as if there were no packets marked LE, and before that by what the bucket holds at most."""
    packets, measured = marked_packets(), found["shared"]["tc"]
    alone_ns = two_queues(packets, measured["sent"], with_le=False)
    ahead_ns = bucket_ns(Train(SHARED, ()))
    for number, instant in alone_ns.items():
        assert measured["arrived"][number] is not None
        assert -ahead_ns <= measured["arrived"][number] - instant <= BY_WAKING_NS
    # No more and no less of the others than with the engine, but for the packets that its transmitter held.
    engine, tc = found["shared"]["kernel"]["mark"], measured["mark"]
    assert tc["low_priority_in_packets"] == engine["low_priority_in_packets"]
    assert abs(tc["low_priority_sent_bytes"] - engine["low_priority_sent_bytes"]) <= 5 * 1500
    assert tc["dropped_low_priority_packets"] == tc["dropped_packets"] > 20
    assert tc["dropped_queue_packets"] == 0
    assert tc["low_priority_in_packets"] == tc["low_priority_sent_packets"] + tc["dropped_low_priority_packets"]
    assert 3000 < tc["low_priority_queue_max_bytes"] <= 6000
