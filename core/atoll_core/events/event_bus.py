# SPDX-License-Identifier: Apache-2.0
"""Publish and subscribe: every event goes from its publisher to those that record or show it."""

from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from atoll_core.events.events import Event

E = TypeVar("E", bound=Event)


class Subscription(Generic[E]):
    """A subscriber of some types of events until :meth:`close`, or until the end of a ``with`` block.

    ``error``: the first error that the subscriber raised. The block raises it at its end if nothing else was raised.
    """

    def __init__(self, bus: "EventBus", handle: Callable[[E], object]) -> None:
        self.error: Exception | None = None
        self._bus = bus
        self._handle = handle

    def close(self) -> None:
        """End the subscription; does nothing if it has ended."""
        self._bus.unsubscribe(self)

    def put(self, event: E) -> Exception | None:
        """Pass an event to the subscriber; returns its error."""
        try:
            self._handle(event)
        except Exception as error:  # noqa: BLE001 - such as a full disk, which must not affect the publisher's work
            self.error = self.error or error
            return error
        return None

    def __enter__(self) -> "Subscription[E]":
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if error is None and self.error is not None:
            raise self.error


class EventBus:
    """Passes each event to the subscribers of its type, in the order in which they subscribed, before it returns.

    Use it from the event loop's thread only.
    """

    def __init__(self) -> None:
        self._subscribers: dict[type[Event], list[Subscription[Event]]] = {}

    def subscribe(self, handle: Callable[[E], object], *types: type[E]) -> Subscription[E]:
        """Call ``handle`` with every event of these types. Close the subscription, or use it as a context manager."""
        subscription = Subscription(self, handle)
        for event_type in types:
            self._subscribers.setdefault(event_type, []).append(subscription)  # pyright: ignore[reportArgumentType]
        return subscription

    def unsubscribe(self, subscription: Subscription[E]) -> None:
        """End a subscription; does nothing if it has ended."""
        for event_type, subscribers in self._subscribers.items():
            self._subscribers[event_type] = [other for other in subscribers if other is not subscription]

    def publish(self, event: Event) -> tuple[Exception, ...]:
        """Pass an event to its subscribers; returns their errors, which do not affect the publisher or each other."""
        subscribers = self._subscribers.get(type(event), ())
        return tuple(error for subscriber in subscribers if (error := subscriber.put(event)) is not None)


def with_error_report(handle: Callable[[E], object], report: Callable[[str], object]) -> Callable[[E], None]:
    """``handle``, for a subscription that is never closed: its errors are reported, an equal one after another once."""
    last_error = ""

    def handle_and_report(event: E) -> None:
        nonlocal last_error
        try:
            handle(event)
        except Exception as error:
            if (text := f"{type(event).__name__}: {error!r}") != last_error:
                last_error = text
                report(f"an event was not taken: {text}")
            raise

    return handle_and_report
