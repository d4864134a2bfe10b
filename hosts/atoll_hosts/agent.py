# SPDX-License-Identifier: Apache-2.0
"""The client of a host agent: requests with answers, and the jobs that the agent runs.

The agent is one process (``atoll-host agent``) at the other end of a byte stream: a child process, possibly started
through a command (``nsenter ... --`` into an emulated lab), or the far end of an SSH channel (``ssh/remote_agent``).
When the stream ends, the agent ends everything that it has started. A network connection can also fail silently: both
sides therefore send a heartbeat every second, and each ends the stream if it has received nothing for 8 s. On the
network of a measurement (in-band control) both times are eight times as long.
"""

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from atoll_core.clone import remedy
from atoll_core.codec import to_json
from atoll_core.errors import LabError, plain
from atoll_core.plan.plan import UNLIMITED, HostSettings, JobLimits
from atoll_hosts.job import Exit, Job, OnLine, OnOutput
from atoll_hosts.line_stream import LineProcess, LineStream
from atoll_hosts.message_shapes import (
    ANSWERS,
    EXIT,
    HELLO,
    METRICS,
    SUPPORTED_VERSIONS,
    ProtocolVersion,
    common_version,
    first_deviation,
    greeting_versions,
    parse_json,
    printable,
    version_text,
)

# A line of a job may have 4 MiB (the agent cuts longer ones), each byte up to six as JSON.
_LONGEST_MESSAGE_BYTES = 32 << 20
_HELLO_TIMEOUT_S = 10.0
_LONGEST_REQUEST_S = 300.0  # a tool of the agent's may take 20 s, and requests wait for each other
# The agent needs a second at most for its jobs, a moment for its settings.
_CLOSE_TIMEOUT_S = 10.0

_HEARTBEATS_PER_TIMEOUT = 8  # within the timeout of the heartbeat

# Metrics arrive once a period, at the start and at the end; delayed ones arrive together.
_METRICS_BURST = 10
_METRICS_PER_PERIOD = 2  # the clock of its machine may be fast

_LONGEST_TEXT = 2000  # characters of an agent's messages for people
_LONGEST_SHOWN = 200  # characters of a line that is no message
_MOST_PRINTED_LINES = 100  # lines before the greeting

_OWNERS_VERSION: ProtocolVersion = (2, 1)
_DATA_LIMIT_VERSION: ProtocolVersion = (2, 2)

OpenStream = Callable[[Callable[[bytes], None], int], Awaitable[LineStream]]
"""Opens the stream to an agent; takes the function for each line, and the maximum length of a line. Raises LabError."""

OnMetrics = Callable[[dict[str, Any]], None]
"""Takes a ``metrics`` event (docs/contracts.md, "Agent")."""

MeasuredHost = tuple[str, str | None, Sequence[str]]
"""A host for metrics: name, network namespace (None: the agent's own) and interfaces."""

__all__ = ["Agent", "Exit", "Job", "MeasuredHost", "OnMetrics", "OpenStream"]


class Agent:
    """A running agent. Create it with :meth:`start` or :meth:`connect`, end it with :meth:`close`."""

    def __init__(self, name: str = "the agent") -> None:
        self.name = name
        """The agent's name in messages."""
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done, with the reason, when the agent has ended."""
        self._stream: LineStream | None = None
        self._process: LineProcess | None = None  # the stream, of an agent on this machine
        self._tasks: list[asyncio.Task[None]] = []
        self._request_ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._jobs: dict[str, Job] = {}
        self._closing = False
        self._last_received_s = time.monotonic()
        self._end_reason: str | None = None  # the reason if this side has ended the stream
        self._on_metrics: OnMetrics | None = None
        self._measured_interfaces: dict[str, frozenset[str]] = {}  # interfaces by host for which metrics were requested
        self._measured_every_s = 1.0
        self._measured_since_s = 0.0
        self._metrics_received = 0
        self._machine: str | None = None  # the machine to name in errors; an agent of an emulated lab serves many
        self._hello: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._printed_before_hello: list[str] = []  # before the greeting: by a shell, or by another program

    @classmethod
    async def start(cls, prefix: Sequence[str], binary: Path) -> "Agent":
        """Start ``binary agent`` through the command ``prefix`` (empty: directly) and wait for its greeting.

        Raises LabError.
        """
        command = [*prefix, str(binary), "agent"]
        agent = cls()

        async def open_process(on_line: Callable[[bytes], None], longest: int) -> LineStream:
            process = LineProcess(on_line, longest)
            try:
                await process.start(command)
            except OSError as error:
                raise LabError(f"the agent cannot be started: {command[0]}: {error.strerror}") from error
            agent._process = process
            return process

        one_source = remedy("build both from one revision (`make setup`)", "take both from one wheel")
        await agent._open(open_process, f"{binary}", one_source)
        return agent

    @classmethod
    async def connect(cls, open_stream: OpenStream, name: str, *, silence_s: float, remedy: str) -> "Agent":
        """Connect to the agent at the far end of a stream over a network, and wait for its greeting.

        ``name``: of its machine. ``silence_s``: timeout of its heartbeat. ``remedy``: for an agent with another version
        of the protocol. Raises LabError.
        """
        agent = cls(f"{name}'s agent")
        agent._machine = name
        await agent._open(open_stream, f"{name}: its atoll-host", remedy)
        agent._tasks.append(asyncio.create_task(agent._send_heartbeats(silence_s)))
        return agent

    async def _open(self, open_stream: OpenStream, program: str, remedy: str) -> None:
        self._stream = await open_stream(self._on_line, _LONGEST_MESSAGE_BYTES)
        self._tasks.append(asyncio.create_task(self._watch(self._stream)))
        try:
            async with asyncio.timeout(_HELLO_TIMEOUT_S):
                hello = await asyncio.shield(self._hello)
        except TimeoutError:
            await self.close()
            problem = f"{self.name} sent no greeting within {_HELLO_TIMEOUT_S:g} s ({program})"
            raise LabError(f"{problem}{self._printed_clause()}") from None
        except BaseException:
            await self.close()
            raise
        offered = greeting_versions(hello)
        if common_version(SUPPORTED_VERSIONS, offered) is None:
            await self.close()
            version = plain(str(hello.get("version", "")), _LONGEST_TEXT)
            mismatch = f"speaks protocol {version_text(offered)}, but {version_text(SUPPORTED_VERSIONS)} is needed"
            raise LabError(f"{program} {version} {mismatch}: {remedy}")
        self._write(json.dumps({"op": "hello", "speaks": SUPPORTED_VERSIONS}, separators=(",", ":")))

    @property
    def hello(self) -> dict[str, Any]:
        """The agent's greeting: ``speaks``, ``version``, ``pid``, ``arch``."""
        return self._hello.result()

    def _supports(self, version: ProtocolVersion) -> bool:
        version_in_use = common_version(SUPPORTED_VERSIONS, greeting_versions(self.hello))
        return version_in_use is not None and version_in_use >= version

    # Requests

    async def request(self, op: str, **fields: Any) -> dict[str, Any]:
        """Request an operation; returns its answer, whose shape is checked (:mod:`atoll_hosts.message_shapes`).

        Raises LabError with the agent's message if it was refused.
        """
        if self.closed.done() or self._closing:
            raise self._closed_error()
        number = next(self._request_ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            self._write(json.dumps({"id": number, "op": op, **fields}, separators=(",", ":")))
            async with asyncio.timeout(_LONGEST_REQUEST_S):
                message = await answer
        except TimeoutError:
            raise LabError(self._prefix(f"its agent has not answered '{op}' within {_LONGEST_REQUEST_S:g} s")) from None
        finally:
            del self._answers[number]
        if deviation := first_deviation(message, ANSWERS.get(op, {}), "the answer"):
            raise LabError(self._prefix(f"its agent's answer to '{op}' is invalid: {deviation}"))
        return message

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
        on_output: OnOutput | None = None,
        limits: JobLimits = UNLIMITED,
        privileges: Sequence[str] | None = None,
        directory: str | None = None,
    ) -> Job:
        """Start a job in a network namespace (None: the agent's own); ``config`` becomes its first line of input.

        Without a ``config`` its input is empty, for programs other than ``atoll-host``. ``stdout`` and ``stderr`` are
        ``"lines"`` or files to append to. ``on_line`` takes each line of output that is a JSON object, ``on_output``
        each line that the agent sends. ``limits``: resource limits. ``privileges``: the capabilities that it keeps;
        other programs than ``atoll-host`` then run as nobody (docs/privileges.md). None: all of the agent's.
        ``directory``: its working directory; None: the agent's. Raises LabError.
        """
        if name in self._jobs:
            raise LabError(self._prefix(f"job {name!r} is already running"))
        user = "agent" if argv[0] == "atoll-host" else "nobody"
        if not self._supports(_DATA_LIMIT_VERSION):
            limits = replace(limits, data_bytes=None)
        # Registered before the request: its first lines may arrive before the answer.
        job = self._jobs[name] = Job(name, self.request, on_line, on_output)
        request = asyncio.ensure_future(
            self.request(
                "start",
                job=name,
                netns=netns,
                argv=list(argv),
                input="" if config is None else json.dumps(config, separators=(",", ":")) + "\n",
                close_input=config is None,
                stdout=str(stdout),
                stderr=str(stderr),
                limits=limits.requested,
                **({"privileges": list(privileges), "user": user} if privileges is not None else {}),
                **({"directory": directory} if directory is not None else {}),
            )
        )
        try:
            answer = await asyncio.shield(request)
        except BaseException:
            with contextlib.suppress(LabError):  # it was not started, or the agent has ended and the job with it
                await request
                await job.stop(0)  # the caller was cancelled and does not know the job
                await job.wait()
            self._jobs.pop(name, None)
            raise
        job.pid = answer["pid"]
        job.unapplied_limit = plain(str(answer["unheld"]), _LONGEST_TEXT) if "unheld" in answer else None
        return job

    async def set_host(self, settings: HostSettings, netns: str | None = None) -> dict[str, Any]:
        """Configure a host; returns its previous sysctls and offloads. Undone by :meth:`unset_host` or the agent."""
        settings_json = to_json(settings)
        for route in (route for interface in settings_json["interfaces"] for route in interface["routes"]):
            if not route["quick_ack"]:
                del route["quick_ack"]  # agents before 2.3 refuse the key
        return (await self.request("set", host=settings.host, netns=netns, settings=settings_json))["was"]

    async def unset_host(self, host: str) -> None:
        """Undo :meth:`set_host`."""
        await self.request("unset", host=host)

    async def sysctl(self, netns: str | None, sysctls: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Write sysctls in order and verify them; returns the previous values, for restoring them."""
        answer = await self.request("sysctl", netns=netns, sysctls=[list(pair) for pair in sysctls])
        return tuple((name, previous) for name, previous in answer["was"])

    async def read(
        self, netns: str | None, *, sysctls: Sequence[str] = (), interfaces: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Read the current ``sysctls`` by name, and ``offloads`` and ``counters`` by interface."""
        answer = await self.request("read", netns=netns, sysctls=list(sysctls), interfaces=list(interfaces))
        return {key: answer[key] for key in ("sysctls", "offloads", "counters")}

    async def measure(self, every_s: float, hosts: Sequence[MeasuredHost], on_metrics: OnMetrics) -> None:
        """Make the agent send metrics now and then every ``every_s``, until :meth:`stop_measuring`. Raises LabError."""
        self._on_metrics = on_metrics
        self._measured_interfaces = {host: frozenset(interfaces) for host, _, interfaces in hosts}
        self._measured_every_s, self._measured_since_s, self._metrics_received = every_s, time.monotonic(), 0
        await self.request("measure", every_ns=round(every_s * 1e9), hosts=_hosts_json(hosts))

    async def stop_measuring(self) -> None:
        """Make the agent send metrics once more and then stop; returns when these have arrived. Raises LabError."""
        try:
            await self.request("measure", every_ns=0, hosts=[])
        finally:
            self._on_metrics = None  # the run has ended

    async def sample(self, hosts: Sequence[MeasuredHost]) -> dict[str, Any]:
        """The current metrics of the machine and ``hosts``, as those of :meth:`measure` (docs/contracts.md, "Agent").

        Raises LabError.
        """
        return (await self.request("sample", hosts=_hosts_json(hosts)))["sample"]

    async def other_owners(self, interface: str, address: str, mac: str) -> list[str]:
        """MAC addresses other than ``mac``, the interface's own, that claim its address on its network (RFC 5227).

        Empty if the agent is older than this request. Raises LabError.
        """
        if not self._supports(_OWNERS_VERSION):
            return []
        answer = await self.request("owners", netns=None, interface=interface, address=address, mac=mac)
        return cast("list[str]", answer["owners"])

    def read_every(self, seconds: float) -> None:
        """Read messages of an agent on this machine at this interval only (:meth:`LineProcess.read_every`)."""
        if self._process is not None:
            self._process.read_every(seconds)

    async def describe(self) -> dict[str, Any]:
        """The agent's description of its machine (docs/contracts.md, "Agent")."""
        return await self.request("describe")

    async def close(self) -> None:
        """End the agent: it stops its jobs and undoes its settings. Idempotent; kills it when it takes too long."""
        self._closing = True
        if self._stream is None:
            return
        self._stream.close_input()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await asyncio.shield(self.closed)
        except TimeoutError:
            self._stream.kill()
            await asyncio.shield(self.closed)

    # The stream

    def _write(self, message: str) -> None:
        if self._stream is not None:
            self._stream.write(message.encode() + b"\n")

    def _on_line(self, line: bytes) -> None:
        """Take a line of the agent. Raises for an invalid message, which ends the stream."""
        self._last_received_s = time.monotonic()
        try:
            message = _parse_message(line)
        except ValueError as error:
            shown = plain(line[: 4 * _LONGEST_SHOWN].decode(errors="replace"), _LONGEST_SHOWN)
            if self._hello.done() or len(self._printed_before_hello) >= _MOST_PRINTED_LINES:
                raise ValueError(f"'{shown}' is not a message: {error}") from None
            self._printed_before_hello.append(shown)  # the greeting, or the end, shows who printed it
            return
        if self._printed_before_hello and not self._hello.done():
            raise ValueError(self._printed_clause().removeprefix("; ") or "empty lines come before the greeting")
        self._dispatch(message)

    def _printed_clause(self) -> str:
        """The first line that was printed before the greeting, to end a message with; empty if there was none."""
        first = next((line for line in self._printed_before_hello if line.strip()), None)
        if first is None:
            return ""
        if self._machine is None:
            return f"; '{first}' was printed before the greeting"
        return (
            f"; the shell there printed '{first}'; if ~/.bashrc, ~/.profile or /etc/profile.d does so, let it print "
            "only on a terminal"
        )

    async def _send_heartbeats(self, silence_s: float) -> None:
        """Send a heartbeat eight times in ``silence_s``; end the stream if nothing was received for that time."""
        while not self.closed.done():
            self._write('{"op":"beat"}')
            await asyncio.sleep(silence_s / _HEARTBEATS_PER_TIMEOUT)
            if time.monotonic() - self._last_received_s > silence_s and self._stream is not None:
                self._end_reason = f"{self.name} has been silent for {silence_s:g} s"
                self._stream.kill()
                return

    async def _watch(self, stream: LineStream) -> None:
        ended = await stream.wait()
        if self._end_reason is not None:
            reason = self._end_reason
        elif stream.error is not None:
            error = f"{stream.error}" if isinstance(stream.error, ValueError) else repr(stream.error)
            reason = f"the connection to {self.name} broke: {plain(error, _LONGEST_TEXT)}"
        elif self._closing:
            reason = f"{self.name} was closed"
        elif not self._hello.done():
            reason = f"{self.name} did not start: {ended}{self._printed_clause()}"
        else:
            reason = f"{self.name} died ({ended})"
        self._fail_pending(reason)

    def _dispatch(self, message: dict[str, Any]) -> None:
        match message["type"]:
            case "line":
                if job := self._jobs.get(message["job"]):
                    job.on_output_line(message["stream"], message["line"])
            case "exit":
                message = printable(_checked(message, EXIT))
                if job := self._jobs.pop(message["job"], None):
                    job.on_exit(Exit(message["code"], message["signal"], message.get("exceeded")))
            case "metrics":
                if self._on_metrics is not None:
                    self._check_metrics_rate()
                    self._on_metrics(self._without_unrequested(_checked(message, METRICS)))
            case "answer":
                self._on_answer(message)
            case "hello":
                self._hello.set_result(printable(_checked(message, HELLO)))
            case _:
                pass  # a beat, or of a later minor version

    def _check_metrics_rate(self) -> None:
        """Raise ValueError if more metrics arrive than requested, as each makes points in the run's spool."""
        self._metrics_received += 1
        periods = (time.monotonic() - self._measured_since_s) / self._measured_every_s
        if self._metrics_received > _METRICS_BURST + _METRICS_PER_PERIOD * periods:
            raise ValueError(f"metrics more often than every {self._measured_every_s:g} s")

    def _without_unrequested(self, metrics: dict[str, Any]) -> dict[str, Any]:
        """Remove hosts, interfaces and jobs that were not requested, so that an agent cannot add time series."""
        hosts = {
            host: {**host_metrics, "interfaces": _select(host_metrics["interfaces"], self._measured_interfaces[host])}
            for host, host_metrics in _select(metrics["hosts"], self._measured_interfaces).items()
        }
        own_jobs = _select(metrics["jobs"], self._jobs)
        jobs = {job: figures for job, figures in own_jobs.items() if figures["host"] in (None, *hosts)}
        return {**metrics, "hosts": hosts, "jobs": jobs}

    def _on_answer(self, message: dict[str, Any]) -> None:
        answer = self._answers.get(message["id"])
        if answer is None or answer.done():
            return  # the request was cancelled
        if message["ok"]:
            answer.set_result(printable(message))
        else:
            answer.set_exception(LabError(self._prefix(plain(message["error"], _LONGEST_TEXT))))

    def _prefix(self, error: str) -> str:
        if self._machine is None or error.startswith(f"{self._machine}: "):
            return error
        return f"{self._machine}: {error}"

    def _fail_pending(self, reason: str) -> None:
        if not self.closed.done():
            self.closed.set_result(reason)
        if not self._hello.done():
            self._hello.set_exception(LabError(reason))
            self._hello.exception()  # retrieved: nobody may be waiting for it
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(LabError(reason))
        for job in self._jobs.values():
            job.on_agent_end(reason)
        self._jobs.clear()

    def _closed_error(self) -> LabError:
        return LabError(self.closed.result() if self.closed.done() else f"{self.name} is being closed")


def _parse_message(line: bytes) -> dict[str, Any]:
    """The message in a line. Raises ValueError."""
    message = parse_json(line.decode())
    if first_deviation(message, {"type": str}):
        raise ValueError("a message without a type")
    return message


def _checked(message: dict[str, Any], shape: Any) -> dict[str, Any]:
    """The message. Raises ValueError if it has another shape."""
    if deviation := first_deviation(message, shape, f"{message['type']} message"):
        raise ValueError(deviation)
    return message


def _select(items: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: item for name, item in items.items() if name in names}


def _hosts_json(hosts: Sequence[MeasuredHost]) -> list[dict[str, Any]]:
    return [{"host": host, "netns": netns, "interfaces": list(names)} for host, netns, names in hosts]
