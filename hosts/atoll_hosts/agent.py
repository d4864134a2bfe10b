# SPDX-License-Identifier: Apache-2.0
"""A host agent as seen by whoever started it: requests with answers, and the jobs it runs.

The agent is one process (``atoll-host agent``) behind a byte stream: a child of ours, or of a command that
reaches it (``nsenter ... --`` into an emulated lab). When the stream ends, so does everything it started.
"""

import asyncio
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from atoll.model.codec import to_json
from atoll.model.errors import LabError
from atoll.model.plan import HostSettings
from atoll_hosts.job import Exit, Job, OnLine
from atoll_hosts.lines import LineProcess

PROTOCOL = 1

# A line of a job may have 4 MiB (the agent cuts longer ones), each byte up to six as JSON.
_LONGEST_MESSAGE = 32 << 20
_HELLO_TIMEOUT_S = 10.0
# The agent needs a second at most for its jobs, a moment for its settings.
_CLOSE_TIMEOUT_S = 10.0

__all__ = ["Agent", "Exit", "Job"]


class Agent:
    """A running agent. Get one with :meth:`start`, end it with :meth:`close`."""

    def __init__(self) -> None:
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done, with the reason, when the agent has ended, asked to or not."""
        self._process = LineProcess(self._take_line, _LONGEST_MESSAGE)
        self._watcher: asyncio.Task[None] | None = None
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._jobs: dict[str, Job] = {}
        self._closing = False
        self._hello: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    @classmethod
    async def start(cls, prefix: Sequence[str], binary: Path) -> "Agent":
        """Start ``binary agent`` behind ``prefix`` (empty: on this machine) and wait for its greeting.

        Raises LabError.
        """
        command = [*prefix, str(binary), "agent"]
        agent = cls()
        try:
            await agent._process.start(command)
        except OSError as error:
            msg = f"the agent cannot be started: {command[0]}: {error.strerror}"
            raise LabError(msg) from error
        agent._watcher = asyncio.create_task(agent._watch())
        try:
            async with asyncio.timeout(_HELLO_TIMEOUT_S):
                hello = await asyncio.shield(agent._hello)
        except TimeoutError:
            await agent.close()
            msg = f"the agent said nothing within {_HELLO_TIMEOUT_S:g} s ({' '.join(command)})"
            raise LabError(msg) from None
        except BaseException:
            await agent.close()
            raise
        if hello.get("protocol") != PROTOCOL:
            await agent.close()
            spoken = hello.get("protocol")
            msg = f"{binary} speaks protocol {spoken}, this is {PROTOCOL}: build both from one revision (`make setup`)"
            raise LabError(msg)
        return agent

    # Requests

    async def request(self, op: str, **fields: Any) -> dict[str, Any]:
        """Ask for one operation; its answer. Raises LabError with the agent's words when it was refused."""
        if self.closed.done() or self._closing:
            raise self._death()
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        message = json.dumps({"id": number, "op": op, **fields}, separators=(",", ":"))
        try:
            self._process.write(message.encode() + b"\n")
            return await answer
        finally:
            del self._waiting[number]

    async def start_job(
        self,
        name: str,
        argv: Sequence[str],
        *,
        netns: str | None = None,
        config: dict[str, Any] | None = None,
        stdout: str | Path = "lines",
        stderr: str | Path = "lines",
        on_line: OnLine | None = None,
    ) -> Job:
        """Start a job in a network namespace (None: the agent's own); ``config`` becomes its first line of input.

        Without a ``config`` its input is empty: for programs that are not of the family. ``stdout`` and ``stderr`` are
        ``"lines"`` or files to append to. ``on_line`` gets each line of output that is a JSON object. Raises LabError.
        """
        if name in self._jobs:
            msg = f"job {name!r} is already running"
            raise LabError(msg)
        # Known before it is asked for: its first lines may come before the answer does.
        job = self._jobs[name] = Job(name, self.request, on_line)
        try:
            answer = await self.request(
                "start",
                job=name,
                netns=netns,
                argv=list(argv),
                input="" if config is None else json.dumps(config, separators=(",", ":")) + "\n",
                close_input=config is None,
                stdout=str(stdout),
                stderr=str(stderr),
            )
        except BaseException:
            self._jobs.pop(name, None)
            raise
        job.pid = answer["pid"]
        return job

    async def set_host(self, settings: HostSettings, netns: str | None = None) -> dict[str, Any]:
        """Set a machine up; returns sysctls and offloads before. Undone by :meth:`unset_host` or the agent's end."""
        return (await self.request("set", host=settings.host, netns=netns, settings=to_json(settings)))["was"]

    async def unset_host(self, host: str) -> None:
        """Take back what :meth:`set_host` did."""
        await self.request("unset", host=host)

    async def sysctl(self, netns: str | None, sysctls: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Write sysctls in order, verified; returns what they held before, to be written back."""
        answer = await self.request("sysctl", netns=netns, sysctls=[list(pair) for pair in sysctls])
        return tuple((name, held) for name, held in answer["was"])

    async def read(
        self, netns: str | None, *, sysctls: Sequence[str] = (), interfaces: Sequence[str] = ()
    ) -> dict[str, Any]:
        """``sysctls`` by name, ``offloads`` and ``counters`` by interface, as they are now."""
        answer = await self.request("read", netns=netns, sysctls=list(sysctls), interfaces=list(interfaces))
        return {part: answer[part] for part in ("sysctls", "offloads", "counters")}

    async def close(self) -> None:
        """End the agent: it stops its jobs and undoes its settings. Idempotent; kills it when it takes too long."""
        self._closing = True
        self._process.close_input()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await asyncio.shield(self.closed)
        except TimeoutError:
            self._process.kill()
            await asyncio.shield(self.closed)

    # The stream

    def _take_line(self, line: bytes) -> None:
        """Every line of the agent; ValueError and KeyError end it."""
        self._take(json.loads(line))

    async def _watch(self) -> None:
        status = await self._process.wait()
        if self._process.broken is not None:
            reason = f"the agent's stream broke: {self._process.broken}"
        elif self._closing:
            reason = "the agent was closed"
        else:
            reason = f"the agent died ({_status_text(status)})"
        self._end(reason)

    def _take(self, message: dict[str, Any]) -> None:
        match message["type"]:
            case "line":
                if job := self._jobs.get(message["job"]):
                    job.take_line(message["stream"], message["line"])
            case "exit":
                if job := self._jobs.pop(message["job"], None):
                    job.take_exit(Exit(message["code"], message["signal"]))
            case "answer":
                self._take_answer(message)
            case "hello":
                self._hello.set_result(message)
            case unknown:
                msg = f"unknown message {unknown!r}"
                raise ValueError(msg)

    def _take_answer(self, message: dict[str, Any]) -> None:
        answer = self._waiting.get(message["id"])
        if answer is None or answer.done():
            return  # whoever asked was cancelled
        if message["ok"]:
            answer.set_result(message)
        else:
            answer.set_exception(LabError(message["error"]))

    def _end(self, reason: str) -> None:
        if not self.closed.done():
            self.closed.set_result(reason)
        if not self._hello.done():
            self._hello.set_exception(LabError(reason))
            self._hello.exception()  # retrieved: nobody may be waiting for it
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(LabError(reason))
        for job in self._jobs.values():
            job.take_death(reason)
        self._jobs.clear()

    def _death(self) -> LabError:
        return LabError(self.closed.result() if self.closed.done() else "the agent is being closed")


def _status_text(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"
