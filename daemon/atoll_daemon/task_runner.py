# SPDX-License-Identifier: Apache-2.0
"""Run one task on the lab at a time: bring it up, apply, run, calibrate."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from atoll_daemon.event_log import EventLog
from atoll_daemon.http.http_errors import RequestError

Line = dict[str, Any]
Emit = Callable[[Line], None]
Work = Callable[[Emit], Awaitable[Line]]

_SAMPLES = frozenset({"live"})  # types of lines that become samples
_VERDICT_KEYS = ("verdict", "reasons", "caveats")  # of a run's summary
_TESTBED_EVENTS = frozenset({"swap"})  # types of lines that the testbed itself adds to the events


@dataclass(frozen=True, slots=True)
class Busy:
    """The task in progress. ``about``: the experiment, or the lab that is being brought up."""

    what: str
    about: str
    since_ns: int  # CLOCK_REALTIME, ns since 1970


class TaskRunner:
    """Runs tasks. Every line that a task emits goes to its requester and to the events."""

    def __init__(self, events: EventLog) -> None:
        self.busy: Busy | None = None
        self.idle = asyncio.Event()
        self.idle.set()
        self._events = events
        self._task: asyncio.Task[Line] | None = None

    def require_idle(self) -> None:
        """Raise RequestError (409) while a task is in progress."""
        if self.busy is not None:
            msg = f"the lab is busy with `{self.busy.what} {self.busy.about}`; try again when that is done"
            raise RequestError(409, msg, exit_code=1)

    def begin(self, what: str, about: str, work: Work, listen: Emit) -> asyncio.Task[Line]:
        """Start a task, which ends with its result or error. Raises RequestError (409) while another is in progress."""
        self.require_idle()
        self.busy = Busy(what, about, time.time_ns())
        self.idle.clear()
        self._task = asyncio.create_task(self._do(what, about, work, listen))
        self._task.add_done_callback(self._over)
        return self._task

    async def end(self) -> None:
        """Cancel the task in progress; returns when it has cleaned up."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _do(self, what: str, about: str, work: Work, listen: Emit) -> Line:
        def emit(line: Line) -> None:
            self._note(line)
            listen(line)

        self._events.add("work", what=what, about=about, state="begin")
        try:
            result = await work(emit)
        except asyncio.CancelledError:
            self._events.add("work", what=what, about=about, state="cancelled")
            raise
        except BaseException as error:
            self._events.add("work", what=what, about=about, state="failed", message=str(error))
            raise
        verdict = {key: result["summary"].get(key, []) for key in _VERDICT_KEYS} if result.get("summary") else {}
        self._events.add("work", what=what, about=about, state="end", **verdict)
        return result

    def _note(self, line: Line) -> None:
        fields = {key: part for key, part in line.items() if key != "type"}
        if line["type"] in _SAMPLES:
            self._events.sample(line["type"], **fields)
        elif line["type"] not in _TESTBED_EVENTS:
            self._events.add(line["type"], **fields)

    def _over(self, task: asyncio.Task[Line]) -> None:
        if not task.cancelled():
            task.exception()  # retrieved: the requester may no longer be waiting for it
        self.busy = None
        self._task = None
        self.idle.set()
