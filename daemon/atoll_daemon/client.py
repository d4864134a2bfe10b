# SPDX-License-Identifier: Apache-2.0
"""The verbs' side of the daemon: find it, start it, ask it."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from atoll_core.errors import AtollError, DescriptionError, Diagnostic, LabError
from atoll_core.secret_variables import INFLUX_TOKEN_VARIABLE, SECRETS
from atoll_daemon.connector import DaemonConnector
from atoll_daemon.socket_lock import (
    KEEPER_MODULE,
    daemon_holder,
    describe_holder,
    foreign_daemon,
    may_talk,
    roots_daemon,
    socket_name,
    what_it_keeps,
)

_READY_TIMEOUT_S = 15.0
_ANSWER_TIMEOUT_S = 5.0
_EXIT_TIMEOUT_S = 30.0
_LONGEST_LINE = 16 * 1024 * 1024  # a summary is one line

_KEEPER = "http://daemon"

KEEPER_DIED = "the daemon died; the lab and all its processes are gone with it"

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Description:
    """A description as the daemon gets it: its file, and what stands in place of parts of it (``--set``)."""

    path: Path
    settings: tuple[str, ...] = ()

    def parameters(self) -> list[tuple[str, str]]:
        """What the address of the request says of it."""
        whole = self.path.absolute()  # with its `..`: behind a link they lead elsewhere
        return [("file", str(whole)), *(("set", setting) for setting in self.settings)]

    def content(self) -> bytes:
        """What the file holds. Raises DescriptionError when it cannot be read any more."""
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise DescriptionError([Diagnostic(str(self.path), 0, f"cannot be read: {error.strerror}")]) from None


class RequestRefusedError(LabError):
    """The daemon refused a request or it failed there; carries the exit code it named."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class DaemonDiedError(LabError):
    """The daemon ended in the middle of a request."""


class DaemonClient:
    """A connection to the daemon of this machine."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def status(self) -> Line:
        """What is up and what it is busy with."""
        return await self.get("/v1/status")

    async def switches(self) -> list[Line]:
        """The lab's switches as they are now. Raises RefusedError when no lab is up."""
        return (await self.get("/v1/switches"))["switches"]

    async def get(self, path: str, **query: str) -> Line:
        """What there is at a path of the API (docs/api.md). Raises RefusedError."""
        async with self._session.get(f"{_KEEPER}{path}", params=query) as response:
            return await _answer(response)

    async def post(self, path: str, **query: str) -> Line:
        """What a request without a body is answered. Raises RefusedError."""
        async with self._session.post(f"{_KEEPER}{path}", params=query) as response:
            return await _answer(response)

    async def listen(self, address: str, token: str, token_file: str | None) -> str:
        """Have the daemon listen on TCP as well; the URL. Raises RefusedError."""
        body = {"address": address, "token": token, "token_file": token_file}
        async with self._session.post(f"{_KEEPER}/v1/ports", json=body) as response:
            return (await _answer(response))["url"]

    async def stream(
        self, path: str, description: Description, on_line: Callable[[Line], None], **query: str | list[str] | None
    ) -> Line:
        """POST a description; hands on every line of the answer; returns the ``done`` line.

        ``query``: parameters besides the description's own, those that are None left out. Raises RefusedError when it
        ends in ``error``, KeeperDiedError when it just ends.
        """
        parameters = description.parameters()
        for name, given in query.items():
            parameters += [(name, each) for each in (given if isinstance(given, list) else [given]) if each is not None]
        headers = {"Content-Type": "application/yaml", "Accept": "application/x-ndjson"}
        try:
            async with self._session.post(
                f"{_KEEPER}{path}", params=parameters, data=description.content(), headers=headers
            ) as response:
                if response.status != 200:
                    await _answer(response)
                async for text in response.content:
                    line: Line = json.loads(text)
                    if line["type"] == "done":
                        return line
                    if line["type"] == "error":
                        raise RequestRefusedError(line["message"], line["exit_code"])
                    on_line(line)
        except (aiohttp.ClientError, json.JSONDecodeError) as error:
            raise DaemonDiedError(KEEPER_DIED) from error
        raise DaemonDiedError(KEEPER_DIED)

    async def down(self, *, force: bool) -> None:
        """Ask the daemon to take the lab down and to end; returns when it has.

        Raises RefusedError when it is busy, unless by ``force``.
        """
        holder = daemon_holder()
        with contextlib.suppress(aiohttp.ClientError):
            async with self._session.delete(f"{_KEEPER}/v1/lab", params={"force": str(force).lower()}) as response:
                await _answer(response)
        if holder is not None:
            await wait_gone(holder[0])

    def shell(self) -> Any:
        """The WebSocket of a shell, as an async context manager."""
        return self._session.ws_connect(f"{_KEEPER}/v1/shell")


async def _answer(response: aiohttp.ClientResponse) -> Line:
    """The object that is answered; RefusedError for that of an error."""
    try:
        answer: Line = await response.json()
    except (aiohttp.ClientError, json.JSONDecodeError):
        msg = f"the daemon answered {response.status} {response.reason} without an explanation"
        raise LabError(msg) from None
    if not response.ok:
        raise RequestRefusedError(answer["error"]["message"], answer["error"]["exit_code"])
    return answer


@contextlib.asynccontextmanager
async def connected() -> AsyncGenerator[DaemonClient | None]:
    """The running daemon, or None when there is none. LabError when it is somebody else's."""
    holder = daemon_holder()
    if holder is None:
        yield None
        return
    if not may_talk(holder[1]):
        raise foreign_daemon(holder)
    async with aiohttp.ClientSession(
        connector=DaemonConnector(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
        read_bufsize=_LONGEST_LINE,
    ) as session:
        daemon = DaemonClient(session)
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                await daemon.status()
        except (TimeoutError, aiohttp.ClientError):
            holds = f"{describe_holder(*holder)} holds it and does not answer as a daemon"
            other = LabError(f"{socket_name()} is the lock of {what_it_keeps()}: {holds}")
            raise roots_daemon(holder) or other from None
        yield daemon


class OwnDaemon:
    """A daemon started by a verb. ``for_run``: it ends when :meth:`release` closes its input or this process dies."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    @classmethod
    async def start(cls, *, for_run: bool) -> "OwnDaemon":
        """Start a daemon and wait until it listens (LabError with its own words when it does not).

        Cancelled while it waits, it ends the daemon, which nobody else knows of yet.
        """
        process = _start_process(for_run=for_run)  # not in a thread: that would go on when this is cancelled
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
            raise LabError(lines[-1] if lines else "the daemon did not start")
        return daemon

    async def end(self) -> None:
        """Have it take down what it has of a lab and end; returns when it has."""
        self.process.terminate()
        await self._wait()

    async def release(self) -> None:
        """Let a daemon started for a run go: it takes the lab down and ends; returns when it has."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        await self._wait()

    async def _wait(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self.process.wait, _EXIT_TIMEOUT_S)


def _start_process(*, for_run: bool) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", KEEPER_MODULE, *(["--for-run"] if for_run else [])],
        stdin=subprocess.PIPE if for_run else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if for_run else _log_file(),
        start_new_session=True,  # Ctrl-C is for the verb, which then tells the daemon
        env={name: text for name, text in os.environ.items() if name not in SECRETS - {INFLUX_TOKEN_VARIABLE}},
    )


def state_directory() -> Path:
    """Where the user's own files of this program are: the daemon's log, the token."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "atoll"


def _log_file() -> Any:
    """Where a daemon that stays writes what went wrong."""
    state = state_directory()
    try:
        state.mkdir(parents=True, exist_ok=True)
        return (state / "daemon.log").open("ab")
    except OSError as error:
        msg = f"cannot write the daemon's log in {state}: {error.strerror}"
        raise AtollError(msg) from None


async def wait_gone(pid: int, limit_s: float = _EXIT_TIMEOUT_S) -> None:
    """Return when the process has ended (LabError when it has not after the limit)."""
    for _ in range(int(limit_s / 0.05)):
        if daemon_holder() is None:
            return
        await asyncio.sleep(0.05)
    msg = f"the daemon (process {pid}) has not ended after {limit_s:g} s"
    raise LabError(msg)
