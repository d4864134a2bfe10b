# SPDX-License-Identifier: Apache-2.0
"""Events of a lab in their order: sent to subscribers at once, and kept for later ones; points for the live page.

*Events* are numbered from 1, and the last few thousand are kept: a client that was disconnected asks for those after
the last one it received. *Samples* (a box's counters, a run's live figures, metric points) have no number and are not
kept. A slow subscriber delays nothing: one that is too far behind is dropped, which is itself an event.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any

from atoll_core.events.events import SAMPLES, Counters, Event, with_text
from atoll_core.metrics.line_protocol import MetricPoint
from atoll_testbed.metrics.metric_points import box_kinds, box_points, class_names, link_config_points
from atoll_testbed.testbed import Testbed

EventJson = dict[str, Any]

KEPT_EVENTS = 4096
MOST_WAITING = 1024
"""How many events and samples may wait for a subscriber."""

POINTS_PER_EVENT = 64
"""Number of metric points in a sample that count as one more event: this also bounds the bytes that wait."""


class EventListener:
    """The queue of one subscriber. ``drop``: called once if it falls too far behind; it gets nothing more then."""

    def __init__(self, backlog: list[EventJson], *, takes_samples: bool, drop: Callable[[], None]) -> None:
        self.takes_samples = takes_samples
        self.last = 0
        """Number of the last event taken, 0 before the first."""
        self._queue = deque(backlog)
        self._queued_weight = len(backlog)
        self._most_weight = len(backlog) + MOST_WAITING
        self._changed = asyncio.Event()
        self._drop = drop
        self._is_over = False

    async def get(self) -> EventJson | None:
        """Wait for the next event or sample; None if the subscription has ended."""
        while (event := self.get_nowait()) is None and not self._is_over:
            self._changed.clear()
            await self._changed.wait()
        return event

    def get_nowait(self) -> EventJson | None:
        """The next event or sample if one is waiting, else None."""
        if not self._queue:
            return None
        event = self._queue.popleft()
        self._queued_weight -= _weight(event)
        self.last = event.get("seq", self.last)
        return event

    def close(self) -> None:
        """End the subscription after the waiting events."""
        self._is_over = True
        self._changed.set()

    def put(self, event: EventJson) -> bool:
        """Queue an event. If too many are waiting, drop the subscriber and return False."""
        if self._queued_weight >= self._most_weight:
            self._is_over = True
            self._queue.clear()
            self._drop()
        else:
            self._queue.append(event)
            self._queued_weight += _weight(event)
        self._changed.set()
        return not self._is_over


class EventLog:
    """The events of one daemon. ``clock``: ns since 1970, for their ``t_ns``."""

    def __init__(self, clock: Callable[[], int], most_kept: int = KEPT_EVENTS) -> None:
        self.seq = 0
        """Number of the last event."""
        self._clock = clock
        self._events: deque[EventJson] = deque(maxlen=most_kept)
        self._listeners: dict[EventListener, str] = {}

    @property
    def oldest(self) -> int:
        """Number of the oldest event kept; one more than the last number if none are kept."""
        return self._events[0]["seq"] if self._events else self.seq + 1

    @property
    def has_sample_listeners(self) -> bool:
        """Whether any subscriber takes samples."""
        return any(listener.takes_samples for listener in self._listeners)

    def add(self, kind: str, /, **fields: Any) -> EventJson:
        """Add an event of a ``type``, with its text, and return it."""
        self.seq += 1
        event: EventJson = with_text({"type": kind, "seq": self.seq, "t_ns": self._clock(), **fields})
        self._events.append(event)
        self._send(event, sample=False)
        return event

    def record(self, event: Event) -> None:
        """Add an event or a sample that was published."""
        fields = event.to_json()
        (self.sample if isinstance(event, SAMPLES) else self.add)(fields.pop("type"), **fields)

    def sample(self, kind: str, /, **fields: Any) -> None:
        """Send a sample to the subscribers that take samples. ``fields`` may have a ``t_ns`` of its own."""
        self._send({"type": kind, "t_ns": self._clock(), **fields}, sample=True)

    def since(self, after: int) -> list[EventJson]:
        """The events with numbers above ``after``, preceded by a ``gap`` if some of them are no longer kept.

        All events if ``after`` is above the last number: it comes from an earlier daemon.
        """
        after = after if after <= self.seq else 0
        events = [event for event in self._events if event["seq"] > after]
        if after + 1 < self.oldest:
            gap: EventJson = {"type": "gap", "t_ns": self._clock(), "from": after + 1, "to": self.oldest - 1}
            return [with_text(gap), *events]
        return events

    def subscribe(self, after: int, name: str, *, takes_samples: bool, drop: Callable[[], None]) -> EventListener:
        """Subscribe, beginning with the events after ``after``. ``name``: for the event if it is dropped."""
        listener = EventListener(self.since(after), takes_samples=takes_samples, drop=drop)
        self._listeners[listener] = name
        return listener

    def unsubscribe(self, listener: EventListener) -> None:
        """End a subscription; does nothing if it was dropped before."""
        self._listeners.pop(listener, None)

    def close(self) -> None:
        """End all subscriptions after their waiting events."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def _send(self, event: EventJson, *, sample: bool) -> None:
        dropped: list[tuple[EventListener, str]] = []
        for listener, name in self._listeners.items():
            if (listener.takes_samples or not sample) and not listener.put(event):
                dropped.append((listener, name))
        for listener, _ in dropped:
            del self._listeners[listener]
        for listener, name in dropped:
            self.add("listener_dropped", listener=name, after=listener.last, message=f"{name} stopped reading")


def _weight(event: EventJson) -> int:
    return 1 + len(event.get("points", ())) // POINTS_PER_EVENT


SENDING_PERIOD_S = 1.0


class LivePoints:
    """Metric points for the live page, sent once a second as ``points`` samples.

    They are those of a run, or the boxes' counters while there is no run. Nothing is stored, and no points are made
    while there is no subscriber for samples.
    """

    def __init__(self, events: EventLog, period_s: float = SENDING_PERIOD_S) -> None:
        self._events = events
        self._period_s = period_s
        self._run: str | None = None
        self._counters_from_run = False
        self._points: list[list[Any]] = []
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def of_run(self, run: str, *, counters_from_run: bool = True) -> Generator[None]:
        """Mark points as those of a run while the block lasts.

        ``counters_from_run``: the run passes the boxes' counters itself; otherwise they are its only points.
        """
        self._send()
        self._run, self._counters_from_run = run, counters_from_run
        try:
            yield
        finally:
            self._send()
            self._run, self._counters_from_run = None, False

    def add(self, points: Iterable[MetricPoint]) -> None:
        """Take points, which are sent within a second."""
        if not self._events.has_sample_listeners:
            return
        self._points += [fields for point in points if (fields := point.to_json()) is not None]
        if self._points and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._period_s, self._send)

    def add_counters(self, testbed: Testbed, event: Counters, now_ns: int) -> None:
        """Take the counters of a link or delay box, unless a run passes them itself.

        The first counters of a second are preceded by the configuration of the links. ``now_ns``: CLOCK_REALTIME.
        """
        if self._counters_from_run or not self._events.has_sample_listeners:
            return
        if self._timer is None and testbed.experiment is not None:
            self.add(link_config_points(testbed.experiment.links, now_ns))
        self.add(box_points(event.box, event.line, class_names(testbed.network), box_kinds(testbed.network)))

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._points:
            points, self._points = self._points, []
            latest_ns = max(point[3] for point in points)
            self._events.sample("points", t_ns=latest_ns, run=self._run, points=points)
