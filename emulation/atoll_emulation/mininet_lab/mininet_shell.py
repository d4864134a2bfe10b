# SPDX-License-Identifier: Apache-2.0
"""Mininet's command line on the running lab, in a forked process: on a pseudo-terminal, or for a script."""

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
from pathlib import Path
from typing import NoReturn, TextIO

from atoll_emulation.mininet_lab.mininet_api import CLI, Node
from atoll_emulation.mininet_lab.nodes import LabNet, command_twin

_LEAVE_TIMEOUT_S = 1.0  # until a command that does not end is killed
_INTERRUPT_TIMEOUT_S = 0.3
_PROMPT = b"\x7f"  # of the machines' shells, set by Mininet
_SCRIPT_FOLDER = Path("/run")  # the lab's own
_PIPE_BYTES = 1 << 16  # pipe(7): its capacity, so that one read empties it


@dataclass(frozen=True, slots=True)
class TerminalSession:
    """An interactive session. Its end stops nothing; its changes to the lab stay."""

    name: str
    pid: int
    terminal: int  # the master side
    net: LabNet

    @classmethod
    def open(cls, name: str, net: LabNet, columns: int, rows: int) -> "TerminalSession":
        """Fork a process that runs the command line until the user leaves it."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ.setdefault("TERM", "xterm")
            _set_size(sys.stdin.fileno(), columns, rows)  # before the first prompt, which a later change draws again
            _run_command_line(net, sys.stdin)
        os.set_blocking(terminal, False)  # a paste bigger than the terminal's buffer is cut, not waited for
        return cls(name, pid, terminal, net)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """File descriptors; call ``read`` when one of them is readable."""
        return (self.terminal,)

    def resize(self, columns: int, rows: int) -> None:
        """Set the size of the terminal."""
        _set_size(self.terminal, columns, rows)

    def read(self) -> bytes | None:
        """Return new output of the terminal; None at the end of the session."""
        try:
            return os.read(self.terminal, 1 << 16)
        except OSError:  # EIO: the last process on the terminal is gone
            return None

    def write(self, keys: bytes) -> None:
        """Write keys to the terminal."""
        with contextlib.suppress(OSError):
            os.write(self.terminal, keys)

    def close(self) -> None:
        """End the session: interrupt its command, leave the shell, and kill the process if it stays."""
        pidfd = os.pidfd_open(self.pid)
        self.write(b"\x03")
        self._drain(pidfd, 0.2)
        self.write(b"\x04")
        self._drain(pidfd, _LEAVE_TIMEOUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(pidfd)
        os.close(self.terminal)
        _interrupt_machines(self.net)

    def _drain(self, pidfd: int, seconds: float) -> None:
        """Discard the terminal's output until the session's process ends or the time-out expires."""
        deadline = time.monotonic() + seconds
        while (remaining_s := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([pidfd, self.terminal], [], [], remaining_s)
            if pidfd in ready or (self.terminal in ready and not self.read()):
                return


def _set_size(terminal: int, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Script:
    """Lines for the command line, run one after the other without prompt, echo or terminal.

    After a line that fails, the next one is run, as in an interactive session; ``exit`` ends the script.
    """

    def __init__(self, name: str, net: LabNet, text: str) -> None:
        self.name = name
        self._net = net
        self._path = _SCRIPT_FOLDER / f"{name}.mininet"
        self._path.write_text(text, encoding="utf-8", errors="replace")
        self._output, write_end = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _run_script(net, self._path, write_end)
        os.close(write_end)
        os.set_blocking(self._output, False)
        self._pidfd = os.pidfd_open(self._pid)
        self._pending_cr = b""  # a CR whose LF may be in the next piece
        self._is_over = False

    @property
    def descriptors(self) -> tuple[int, ...]:
        """File descriptors; call ``read`` when one of them is readable."""
        return (self._output, self._pidfd)  # a process that the script left behind may hold the pipe open

    def read(self) -> bytes | None:
        """Return new output, possibly empty; None at the end of the script.

        The machines' shells are on terminals of their own (Mininet's), whose CR LF becomes LF here.
        """
        if self._is_over:
            return None
        self._is_over = bool(select.select([self._pidfd], [], [], 0)[0])  # asked before: what is read now is the last
        try:
            printed = os.read(self._output, _PIPE_BYTES)
        except BlockingIOError:
            printed = b""
        else:
            self._is_over = self._is_over or not printed
        printed = (self._pending_cr + printed).replace(b"\r\n", b"\n")
        self._pending_cr = b"\r" if printed.endswith(b"\r") and not self._is_over else b""
        return printed.removesuffix(self._pending_cr)

    def close(self) -> None:
        """Stop the script."""
        signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):  # it has no group yet
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._pidfd)
        os.close(self._output)
        self._path.unlink(missing_ok=True)
        _interrupt_machines(self._net)


def _interrupt_machines(net: LabNet) -> None:
    for node in net.values():
        _interrupt(node)


def _interrupt(node: Node) -> None:
    """Return a machine's shell to its prompt: end commands in the foreground, keep those in the background.

    A session may end while a command runs in that shell, which serves the next session too.
    """
    pty_master = node.stdout.fileno()
    for _ in range(3):  # an interrupt between the shell's fork and exec is lost
        os.write(pty_master, b"\x03")
        output = b""
        while select.select([pty_master], [], [], 0 if output.endswith(_PROMPT) else _INTERRUPT_TIMEOUT_S)[0]:
            output += os.read(pty_master, 1 << 16)
        if output.endswith(_PROMPT):
            return


class _CommandLine(CLI):
    """Mininet's command line, with comments and ``exit`` in scripts; a failed command does not end the session."""

    def do_twin(self, line: str) -> None:
        """Give a command to the twin of a switch.

        Usage: twin SWITCH reboot | twin SWITCH disconnect SECONDS
        """
        switch, *words = line.split() or [""]
        command_twin(self.mn, switch, words)

    def onecmd(self, line: str) -> bool | str | None:
        in_script = self.inputFile is not None
        try:
            is_exit = super().onecmd(self.precmd(line) if in_script else line)
        except Exception as error:  # noqa: BLE001 -- Mininet raises bare Exceptions
            sys.stdout.write(f"*** Error: {str(error).strip() or type(error).__name__}\n")
            is_exit = None
        sys.stdout.flush()  # Mininet prints on standard error as well; the order stays
        if is_exit and in_script:
            sys.exit()
        return is_exit


def _run_script(net: LabNet, path: Path, output: int) -> NoReturn:
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    silent_input, _write_end = os.pipe()  # Mininet would pass what it reads here on to the command that runs
    _run_command_line(net, os.fdopen(silent_input), path)


def _run_command_line(net: LabNet, stdin: TextIO, script: Path | None = None) -> NoReturn:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _CommandLine(net, stdin=stdin, script=script and str(script))
    finally:
        sys.stdout.flush()
        os._exit(0)
