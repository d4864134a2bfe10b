# SPDX-License-Identifier: Apache-2.0
"""Publish and subscribe: by type, until the subscription ends, and without effect of a subscriber's error on others."""

import pytest

from atoll_core.events.event_bus import EventBus, with_error_report
from atoll_core.events.events import Event, Note, Progress, StepBegun


def test_subscribers_get_the_types_they_asked_for_until_they_end() -> None:
    bus = EventBus()
    notes: list[Note] = []
    both: list[Event] = []
    first = bus.subscribe(notes.append, Note)
    with bus.subscribe(both.append, Note, Progress):
        for event in (Note("one"), Progress("apply"), StepBegun("apply")):
            bus.publish(event)
    first.close()
    first.close()
    bus.publish(Note("two"))
    assert notes == [Note("one")]
    assert both == [Note("one"), Progress("apply")]


def full(note: Note) -> None:
    raise OSError(28, f"no space for {note.message}")


def test_an_error_of_a_subscriber_affects_neither_publisher_nor_others() -> None:
    bus = EventBus()
    notes: list[str] = []
    failing = bus.subscribe(full, Note)
    bus.subscribe(lambda note: notes.append(note.message), Note)
    assert [str(error) for error in bus.publish(Note("one"))] == ["[Errno 28] no space for one"]
    bus.publish(Note("two"))
    assert notes == ["one", "two"]
    assert str(failing.error) == "[Errno 28] no space for one"


def test_a_block_raises_the_error_of_its_subscriber_at_its_end() -> None:
    bus, done = EventBus(), False

    def work() -> None:
        nonlocal done
        with bus.subscribe(full, Note):
            bus.publish(Note("one"))
            done = True

    with pytest.raises(OSError, match="no space for one"):
        work()
    assert done


def test_the_error_of_the_block_comes_before_that_of_its_subscriber() -> None:
    bus = EventBus()

    def work() -> None:
        with bus.subscribe(full, Note):
            bus.publish(Note("one"))
            raise KeyError("the work itself")

    with pytest.raises(KeyError):
        work()


def test_a_subscriber_may_end_its_subscription_while_it_is_called() -> None:
    bus = EventBus()
    seen: list[str] = []
    once = bus.subscribe(lambda note: (seen.append(note.message), once.close()), Note)
    bus.subscribe(lambda note: seen.append(note.message), Note)
    bus.publish(Note("one"))
    bus.publish(Note("two"))
    assert seen == ["one", "one", "two"]


def test_errors_of_a_subscription_that_is_never_closed_are_reported_once() -> None:
    bus, lines = EventBus(), list[str]()
    bus.subscribe(with_error_report(full, lines.append), Note)
    for message in ("one", "one", "two"):
        assert len(bus.publish(Note(message))) == 1
    assert lines == [
        f"an event was not taken: Note: OSError(28, 'no space for {message}')" for message in ("one", "two")
    ]
