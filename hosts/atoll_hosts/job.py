# SPDX-License-Identifier: Apache-2.0
"""A job that an agent runs: start, output, end."""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, cast

from atoll_core.errors import LabError, plain
from atoll_core.plan.plan import JobLimits
from atoll_hosts.message_shapes import parse_json

_READY_TIMEOUT_S = 10.0  # a busy machine takes a second or two to start a program

OnLine = Callable[[dict[str, Any]], None]
"""Takes a line of standard output that is a JSON object."""
OnOutput = Callable[[str], None]
"""Takes every line of standard output and standard error, as it was printed."""
SendRequest = Callable[..., Awaitable[dict[str, Any]]]


class JobOptions(TypedDict, total=False):
    """Options of :meth:`atoll_hosts.agent.Agent.start_job`, which explains them."""

    config: dict[str, Any] | None
    stdout: str | Path
    stderr: str | Path
    on_line: OnLine | None
    on_output: OnOutput | None
    limits: JobLimits
    privileges: Sequence[str] | None
    directory: str | None


# Enough to explain a failure.
_LAST_LINES = 5
_LONGEST_SHOWN = 1000  # characters of a line


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a job: its exit status, or the name of the signal that ended it.

    ``exceeded``: the limit that it exceeded, in words, if that was the reason.
    """

    code: int | None
    signal: str | None
    exceeded: str | None = None

    def __str__(self) -> str:
        if self.signal is not None:
            return f"killed: {self.exceeded}" if self.exceeded else f"ended by SIG{self.signal}"
        return f"exit status {self.code}{f': {self.exceeded}' if self.exceeded else ''}"


class Job:
    """A job started by :meth:`atoll_hosts.agent.Agent.start_job`."""

    def __init__(
        self, name: str, request: SendRequest, on_line: OnLine | None, on_output: OnOutput | None = None
    ) -> None:
        self.name = name
        self.pid = 0
        self.unapplied_limit: str | None = None
        """A limit that could not be applied to it, in words."""
        self.last: dict[str, Any] | None = None
        """The last line of standard output that was a JSON object."""
        self.exit: Exit | None = None
        self._request = request
        self._on_line = on_line
        self._on_output = on_output
        self._last_text_lines: deque[str] = deque(maxlen=_LAST_LINES)  # of standard error, and lines that are not JSON
        self._ready = asyncio.Event()
        self._ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    async def ready(self, timeout_s: float = _READY_TIMEOUT_S) -> None:
        """Wait for the job's ``ready`` line. Raises LabError if it ends before, or after ``timeout_s``."""
        ready = asyncio.ensure_future(self._ready.wait())
        try:
            await asyncio.wait({ready, self._ended}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if self._ready.is_set():
            return
        if self._ended.done():
            self._ended.result()  # raises if the agent has ended
            raise LabError(f"{self.name} did not start: {self.exit_text()}")
        raise LabError(f"{self.name} is not ready after {timeout_s:g} s: {self.exit_text()}")

    async def wait(self) -> Exit:
        """Wait for the job's end. Raises LabError if the agent ends first."""
        return await asyncio.shield(self._ended)

    async def stop(self, grace_s: float = 2.0, signal: str = "TERM") -> None:
        """Ask the job to end; its process group is killed after ``grace_s``. No error if it has ended already.

        Returns at once; :meth:`wait` waits for the end.
        """
        if self._ended.done():
            return
        try:
            await self._request("stop", job=self.name, signal=signal, grace_ns=int(grace_s * 1e9))
        except LabError:
            if self.exit is None:  # else it ended meanwhile: its exit message arrives before the refusal
                raise

    async def send(self, message: dict[str, Any]) -> None:
        """Send one JSON line to the job's standard input."""
        await self._request("input", job=self.name, text=json.dumps(message, separators=(",", ":")) + "\n")

    async def raise_memory(self, data_bytes: int) -> None:
        """Raise the memory that its process may write to. A higher limit stays, and none."""
        await self._request("limit", job=self.name, data_bytes=data_bytes)

    def exit_text(self) -> str:
        """The reason for its end: the last lines of text that it printed, and its exit status."""
        text = "; ".join(line.strip() for line in self._last_text_lines if line.strip())
        status = str(self.exit) if self.exit is not None else "still running"
        return f"{text} ({status})" if text else status

    # Called by the agent's client

    def on_output_line(self, stream: str, line: str) -> None:
        """Take a line of output."""
        if self._on_output is not None:
            self._on_output(line)
        try:
            message = parse_json(line) if stream == "stdout" else None
        except ValueError:
            message = None
        if not isinstance(message, dict):
            self._last_text_lines.append(plain(line, _LONGEST_SHOWN))
            return
        self.last = cast("dict[str, Any]", message)
        if self.last.get("type") == "ready":
            self._ready.set()
        if self._on_line is not None:
            self._on_line(self.last)

    def on_exit(self, exit_status: Exit) -> None:
        """Take the job's end; no line follows."""
        self.exit = exit_status
        if not self._ended.done():
            self._ended.set_result(exit_status)

    def on_agent_end(self, reason: str) -> None:
        """Take the end of the agent, and of the job with it."""
        if not self._ended.done():
            self._ended.set_exception(LabError(f"{self.name}: {reason}"))
            self._ended.exception()  # retrieved: nobody may be waiting for it
