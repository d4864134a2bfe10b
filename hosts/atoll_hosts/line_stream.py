# SPDX-License-Identifier: Apache-2.0
"""Streams of lines to and from a program: a child process here, an SSH channel in ``ssh/remote_agent``."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Protocol

from atoll_core.secret_variables import without_secrets

_READ_BYTES = 1 << 16  # a pipe's capacity


class LineStream(Protocol):
    """A stream of lines to and from a program on any machine."""

    @property
    def error(self) -> Exception | None:
        """The error in the program's output that has ended the stream; None if there was none."""
        ...

    def write(self, line: bytes) -> None:
        """Send a line with its newline. It is lost if the program has ended (see :meth:`wait`)."""
        ...

    def close_input(self) -> None:
        """Close the program's standard input after the written lines."""
        ...

    def kill(self) -> None:
        """End the program, or at least the stream, at once; does nothing if it has ended."""
        ...

    async def wait(self) -> str:
        """Wait until the program has ended and its output was read; returns how it ended, in words."""
        ...


class LineSplitter:
    """Splits chunks at newlines and calls ``on_line`` for each line at once."""

    def __init__(self, on_line: Callable[[bytes], None], longest_bytes: int) -> None:
        """An error of ``on_line``, or a line of more than ``longest_bytes`` bytes, ends the stream.

        ``error`` has the error then, and ``on_line`` is not called again.
        """
        self.error: Exception | None = None
        self._on_line = on_line
        self._longest_bytes = longest_bytes
        self._partial = bytearray()

    def take(self, data: bytes) -> None:
        """Take the next chunk."""
        if self.error is not None:
            return
        first, newline, remainder = data.partition(b"\n")
        self._partial += first
        try:
            if newline:
                *lines, partial = remainder.split(b"\n")
                for line in (bytes(self._partial), *lines):
                    self._on_line(line)
                self._partial = bytearray(partial)
        except Exception as error:  # noqa: BLE001 - invalid output of a machine must end its own stream only
            self.error = error
        if len(self._partial) > self._longest_bytes:
            self.error = ValueError(f"a line is longer than {self._longest_bytes} bytes")


class LineProcess:
    """A child process whose lines of standard output are passed on in the iteration of the event loop that reads them.

    asyncio's streams need three iterations, and fifteen system calls instead of five. An agent sends thirty lines a
    second, and in virtual time system calls determine the cost.
    """

    def __init__(self, on_line: Callable[[bytes], None], longest_bytes: int) -> None:
        """As :class:`LineSplitter`; an error kills the process."""
        self._splitter = LineSplitter(on_line, longest_bytes)
        self._loop = asyncio.get_running_loop()
        self._output_ended: asyncio.Future[None] = self._loop.create_future()
        self._output = -1
        self._process: asyncio.subprocess.Process | None = None
        self._interval_s = 0.0
        self._read_at_once_until_s = 0.0  # an answer to a written line is expected until then
        self._next_read: asyncio.TimerHandle | None = None

    @property
    def error(self) -> Exception | None:
        """The error in its output that has ended the stream; None if there was none."""
        return self._splitter.error

    async def start(self, command: Sequence[str]) -> None:
        """Start the process in a new session, so that Ctrl-C does not reach it. Raises OSError."""
        output, child_output = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(child_output, True)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=child_output,
                start_new_session=True,
                env=without_secrets(os.environ),
            )
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(child_output)
        self._output = output
        self._loop.add_reader(output, self._read)

    def read_every(self, seconds: float) -> None:
        """Read output at this interval only; 0, the initial value: as it arrives.

        Waking up for each of thirty lines a second is most of their cost. For one interval after a line was written,
        output is read as it arrives, as it may be the answer.
        """
        self._interval_s = seconds
        self._read_at_once()

    def write(self, line: bytes) -> None:
        """Send a line with its newline. It is lost if the process has ended (see :meth:`wait`)."""
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(line)
            self._read_at_once()

    def close_input(self) -> None:
        """Close its standard input after the written lines."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._read_at_once()

    def kill(self) -> None:
        """Send SIGKILL; does nothing if the process has ended."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def wait(self) -> str:
        """Wait until the process has ended and its output was read; returns its exit status or signal in words."""
        await asyncio.shield(self._output_ended)
        status = await self._process.wait() if self._process is not None else 0
        return f"signal {-status}" if status < 0 else f"exit status {status}"

    def _read(self) -> None:
        try:
            data = os.read(self._output, _READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._splitter.take(data)
            if self._splitter.error is not None:
                self.kill()
            # A full pipe would block the writer.
            elif len(data) < _READ_BYTES and self._loop.time() >= self._read_at_once_until_s:
                self._pause_reading()
        else:
            self._loop.remove_reader(self._output)
            os.close(self._output)
            self._output_ended.set_result(None)

    def _pause_reading(self) -> None:
        if self._interval_s > 0:
            self._loop.remove_reader(self._output)
            self._next_read = self._loop.call_later(self._interval_s, self._resume_reading)

    def _read_at_once(self) -> None:
        self._read_at_once_until_s = self._loop.time() + self._interval_s
        if self._next_read is not None:
            self._next_read.cancel()
            self._resume_reading()

    def _resume_reading(self) -> None:
        self._next_read = None
        self._loop.add_reader(self._output, self._read)
