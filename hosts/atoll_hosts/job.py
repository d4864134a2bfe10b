# SPDX-License-Identifier: Apache-2.0
"""One job run by an agent: its life, its lines, its end."""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from atoll_core.errors import LabError, plain
from atoll_hosts.message_shapes import parsed

OnLine = Callable[[dict[str, Any]], None]
"""Takes a line of standard output that is a JSON object."""
OnOutput = Callable[[str], None]
"""Takes every line of standard output and standard error, as it was printed."""
Request = Callable[..., Awaitable[dict[str, Any]]]

# Enough to explain a failure.
_LAST_LINES = 5
_LONGEST_SHOWN = 1000  # characters of a line


@dataclass(frozen=True, slots=True)
class Exit:
    """How a job ended: its exit status, or the name of the signal that ended it.

    ``exceeded``: the limit that it had reached, in words, if that is why.
    """

    code: int | None
    signal: str | None
    exceeded: str | None = None

    def __str__(self) -> str:
        if self.signal is None:
            ended = f"exit status {self.code}"
            return f"{ended}: {self.exceeded}" if self.exceeded else ended
        return f"killed: {self.exceeded}" if self.exceeded else f"ended by SIG{self.signal}"


class Job:
    """A job started by :meth:`atoll_hosts.agent.Agent.start_job`."""

    def __init__(self, name: str, request: Request, on_line: OnLine | None, on_output: OnOutput | None = None) -> None:
        self.name = name
        self.pid = 0
        self.unheld: str | None = None
        """The limit that it does not hold to although it was started, in words."""
        self.last: dict[str, Any] | None = None
        """The last line of standard output that was a JSON object."""
        self.exit: Exit | None = None
        self._request = request
        self._on_line = on_line
        self._on_output = on_output
        self._words: deque[str] = deque(maxlen=_LAST_LINES)  # for people: standard error, and what is no JSON
        self._ready = asyncio.Event()
        self._ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    async def ready(self, timeout_s: float) -> None:
        """Wait for the job's ``ready`` line. Raises LabError when it ends before, or is silent for ``timeout_s``."""
        said = asyncio.ensure_future(self._ready.wait())
        try:
            await asyncio.wait({said, self._ended}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            said.cancel()
        if self._ready.is_set():
            return
        if self._ended.done():
            self._ended.result()  # the agent's death is another story
            msg = f"{self.name} did not start: {self.exit_text()}"
            raise LabError(msg)
        msg = f"{self.name} is not ready after {timeout_s:g} s"
        raise LabError(msg)

    async def wait(self) -> Exit:
        """Wait for the job's end. Raises LabError when the agent dies first."""
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
            # It ended while we asked: the exit comes before the refusal.
            if self.exit is None:
                raise

    async def send(self, message: dict[str, Any]) -> None:
        """Send one JSON line to the job's standard input."""
        await self._request("input", job=self.name, text=json.dumps(message, separators=(",", ":")) + "\n")

    def exit_text(self) -> str:
        """Why it ended, for people: the last lines that it printed for them, and its exit status."""
        said = "; ".join(line.strip() for line in self._words if line.strip())
        ended = str(self.exit) if self.exit is not None else "still running"
        return f"{said} ({ended})" if said else ended

    # What the agent reports

    def take_line(self, stream: str, line: str) -> None:
        """A line of output."""
        if self._on_output is not None:
            self._on_output(line)
        message = _json_object(line) if stream == "stdout" else None
        if message is None:
            self._words.append(plain(line, _LONGEST_SHOWN))
            return
        self.last = message
        if message.get("type") == "ready":
            self._ready.set()
        if self._on_line is not None:
            self._on_line(message)

    def take_exit(self, ended: Exit) -> None:
        """The job has ended; no line follows."""
        self.exit = ended
        if not self._ended.done():
            self._ended.set_result(ended)

    def take_death(self, reason: str) -> None:
        """The agent is gone, and the job with it."""
        if not self._ended.done():
            self._ended.set_exception(LabError(f"{self.name}: {reason}"))
            self._ended.exception()  # retrieved: nobody may be waiting for it


def _json_object(line: str) -> dict[str, Any] | None:
    try:
        said = parsed(line)
    except ValueError:
        return None
    return cast("dict[str, Any]", said) if isinstance(said, dict) else None
