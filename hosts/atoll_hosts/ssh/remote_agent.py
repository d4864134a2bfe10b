# SPDX-License-Identifier: Apache-2.0
"""An agent on another machine: ``atoll-host agent`` at the far end of an SSH channel."""

import asyncio
import shlex
from collections.abc import Callable
from typing import Any

import asyncssh

from atoll_core.errors import LabError, plain
from atoll_core.lab.inventory import SshAccess
from atoll_hosts.agent import Agent
from atoll_hosts.line_stream import LineCutter, LineStream

SILENCE_S = 8
"""How long either side may say nothing. The agent then has a second for its jobs: within 10 s none is left."""

_NOT_FOUND = 127  # of a shell, POSIX 2.8.2
_NOT_EXECUTABLE = 126

_NO_SUDO = ("sudo: a password is required", "sudo: a terminal is required")
_SUDO_CHATTER = "sudo: unable to resolve host"  # it goes on all the same
_SUDOERS = "a file in /etc/sudoers.d that says 'USER ALL=(ALL) NOPASSWD: ALL'"

_STDERR_LINES = 5  # the last ones tell why a program ended
_STDERR_BYTES = 4096


def agent_command(access: SshAccess) -> str:
    """What the user's shell on the machine is asked to run."""
    words = [*(["sudo", "-n", "--"] if access.sudo else []), access.binary, "agent", "--silence", str(SILENCE_S)]
    return "exec " + shlex.join(words)


async def start_agent(connection: asyncssh.SSHClientConnection, name: str, access: SshAccess) -> Agent:
    """Start the agent on a machine that is connected, and wait for its greeting. Raises LabError."""

    async def open_channel(on_line: Callable[[bytes], None], longest: int) -> LineStream:
        stream = SshLines(name, access, LineCutter(on_line, longest))
        untyped: Any = connection  # its session's type is a parameter that it leaves open
        try:
            await untyped.create_session(lambda: stream, agent_command(access), encoding=None)
        except (asyncssh.Error, OSError) as error:
            why = getattr(error, "reason", "") or str(error)
            raise LabError(f"{name}: {access} does not run commands: {why}") from None
        return stream

    remedy = f"`atoll hosts install --inventory FILE {name}` brings the one that fits"
    return await Agent.over(open_channel, name, silence_s=SILENCE_S, remedy=remedy)


class SshLines(asyncssh.SSHClientSession[bytes]):
    """A program at the far end of an SSH channel, spoken to in lines."""

    def __init__(self, name: str, access: SshAccess, cutter: LineCutter) -> None:
        self._name = name
        self._access = access
        self._cutter = cutter
        self._channel: Any = None  # asyncssh.SSHClientChannel[bytes], whose methods are not all typed
        self._stderr = b""  # the end of it
        self._code: int | None = None
        self._signal: str | None = None
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def broken(self) -> Exception | None:
        """What it said that could not be understood, if that ended it."""
        return self._cutter.broken

    def write(self, line: bytes) -> None:
        """Send a line, newline included."""
        if self._channel is not None and not self._channel.is_closing() and not self._ended.done():
            self._channel.write(line)

    def close_input(self) -> None:
        """End its standard input."""
        if self._channel is not None and not self._ended.done():
            self._channel.write_eof()

    def kill(self) -> None:
        """End the channel at once, and the connection, which may be dead; the agent notices and ends everything."""
        if self._channel is not None:
            self._channel.get_connection().abort()

    async def wait(self) -> str:
        """How it ended, in words."""
        return await asyncio.shield(self._ended)

    # What asyncssh calls

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        """The channel is open."""
        self._channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """Output, or its standard error."""
        if datatype is not None:
            self._stderr = (self._stderr + data)[-_STDERR_BYTES:]  # a chunk may end anywhere in a line
            return
        self._cutter.take(data)
        if self._cutter.broken is not None:
            self.kill()

    def exit_status_received(self, status: int) -> None:
        """It has ended by itself; what it said may still be on its way."""
        self._code = status

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        """A signal ended it."""
        del core_dumped, msg, lang
        self._signal = f"signal {plain(signal)}"

    def connection_lost(self, exc: Exception | None) -> None:
        """The channel is closed, or the connection gone."""
        lost = f"the connection was lost: {exc}" if exc else "the connection was closed"
        if not self._ended.done():
            self._ended.set_result(self._signal or (lost if self._code is None else self._exited(self._code)))

    def _exited(self, status: int) -> str:
        """How it ended by itself, in words; a shell says by the status that it never began."""
        if status == _NOT_FOUND:
            return f"no {self._access.binary} there; `atoll hosts install` brings it"
        if status == _NOT_EXECUTABLE:
            return f"{self._access.binary} cannot be executed there; `atoll hosts install` brings one that can"
        lines = [plain(line.strip()) for line in self._stderr.decode(errors="replace").splitlines()]
        lines = [line for line in lines if not line.startswith(_SUDO_CHATTER)]
        if self._access.sudo and any(line.startswith(_NO_SUDO) for line in lines):
            return f"the user of {self._access} may not sudo without a password there; {_SUDOERS} lets it"
        said = "; ".join([line for line in lines if line][-_STDERR_LINES:])
        return f"{said}, exit status {status}" if said else f"exit status {status}"
