# SPDX-License-Identifier: Apache-2.0
"""Events of the daemon: their numbers, who gets which, and what becomes of those who do not read."""

import asyncio
import itertools
from typing import Any

import pytest

from atoll_daemon.event_log import MOST_WAITING, EventListener, EventLog


@pytest.fixture
def log() -> EventLog:
    """A log that keeps five events; its clock ticks once an event."""
    return EventLog(itertools.count(1).__next__, most_kept=5)


def held(listener: EventListener) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while (event := listener.get_nowait()) is not None:
        found.append(event)
    return found


def test_events_are_numbered_and_timed(log: EventLog) -> None:
    text = {"text": "one", "severity": "info"}
    assert log.add("note", message="one") == {"type": "note", "seq": 1, "t_ns": 1, "message": "one", **text}
    assert log.add("note", message="two")["seq"] == 2
    assert log.oldest == 1


def test_who_was_away_gets_what_it_missed(log: EventLog) -> None:
    for number in range(4):
        log.add("note", number=number)
    assert [event["seq"] for event in log.since(2)] == [3, 4]
    assert log.since(4) == []


def test_what_is_not_kept_any_more_is_told_as_a_gap(log: EventLog) -> None:
    for number in range(8):
        log.add("note", number=number)
    gap, *rest = log.since(1)
    assert (gap["type"], gap["from"], gap["to"]) == ("gap", 2, 3)
    assert [event["seq"] for event in rest] == [4, 5, 6, 7, 8]


def test_a_number_yet_to_come_is_another_daemons(log: EventLog) -> None:
    """Who had number 900 of the daemon before this one gets everything of this one."""
    log.add("note")
    assert [event["seq"] for event in log.since(900)] == [1]


async def test_events_and_samples_come_in_their_order(log: EventLog) -> None:
    """Samples are for those who asked for them; they have no number."""
    both = log.subscribe(0, "both", takes_samples=True, drop=lambda: None)
    events = log.subscribe(0, "events", takes_samples=False, drop=lambda: None)
    log.add("step", step="check")
    log.sample("live", elapsed_s=1.0)
    log.add("step", step="measure")
    assert [event.get("seq") for event in held(both)] == [1, None, 2]
    assert [event["seq"] for event in held(events)] == [1, 2]


async def test_a_listener_waits_for_what_is_to_come(log: EventLog) -> None:
    listener = log.subscribe(0, "patient", takes_samples=False, drop=lambda: None)
    waiting = asyncio.create_task(listener.get())
    await asyncio.sleep(0)
    log.add("note", message="at last")
    event = await waiting
    assert event is not None
    assert event["message"] == "at last"


async def test_who_does_not_read_is_dropped_and_can_learn_of_it(log: EventLog) -> None:
    """Nothing of it is kept; an event says up to where it had read; others miss nothing."""
    dropped: list[bool] = []
    slow = log.subscribe(0, "slow", takes_samples=True, drop=lambda: dropped.append(True))
    log.add("note")
    await slow.get()
    for _ in range(MOST_WAITING):
        log.sample("counters")
    assert not dropped
    quick = log.subscribe(log.seq, "quick", takes_samples=False, drop=lambda: None)
    log.sample("counters")
    assert dropped == [True]
    assert await slow.get() is None
    log.sample("counters")
    (answer,) = held(quick)
    assert (answer["type"], answer["listener"], answer["after"]) == ("listener_dropped", "slow", 1)


async def test_the_end_lets_listeners_go_with_what_there_was(log: EventLog) -> None:
    listener = log.subscribe(0, "last", takes_samples=False, drop=lambda: None)
    log.add("lab", state="down")
    log.close()
    assert (await listener.get() or {})["state"] == "down"
    assert await listener.get() is None
