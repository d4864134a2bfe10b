# SPDX-License-Identifier: Apache-2.0
"""Mininet's command line on the running lab: a forked process on a pseudo-terminal."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from dataclasses import dataclass
from typing import NoReturn

from atoll_emulation.mn import CLI, Node
from atoll_emulation.nodes import LabNet

_LEAVE_S = 1.0  # how long a command that is asked to end may take before it is killed
_INTERRUPT_S = 0.3
_PROMPT = b"\x7f"  # what Mininet makes the machines' shells prompt with


@dataclass(frozen=True, slots=True)
class Shell:
    """One session. Leaving it stops nothing; what it did to the lab stays."""

    name: str
    pid: int
    terminal: int  # the master side
    net: LabNet

    @classmethod
    def open(cls, name: str, net: LabNet, columns: int, rows: int) -> "Shell":
        """Fork a process that runs the command line until the user leaves it."""
        pid, terminal = pty.fork()
        if pid == 0:
            _run(net)
        os.set_blocking(terminal, False)  # a paste bigger than the terminal's buffer is cut, not waited for
        shell = cls(name, pid, terminal, net)
        shell.resize(columns, rows)
        return shell

    def resize(self, columns: int, rows: int) -> None:
        """Tell the terminal how big the user's window is."""
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self) -> bytes:
        """What the terminal shows next; empty at the end of the session."""
        try:
            return os.read(self.terminal, 1 << 16)
        except OSError:  # EIO: the last process on the terminal is gone
            return b""

    def write(self, keys: bytes) -> None:
        """Type."""
        with contextlib.suppress(OSError):
            os.write(self.terminal, keys)

    def close(self) -> None:
        """End the session: interrupt what runs in it, leave, and kill what does not obey."""
        child = os.pidfd_open(self.pid)
        self.write(b"\x03")
        self._drain(child, 0.2)
        self.write(b"\x04")
        self._drain(child, _LEAVE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(child)
        os.close(self.terminal)
        for node in self.net.values():
            _interrupt(node)

    def _drain(self, child: int, seconds: float) -> None:
        """Throw the terminal's output away until the session's process ends or time is up."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([child, self.terminal], [], [], left)
            if child in ready or (self.terminal in ready and not self.read()):
                return


def _interrupt(node: Node) -> None:
    """Bring a machine's own shell back to its prompt: commands in the foreground end, those in the background stay.

    A session may end while a command runs in that shell, which serves the next session too.
    """
    pty_master = node.stdout.fileno()
    for _ in range(3):  # an interrupt between the shell's fork and exec is lost
        os.write(pty_master, b"\x03")
        said = b""
        while select.select([pty_master], [], [], 0 if said.endswith(_PROMPT) else _INTERRUPT_S)[0]:
            said += os.read(pty_master, 1 << 16)
        if said.endswith(_PROMPT):
            return


def _run(net: LabNet) -> NoReturn:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("TERM", "xterm")
    try:
        CLI(net)
    finally:
        sys.stdout.flush()
        os._exit(0)
