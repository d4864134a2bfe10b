# SPDX-License-Identifier: Apache-2.0
"""What happens in a lab, in its order: kept for those who come later, handed at once to those who listen.

*Events* are numbered from 1 and the last few thousand are kept, so that who was away asks for those after the last one
it has seen. *Samples* (a box's counters, a run's live figures, metric points) are of the moment: they have no number
and are not kept.
Nobody who listens can hold anything up: who is too far behind is dropped, which is an event itself.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

Event = dict[str, Any]

KEPT = 4096
BEHIND = 1024
"""How many events and samples may wait for a listener that does not take them."""

POINTS_AS_ONE = 64
"""So many metric points of a sample count as one more: what waits for a listener is bounded in bytes as well."""


class Subscription:
    """One listener's share. ``drop``: called once when it has fallen too far behind; it gets nothing more then."""

    def __init__(self, backlog: list[Event], *, samples: bool, drop: Callable[[], None]) -> None:
        self.samples = samples
        self.last = 0
        """Number of the last event that was taken, 0 before the first."""
        self._waiting = deque(backlog)
        self._behind = len(backlog)
        self._most = len(backlog) + BEHIND
        self._something = asyncio.Event()
        self._drop = drop
        self._over = False

    async def take(self) -> Event | None:
        """The next event or sample, as soon as there is one; None when the listener was dropped."""
        while not self._waiting:
            if self._over:
                return None
            self._something.clear()
            await self._something.wait()
        return self._taken()

    def take_now(self) -> Event | None:
        """The next one if there is one already."""
        return self._taken() if self._waiting else None

    def _taken(self) -> Event:
        event = self._waiting.popleft()
        self._behind -= _weight(event)
        self.last = event.get("seq", self.last)
        return event

    def close(self) -> None:
        """Nothing more comes after what is waiting."""
        self._over = True
        self._something.set()

    def put(self, event: Event) -> bool:
        """Hand it on; False, and nothing any more, when too much is waiting."""
        if self._behind >= self._most:
            self._over = True
            self._waiting.clear()
            self._drop()
        else:
            self._waiting.append(event)
            self._behind += _weight(event)
        self._something.set()
        return not self._over


class EventLog:
    """The events of one daemon. ``clock``: ns since 1970, for their ``t_ns``."""

    def __init__(self, clock: Callable[[], int], kept: int = KEPT) -> None:
        self.seq = 0
        """Number of the last event."""
        self._clock = clock
        self._events: deque[Event] = deque(maxlen=kept)
        self._listeners: dict[Subscription, str] = {}

    @property
    def oldest(self) -> int:
        """Number of the first event that is still kept; one more than the last when there are none."""
        return self._events[0]["seq"] if self._events else self.seq + 1

    @property
    def sampled(self) -> bool:
        """Whether anybody listens to samples."""
        return any(listener.samples for listener in self._listeners)

    def add(self, kind: str, /, **fields: Any) -> Event:
        """Note an event of that ``type``; as it was noted."""
        self.seq += 1
        event: Event = {"type": kind, "seq": self.seq, "t_ns": self._clock(), **fields}
        self._events.append(event)
        self._hand_on(event, sample=False)
        return event

    def sample(self, kind: str, /, **fields: Any) -> None:
        """Hand a figure of the moment to those who want samples; its ``t_ns`` is its own if it has one."""
        self._hand_on({"type": kind, "t_ns": self._clock(), **fields}, sample=True)

    def since(self, after: int) -> list[Event]:
        """The events with numbers above ``after``; first of all a ``gap`` if some of those are not kept any more.

        A number that is yet to come is another daemon's: all events then.
        """
        after = after if after <= self.seq else 0
        events = [event for event in self._events if event["seq"] > after]
        if after + 1 < self.oldest:
            gap: Event = {"type": "gap", "t_ns": self._clock(), "from": after + 1, "to": self.oldest - 1}
            return [gap, *events]
        return events

    def subscribe(self, after: int, name: str, *, samples: bool, drop: Callable[[], None]) -> Subscription:
        """Begin to listen, with the events after ``after``. ``name``: what the listener is called if it is dropped."""
        listener = Subscription(self.since(after), samples=samples, drop=drop)
        self._listeners[listener] = name
        return listener

    def unsubscribe(self, listener: Subscription) -> None:
        """Stop listening; no harm if it was dropped before."""
        self._listeners.pop(listener, None)

    def close(self) -> None:
        """Let every listener go when it has what there was."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def _hand_on(self, event: Event, *, sample: bool) -> None:
        dropped: list[tuple[Subscription, str]] = []
        for listener, name in self._listeners.items():
            if (listener.samples or not sample) and not listener.put(event):
                dropped.append((listener, name))
        for listener, _ in dropped:
            del self._listeners[listener]
        for listener, name in dropped:
            self.add("listener_dropped", listener=name, after=listener.last, message=f"{name} stopped reading")


def _weight(event: Event) -> int:
    return 1 + len(event.get("points", ())) // POINTS_AS_ONE
