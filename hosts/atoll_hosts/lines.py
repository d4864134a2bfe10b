# SPDX-License-Identifier: Apache-2.0
"""A child process that is spoken to in lines and answers in lines."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence

_READ_BYTES = 1 << 16  # a pipe's capacity


class LineProcess:
    """Hands on every line of the process' standard output in that turn of the event loop which reads it.

    asyncio's streams take three turns for it, and memory of the kernel's each time: fifteen system calls instead of
    five. An agent says thirty lines a second, and in virtual time system calls are what costs.
    """

    def __init__(self, on_line: Callable[[bytes], None], longest: int) -> None:
        """``on_line`` may raise ValueError or KeyError: the process is killed, and ``broken`` says why.

        So it is when a line has more than ``longest`` bytes.
        """
        self.broken: Exception | None = None
        self._on_line = on_line
        self._longest = longest
        self._partial = bytearray()
        self._loop = asyncio.get_running_loop()
        self._output_ended: asyncio.Future[None] = self._loop.create_future()
        self._output = -1
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, command: Sequence[str]) -> None:
        """Start it in a session of its own, so that Ctrl-C is not for it. Raises OSError."""
        output, its_output = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(its_output, True)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=its_output, start_new_session=True
            )
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(its_output)
        self._output = output
        self._loop.add_reader(output, self._read)

    def write(self, line: bytes) -> None:
        """Send a line, newline included. A process that is gone does not hear it (see :meth:`wait`)."""
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(line)

    def close_input(self) -> None:
        """End its standard input, when what was written is through."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def kill(self) -> None:
        """SIGKILL; harmless when it has ended."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def wait(self) -> int:
        """Wait until it has ended and all its output was read: its exit status, negative for a signal.

        Only for a process that was started.
        """
        await asyncio.shield(self._output_ended)
        return await self._process.wait() if self._process is not None else 0

    def _read(self) -> None:
        try:
            data = os.read(self._output, _READ_BYTES)
        except BlockingIOError:
            return
        if data and self.broken is None:
            self._take(data)
        elif not data:
            self._loop.remove_reader(self._output)
            os.close(self._output)
            self._output_ended.set_result(None)

    def _take(self, data: bytes) -> None:
        first, newline, others = data.partition(b"\n")
        self._partial += first
        try:
            if newline:
                *lines, rest = others.split(b"\n")
                for line in (bytes(self._partial), *lines):
                    self._on_line(line)
                self._partial = bytearray(rest)
        except (ValueError, KeyError) as error:
            self._break(error)
        if len(self._partial) > self._longest:
            self._break(ValueError(f"a line of more than {self._longest} bytes"))

    def _break(self, error: Exception) -> None:
        self.broken = error
        self.kill()
