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
from atoll_hosts.line_stream import LineSplitter, LineStream

SILENCE_S = 8
"""Timeout of the heartbeat on both sides. The agent then has a second to end its jobs: within 10 s none is left."""

IN_BAND_SILENCE_S = 64
"""The same for a host whose control passes the experiment's network: a heartbeat every 8 s, as it is to be quiet."""

_NOT_FOUND = 127  # of a shell, POSIX 2.8.2
_NOT_EXECUTABLE = 126

_SUDO_REFUSALS = ("sudo: a password is required", "sudo: a terminal is required")
_SUDO_WARNING = "sudo: unable to resolve host"  # a warning only
_SUDOERS_REMEDY = "a file in /etc/sudoers.d that says 'USER ALL=(ALL) NOPASSWD: ALL'"

_STDERR_LINES = 5  # the last lines explain why a program ended
_STDERR_BYTES = 4096


def agent_command(access: SshAccess, silence_s: int = SILENCE_S) -> str:
    """The command line that starts the agent in the user's shell on the machine."""
    argv = [*(["sudo", "-n", "--"] if access.sudo else []), access.binary, "agent", "--silence", str(silence_s)]
    return "exec " + shlex.join(argv)


async def start_agent(
    connection: asyncssh.SSHClientConnection, name: str, access: SshAccess, silence_s: int = SILENCE_S
) -> Agent:
    """Start the agent on a connected machine and wait for its greeting. Raises LabError.

    ``silence_s``: timeout of the heartbeat.
    """

    async def open_channel(on_line: Callable[[bytes], None], longest: int) -> LineStream:
        stream = _SshLines(name, access, LineSplitter(on_line, longest))
        untyped: Any = connection  # its session's type is a parameter that it leaves open
        try:
            await untyped.create_session(lambda: stream, agent_command(access, silence_s), encoding=None)
        except (asyncssh.Error, OSError) as error:
            reason = getattr(error, "reason", "") or str(error)
            raise LabError(f"{name}: {access} does not run commands: {reason}") from None
        return stream

    remedy = f"`atoll hosts install --inventory FILE {name}` installs the right one"
    return await Agent.connect(open_channel, name, silence_s=silence_s, remedy=remedy)


class _SshLines(asyncssh.SSHClientSession[bytes]):
    """A stream of lines to and from a program at the far end of an SSH channel."""

    def __init__(self, name: str, access: SshAccess, splitter: LineSplitter) -> None:
        self._name = name
        self._access = access
        self._splitter = splitter
        self._channel: Any = None  # asyncssh.SSHClientChannel[bytes], whose methods are not all typed
        self._stderr = b""  # the end of it
        self._code: int | None = None
        self._signal: str | None = None
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def error(self) -> Exception | None:
        """The error in its output that has ended the stream; None if there was none."""
        return self._splitter.error

    def write(self, line: bytes) -> None:
        """Send a line with its newline."""
        if self._channel is not None and not self._channel.is_closing() and not self._ended.done():
            self._channel.write(line)

    def close_input(self) -> None:
        """Close its standard input."""
        if self._channel is not None and not self._ended.done():
            self._channel.write_eof()

    def kill(self) -> None:
        """Close the channel and the connection, which may be dead, at once; the agent then ends everything."""
        if self._channel is not None:
            self._channel.get_connection().abort()

    async def wait(self) -> str:
        """Wait for the end of the program; returns how it ended, in words."""
        return await asyncio.shield(self._ended)

    # Called by asyncssh

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        """Take the open channel."""
        self._channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """Take standard output or standard error."""
        if datatype is not None:
            self._stderr = (self._stderr + data)[-_STDERR_BYTES:]  # a chunk may end anywhere in a line
            return
        self._splitter.take(data)
        if self._splitter.error is not None:
            self.kill()

    def exit_status_received(self, status: int) -> None:
        """Take the exit status; output may still follow."""
        self._code = status

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        """Take the signal that ended the program."""
        del core_dumped, msg, lang
        self._signal = f"signal {plain(signal)}"

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the end of the channel or connection."""
        end_text = f"the connection was lost: {exc}" if exc else "the connection was closed"
        if not self._ended.done():
            self._ended.set_result(self._signal or (end_text if self._code is None else self._exit_text(self._code)))

    def _exit_text(self, status: int) -> str:
        """An exit status in words; special statuses of the shell mean that the program was not started."""
        if status == _NOT_FOUND:
            return f"no {self._access.binary} there; `atoll hosts install` installs it"
        if status == _NOT_EXECUTABLE:
            return f"{self._access.binary} cannot be executed there; `atoll hosts install` installs the right one"
        lines = [plain(line.strip()) for line in self._stderr.decode(errors="replace").splitlines()]
        lines = [line for line in lines if not line.startswith(_SUDO_WARNING)]
        if self._access.sudo and any(line.startswith(_SUDO_REFUSALS) for line in lines):
            return f"the user of {self._access} may not use sudo without a password there; {_SUDOERS_REMEDY} allows it"
        text = "; ".join([line for line in lines if line][-_STDERR_LINES:])
        return f"{text}, exit status {status}" if text else f"exit status {status}"
