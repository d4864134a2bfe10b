# SPDX-License-Identifier: Apache-2.0
"""Client of the daemon: find it, start it, bring its lab up, send requests.

Any user may bind the daemon's socket name once the daemon has ended. The peer of each connection is therefore checked
before anything is sent: requests carry tokens, descriptions and commands.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from atoll_core.errors import AtollError, DescriptionError, Diagnostic, LabError
from atoll_core.events.events import Progress
from atoll_core.platforms import LabTarget
from atoll_core.secret_variables import INFLUX_TOKEN_VARIABLE, SECRETS
from atoll_daemon.http.http_errors import no_lab_is_up
from atoll_daemon.socket_lock import (
    DAEMON_MODULE,
    connect_to_daemon,
    daemon_holder,
    describe_holder,
    foreign_daemon_error,
    is_trusted,
    root_owned_error,
    socket_address,
    socket_name,
)

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler

    from atoll_testbed.run.run_request import RunOptions

_READY_TIMEOUT_S = 15.0
_ANSWER_TIMEOUT_S = 5.0
_EXIT_TIMEOUT_S = 30.0
_LONGEST_LINE_BYTES = 16 * 1024 * 1024  # a summary is one line

_LOG_NAME = "daemon.log"  # in state_directory()
_DAEMON_URL = "http://daemon"

DAEMON_DIED = "the daemon died; the lab and all its processes have ended"

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Description:
    """A description as it is sent to the daemon: its file, and settings that override parts of it (``--set``)."""

    path: Path
    settings: tuple[str, ...] = ()

    def parameters(self) -> list[tuple[str, str]]:
        """The query parameters of the request."""
        absolute = self.path.absolute()  # keeps `..`, which leads elsewhere behind a symbolic link
        return [("file", str(absolute)), *(("set", setting) for setting in self.settings)]

    def content(self) -> bytes:
        """The file's content. Raises DescriptionError if it cannot be read."""
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise DescriptionError([Diagnostic(str(self.path), 0, f"cannot be read: {error.strerror}")]) from None


def refusal_error(error: Line) -> LabError:
    """The error of a request that the daemon refused, or that failed there; has the exit code of the answer."""
    refused = LabError(error["message"])
    refused.exit_code = error["exit_code"]
    return refused


class DaemonConnector(aiohttp.UnixConnector):
    """Connects aiohttp sessions to a lab's daemon. Requests raise LabError if another user has its socket name."""

    def __init__(self, target: LabTarget, *, force_close: bool = False) -> None:
        super().__init__(socket_address(target), limit=0, force_close=force_close)
        self._target = target

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> "ResponseHandler":  # noqa: ASYNC109 - theirs
        """Override the method in which aiohttp's connectors differ (3.9 to 3.14)."""
        del traces, timeout
        try:
            connection = await asyncio.to_thread(connect_to_daemon, self._target)
        except OSError as error:
            raise aiohttp.ClientConnectorError(req.connection_key, error) from error
        factory: Any = self._factory  # a partial, whose type aiohttp leaves open
        _, protocol = await self._loop.create_unix_connection(factory, sock=connection)
        return protocol


class DaemonClient:
    """A connection to the daemon of a lab."""

    def __init__(self, session: aiohttp.ClientSession, target: LabTarget) -> None:
        self._session = session
        self._target = target

    async def status(self) -> Line:
        """The lab that is up, and the work in progress."""
        return await self.get("/v1/status")

    async def switches(self) -> list[Line]:
        """The current state of the lab's switches. Raises LabError if no lab is up."""
        return (await self.get("/v1/switches"))["switches"]

    async def get(self, path: str, **query: str) -> Line:
        """GET a path of the API (docs/api.md). Raises LabError."""
        async with self._session.get(f"{_DAEMON_URL}{path}", params=query) as response:
            return await _read_answer(response)

    async def post(self, path: str, **query: str) -> Line:
        """POST a request without a body. Raises LabError."""
        async with self._session.post(f"{_DAEMON_URL}{path}", params=query) as response:
            return await _read_answer(response)

    async def listen(self, address: str, token: str, token_file: str | None) -> str:
        """Have the daemon listen on TCP as well; returns the URL. Raises LabError."""
        body = {"address": address, "token": token, "token_file": token_file}
        async with self._session.post(f"{_DAEMON_URL}/v1/ports", json=body) as response:
            return (await _read_answer(response))["url"]

    async def stream(
        self, path: str, description: Description, on_line: Callable[[Line], None], **query: str | list[str] | None
    ) -> Line:
        """POST a description, call ``on_line`` for every line of the answer, and return the ``done`` line.

        ``query``: further parameters; those that are None are left out. Raises LabError if the last line is ``error``,
        or if the answer ends without a last line.
        """
        parameters = description.parameters()
        for name, value in query.items():
            parameters += [(name, item) for item in (value if isinstance(value, list) else [value]) if item is not None]
        headers = {"Content-Type": "application/yaml", "Accept": "application/x-ndjson"}
        try:
            async with self._session.post(
                f"{_DAEMON_URL}{path}", params=parameters, data=description.content(), headers=headers
            ) as response:
                if response.status != 200:
                    await _read_answer(response)
                async for text in response.content:
                    line: Line = json.loads(text)
                    if line["type"] == "done":
                        return line
                    if line["type"] == "error":
                        raise refusal_error(line)
                    on_line(line)
        except (aiohttp.ClientError, json.JSONDecodeError) as error:
            raise LabError(DAEMON_DIED) from error
        raise LabError(DAEMON_DIED)

    async def run(
        self,
        experiment: Description,
        on_line: Callable[[Line], None],
        runs: Path,
        options: "RunOptions",
        started_ns: int,
        *,
        runtime: str | None = None,
        analyse: bool = True,
        influx: str | None = None,
    ) -> Line:
        """Make a run, which ends with this connection; returns the ``done`` line. Raises as :meth:`stream`.

        ``runs``: the parent of its directory. ``started_ns``: the time of the user's command, since 1970. ``runtime``:
        refuse a lab whose controller has another one. ``influx``: the mark of the caller's database settings.
        """
        return await self.stream(
            "/v1/runs",
            experiment,
            on_line,
            runs=str(runs.resolve()),
            backend=options.backend,
            runtime=runtime,
            started_ns=str(started_ns),
            analyse=str(analyse).lower(),
            metrics=str(options.metrics).lower(),
            full_matrix=str(options.full_matrix).lower(),
            influx=influx,
        )

    async def down(self, *, force: bool) -> None:
        """Ask the daemon to take the lab down and to end; returns when it has ended.

        Raises LabError if it is busy, unless with ``force``.
        """
        holder = daemon_holder(self._target)
        with contextlib.suppress(aiohttp.ClientError):
            async with self._session.delete(f"{_DAEMON_URL}/v1/lab", params={"force": str(force).lower()}) as response:
                await _read_answer(response)
        if holder is not None:
            await wait_until_ended(self._target, holder[0])

    def shell(self) -> Any:
        """The WebSocket of a shell, as an async context manager."""
        return self._session.ws_connect(f"{_DAEMON_URL}/v1/shell")


async def _read_answer(response: aiohttp.ClientResponse) -> Line:
    """The object in an answer. Raises LabError for an error."""
    try:
        answer: Line = await response.json()
    except (aiohttp.ClientError, json.JSONDecodeError):
        raise LabError(f"the daemon answered {response.status} {response.reason} without an explanation") from None
    if not response.ok:
        raise refusal_error(answer["error"])
    return answer


@contextlib.asynccontextmanager
async def connected(target: LabTarget) -> AsyncGenerator[DaemonClient | None]:
    """Connect to a lab's running daemon; None if there is none. Raises LabError if it belongs to another user."""
    holder = daemon_holder(target)
    if holder is None:
        yield None
        return
    if not is_trusted(holder[1]):
        raise foreign_daemon_error(target, holder)
    async with aiohttp.ClientSession(
        connector=DaemonConnector(target),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
        read_bufsize=_LONGEST_LINE_BYTES,
    ) as session:
        daemon = DaemonClient(session, target)
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                await daemon.status()
        except (TimeoutError, aiohttp.ClientError):
            claim = f"{describe_holder(*holder)} holds the lock but does not answer like a daemon"
            unresponsive = LabError(f"{socket_name(target)} is the lock of {target}: {claim}")
            raise root_owned_error(target, holder) or unresponsive from None
        yield daemon


@contextlib.asynccontextmanager
async def running_lab(target: LabTarget) -> AsyncGenerator[DaemonClient]:
    """Connect to the daemon of the lab that is up. Raises LabError if no lab is up, and as :func:`connected`."""
    async with connected(target) as daemon:
        if daemon is None:
            raise LabError(no_lab_is_up(target))
        yield daemon


class OwnDaemon:
    """A daemon started by a command. ``for_run``: it ends when :meth:`release` is called or this process dies."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    @classmethod
    async def start(cls, target: LabTarget, *, for_run: bool) -> "OwnDaemon":
        """Start a daemon and wait until it listens. Raises LabError with the daemon's last line if it does not.

        If cancelled, end the daemon, which no other process uses yet.
        """
        process = _start_process(target, for_run=for_run)  # not in a thread: that would go on when this is cancelled
        daemon = cls(process)
        stdout = process.stdout
        try:
            async with asyncio.timeout(_READY_TIMEOUT_S):
                ready = await asyncio.to_thread(stdout.readline) if stdout else b""
        except BaseException:
            process.kill()  # it has no lab yet
            raise
        if not ready:
            _, text = await asyncio.to_thread(process.communicate)
            lines = (text or b"").decode(errors="replace").strip().splitlines()
            reason = " and printed nothing" if for_run else f"; see {state_directory() / _LOG_NAME}"
            raise LabError(lines[-1] if lines else f"the daemon did not start{reason}")
        return daemon

    async def end(self) -> None:
        """Make the daemon take its lab down and end; returns when it has ended."""
        self.process.terminate()
        await self._wait()

    async def release(self) -> None:
        """Release a daemon that was started for a run: it takes the lab down and ends; returns when it has ended."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        await self._wait()

    async def _wait(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self.process.wait, _EXIT_TIMEOUT_S)


@contextlib.asynccontextmanager
async def lab_in_use(
    target: LabTarget,
    lab: Description,
    on_line: Callable[[Line], None],
    *,
    prepare: Callable[[DaemonClient], Awaitable[object]] | None = None,
    runtime: str | None = None,
    keep: bool = False,
    wait: bool = False,
) -> AsyncGenerator[DaemonClient]:
    """The daemon of the lab that is up; else a daemon of its own, which brings ``lab`` up, and ends with the block.

    A daemon of its own also ends with this process; with ``keep`` it outlives both. ``on_line`` takes its progress.
    ``prepare`` is called before the lab comes up, ``runtime`` is the controller's. ``wait``: for the end of a run that
    has the lab, up to 30 s. Raises LabError if another run has the lab, and as :meth:`DaemonClient.stream`.
    """
    own_daemon = None
    if not await _is_up(target, wait=wait):
        on_line(Progress("daemon").to_line())
        own_daemon = await OwnDaemon.start(target, for_run=not keep)
    try:
        async with connected(target) as daemon:
            if daemon is None:
                raise LabError("the daemon ended before its lab could be used")
            if prepare is not None:
                await prepare(daemon)
            if own_daemon is not None:
                await daemon.stream("/v1/lab", lab, on_line, runtime=runtime)
            yield daemon
    finally:
        if own_daemon is not None and not keep:
            on_line(Progress("down").to_line())
            await asyncio.shield(own_daemon.release())


async def _is_up(target: LabTarget, *, wait: bool) -> bool:
    """Whether a daemon with a lab for common use is running. Raises LabError if the lab belongs to another run."""
    async with connected(target) as daemon:
        if daemon is None:
            return False
        status = await daemon.status()
    if not status["for_run"]:
        return True
    if wait:
        with contextlib.suppress(LabError):
            await wait_until_ended(target, status["pid"])
            return False
    busy: Line = status["busy"] or {}
    task_text = f"{busy.get('about', 'ending')}, daemon process {status['pid']}"
    raise LabError(f"another run is in progress ({task_text}); wait until it ends, or use --on virtual")


def _start_process(target: LabTarget, *, for_run: bool) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", DAEMON_MODULE),
            *(["--inventory", str(target.inventory)] if target.inventory else []),
            *(["--for-run"] if for_run else []),
        ],
        stdin=subprocess.PIPE if for_run else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if for_run else _log_file(),
        start_new_session=True,  # Ctrl-C goes to the command, which then ends the daemon
        env={name: text for name, text in os.environ.items() if name not in SECRETS - {INFLUX_TOKEN_VARIABLE}},
    )


def state_directory() -> Path:
    """The directory of this user's state: the daemon's log, the token."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "atoll"


def _log_file() -> Any:
    """The log file of a daemon that outlives its command."""
    state = state_directory()
    try:
        state.mkdir(parents=True, exist_ok=True)
        return (state / _LOG_NAME).open("ab")
    except OSError as error:
        raise AtollError(f"cannot write the daemon's log in {state}: {error.strerror}") from None


async def wait_until_ended(target: LabTarget, pid: int) -> None:
    """Wait until the daemon has ended. Raises LabError if it has not after the limit."""
    for _ in range(int(_EXIT_TIMEOUT_S / 0.05)):
        if daemon_holder(target) is None:
            return
        await asyncio.sleep(0.05)
    raise LabError(f"the daemon (process {pid}) did not end within {_EXIT_TIMEOUT_S:g} s")
