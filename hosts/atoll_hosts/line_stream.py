# SPDX-License-Identifier: Apache-2.0
"""Streams that are spoken to in lines and answer in lines: a child process here, others elsewhere (``ssh``)."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Protocol

from atoll_core.secret_variables import without_secrets

_READ_BYTES = 1 << 16  # a pipe's capacity


class LineStream(Protocol):
    """A program that hears lines and says lines, wherever it runs."""

    @property
    def broken(self) -> Exception | None:
        """What it said that could not be understood, if that ended it."""
        ...

    def write(self, line: bytes) -> None:
        """Send a line, newline included. A program that is gone does not hear it (see :meth:`wait`)."""
        ...

    def close_input(self) -> None:
        """End its standard input, when what was written is through."""
        ...

    def kill(self) -> None:
        """End it, or at least the stream, at once; harmless when it has ended."""
        ...

    async def wait(self) -> str:
        """Wait until it has ended and all its output was read; how it ended, in words."""
        ...


class LineCutter:
    """Cuts chunks at newlines and hands on each line in the turn of the event loop that brought it."""

    def __init__(self, on_line: Callable[[bytes], None], longest: int) -> None:
        """What ``on_line`` raises breaks the stream: ``broken`` then says why, and nothing more is handed on.

        So it is when a line has more than ``longest`` bytes.
        """
        self.broken: Exception | None = None
        self._on_line = on_line
        self._longest = longest
        self._partial = bytearray()

    def take(self, data: bytes) -> None:
        """The next chunk."""
        if self.broken is not None:
            return
        first, newline, others = data.partition(b"\n")
        self._partial += first
        try:
            if newline:
                *lines, rest = others.split(b"\n")
                for line in (bytes(self._partial), *lines):
                    self._on_line(line)
                self._partial = bytearray(rest)
        except Exception as error:  # noqa: BLE001 - a machine may say anything; it ends its own stream and nothing else
            self.broken = error
        if len(self._partial) > self._longest:
            self.broken = ValueError(f"a line of more than {self._longest} bytes")


class LineProcess:
    """Hands on every line of a child process' standard output in that turn of the event loop which reads it.

    asyncio's streams take three turns for it, and memory of the kernel's each time: fifteen system calls instead of
    five. An agent says thirty lines a second, and in virtual time system calls are what costs.
    """

    def __init__(self, on_line: Callable[[bytes], None], longest: int) -> None:
        """As :class:`LineCutter`; what breaks the stream kills the process."""
        self._cutter = LineCutter(on_line, longest)
        self._loop = asyncio.get_running_loop()
        self._output_ended: asyncio.Future[None] = self._loop.create_future()
        self._output = -1
        self._process: asyncio.subprocess.Process | None = None
        self._every_s = 0.0
        self._at_once_until_s = 0.0  # what was written may be answered
        self._next_read: asyncio.TimerHandle | None = None

    @property
    def broken(self) -> Exception | None:
        """What it said that could not be understood, if that ended it."""
        return self._cutter.broken

    async def start(self, command: Sequence[str]) -> None:
        """Start it in a session of its own, so that Ctrl-C is not for it. Raises OSError."""
        output, its_output = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(its_output, True)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=its_output,
                start_new_session=True,
                env=without_secrets(os.environ),
            )
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(its_output)
        self._output = output
        self._loop.add_reader(output, self._read)

    def read_every(self, seconds: float) -> None:
        """From now on take what it says so often only; 0: as it comes, which is how a stream begins.

        Thirty lines a second are then read together: to be woken for each is what they cost. For as long after a line
        was written, what comes is taken as it comes: it may be the answer.
        """
        self._every_s = seconds
        self._hurry()

    def write(self, line: bytes) -> None:
        """Send a line, newline included. A process that is gone does not hear it (see :meth:`wait`)."""
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(line)
            self._hurry()

    def close_input(self) -> None:
        """End its standard input, when what was written is through."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._hurry()

    def kill(self) -> None:
        """SIGKILL; harmless when it has ended."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def wait(self) -> str:
        """Wait until it has ended and all its output was read: its exit status or signal, in words.

        Only for a process that was started.
        """
        await asyncio.shield(self._output_ended)
        status = await self._process.wait() if self._process is not None else 0
        return f"signal {-status}" if status < 0 else f"exit status {status}"

    def _read(self) -> None:
        try:
            data = os.read(self._output, _READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._cutter.take(data)
            if self._cutter.broken is not None:
                self.kill()
            # A full pipe would hold up who writes into it.
            elif len(data) < _READ_BYTES and self._loop.time() >= self._at_once_until_s:
                self._pause()
        else:
            self._loop.remove_reader(self._output)
            os.close(self._output)
            self._output_ended.set_result(None)

    def _pause(self) -> None:
        if self._every_s > 0:
            self._loop.remove_reader(self._output)
            self._next_read = self._loop.call_later(self._every_s, self._go_on)

    def _hurry(self) -> None:
        self._at_once_until_s = self._loop.time() + self._every_s
        if self._next_read is not None:
            self._next_read.cancel()
            self._go_on()

    def _go_on(self) -> None:
        self._next_read = None
        self._loop.add_reader(self._output, self._read)
