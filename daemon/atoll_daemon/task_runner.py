# SPDX-License-Identifier: Apache-2.0
"""Run one task on the lab at a time: bring it up, apply, run, calibrate."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from atoll_daemon.event_log import EventLog
from atoll_daemon.http.http_errors import RequestError

JsonObject = dict[str, Any]
Work = Callable[[], Awaitable[JsonObject]]

_VERDICT_KEYS = ("verdict", "reasons", "caveats")  # of a run's summary


@dataclass(frozen=True, slots=True)
class Busy:
    """The task in progress. ``about``: the experiment, or the lab that is being brought up."""

    what: str
    about: str
    since_ns: int  # CLOCK_REALTIME, ns since 1970


class TaskRunner:
    """Runs tasks, and records their begin and end."""

    def __init__(self, events: EventLog) -> None:
        self.busy: Busy | None = None
        self.idle = asyncio.Event()
        self.idle.set()
        self._events = events
        self._task: asyncio.Task[JsonObject] | None = None

    def require_idle(self) -> None:
        """Raise RequestError (409) while a task is in progress."""
        if self.busy is not None:
            msg = f"the lab is busy with `{self.busy.what} {self.busy.about}`; wait until it ends"
            raise RequestError(409, msg, exit_code=1)

    def begin(self, what: str, about: str, work: Work) -> asyncio.Task[JsonObject]:
        """Start a task, which ends with its result or error. Raises RequestError (409) while another is in progress."""
        self.require_idle()
        self.busy = Busy(what, about, time.time_ns())
        self.idle.clear()
        self._task = asyncio.create_task(self._perform(what, about, work))
        self._task.add_done_callback(self._on_end)
        return self._task

    async def end(self) -> None:
        """Cancel the task in progress; returns when it has cleaned up."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _perform(self, what: str, about: str, work: Work) -> JsonObject:
        self._events.add("work", what=what, about=about, state="begin")
        try:
            result = await work()
        except asyncio.CancelledError:
            self._events.add("work", what=what, about=about, state="cancelled")
            raise
        except BaseException as error:
            self._events.add("work", what=what, about=about, state="failed", message=str(error))
            raise
        verdict = {key: result["summary"].get(key, []) for key in _VERDICT_KEYS} if result.get("summary") else {}
        self._events.add("work", what=what, about=about, state="end", **verdict)
        return result

    def _on_end(self, task: asyncio.Task[JsonObject]) -> None:
        if not task.cancelled():
            task.exception()  # retrieved: the requester may no longer be waiting for it
        self.busy = None
        self._task = None
        self.idle.set()
