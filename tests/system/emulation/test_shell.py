# SPDX-License-Identifier: Apache-2.0
"""`atoll shell`: piped lines are a script, a terminal is a conversation, and neither ever waits for nothing."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.support.sandbox import ATOLL, GEO, ROOT, Sandbox

pytestmark = pytest.mark.lab

PROMPT = b"mininet> "
BUSY = "another shell is open on this lab\n"


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A machine with the demo's lab up. Tests that end the lab bring it up again."""
    with Sandbox(tmp_path_factory.mktemp("shell")) as box:
        bring_up(box)
        yield box


def bring_up(sandbox: Sandbox) -> None:
    up = sandbox.run(ATOLL, "up", GEO, limit_s=100)
    assert up.returncode == 0, up.stderr


def piped(sandbox: Sandbox, script: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        sandbox.command([ATOLL, "shell"]), input=script, capture_output=True, timeout=100, check=False
    )


class Terminal:
    """`atoll shell` at a terminal."""

    def __init__(self, sandbox: Sandbox, columns: int, rows: int) -> None:
        self._master, slave = pty.openpty()
        self.resize(columns, rows)
        self._client = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *sandbox.command([ATOLL, "shell"])],
            stdin=slave,
            stdout=slave,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(slave)
        self._shown = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._client.poll() is None:
            self._client.kill()
            self._client.communicate(timeout=100)
        os.close(self._master)  # hangs up on what is left

    def resize(self, columns: int, rows: int) -> None:
        """As a window does: the kernel sends SIGWINCH to the foreground."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def until(self, words: bytes) -> None:
        """Read on up to these words."""
        deadline = time.monotonic() + 20
        while words not in self._shown:
            ready, _, _ = select.select([self._master], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"no {words!r} in {self._shown!r}"
            self._shown += os.read(self._master, 1 << 16)
        self._shown = self._shown.partition(words)[2]

    def end(self) -> tuple[int, str]:
        """Wait for the client; its exit code and standard error."""
        _, errors = self._client.communicate(timeout=100)
        return self._client.returncode, errors


def test_piped_lines_run_one_after_the_other(sandbox: Sandbox) -> None:
    """Each command gets its time and none the lines after it; no prompt, no echo, no carriage return."""
    done = piped(sandbox, b"ws ping -c 2 -i 0.2 10.20.1.1\nw1 ping -c 2 -i 0.2 10.20.1.1\nw2 echo the end\n")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"2 packets transmitted, 2 received") == 2
    assert done.stdout.startswith(b"PING")
    assert done.stdout.endswith(b"\nthe end\n")
    assert b"\r" not in done.stdout
    assert b"mininet>" not in done.stdout


def test_a_script_goes_on_after_a_line_that_fails_and_ends_at_exit(sandbox: Sandbox) -> None:
    """Comments are none of its commands; a command that reads finds no input instead of waiting for it."""
    done = piped(
        sandbox,
        b"# a comment\nnosuch thing\nx nosuch\nsh cat\nsh echo on\nexit\nsh echo off\n",
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Unknown command: nosuch thing" in done.stdout
    assert b"*** Error: 'nosuch'\n" in done.stdout
    assert b"comment" not in done.stdout
    assert done.stdout.endswith(b"on\n")


def test_a_script_ends_with_its_last_line_whatever_it_left_running(sandbox: Sandbox) -> None:
    """A process in the background that holds the script's output does not hold the client, nor the next script."""
    started = b"sh until pgrep -fx 'sleep 1000' >/dev/null; do sleep 0.05; done\n"
    done = piped(sandbox, b"sh setsid sleep 1000 &\n" + started + b"sh printf unfinished")
    assert (done.returncode, done.stdout) == (0, b"unfinished")
    left = sandbox.find("sleep", "1000")
    assert left is not None
    sandbox.kill(left)
    assert piped(sandbox, b"").returncode == 0


def test_a_terminal_is_passed_through_and_a_second_shell_refused(sandbox: Sandbox) -> None:
    """The window's size and its changes too. The second shell, piped or not, is told so in one line."""
    with Terminal(sandbox, 91, 17) as first:
        first.until(PROMPT)
        first.type(b"sh stty size\n")
        first.until(b"17 91")
        first.resize(132, 43)
        first.type(b"sh until stty size | grep -x '43 132'; do sleep 0.1; done\n")
        first.until(b"43 132\r\n")
        first.until(PROMPT)

        refused = piped(sandbox, b"nodes\n")
        assert (refused.returncode, refused.stdout, refused.stderr.decode()) == (1, b"", BUSY)
        with Terminal(sandbox, 80, 24) as second:
            assert second.end() == (1, BUSY)

        first.type(b"\x04")
        assert first.end() == (0, "")
    assert piped(sandbox, b"sh echo free\n").stdout == b"free\n"


def test_an_interrupted_script_frees_the_machine_it_ran_on(sandbox: Sandbox) -> None:
    """Ctrl-C: the client ends, its command with it, and the next script finds the machine's shell at its prompt."""
    client = subprocess.Popen(
        sandbox.command([ATOLL, "shell"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert client.stdin is not None
    client.stdin.write(b"w1 sleep 2000\nsh echo not reached\n")
    client.stdin.close()
    pid = wait_for(sandbox, "sleep", "2000")
    shell = sandbox.find("bin/atoll", "shell")
    assert shell is not None
    sandbox.kill(shell, signal.SIGINT)
    assert client.wait(20) != 0
    deadline = time.monotonic() + 20
    while (again := piped(sandbox, b"w1 echo free\n")).returncode != 0:
        assert again.stderr.decode() == BUSY
        assert time.monotonic() < deadline
    assert again.stdout == b"free\n"
    assert pid not in sandbox.processes()


def wait_for(sandbox: Sandbox, *words: str) -> int:
    """The pid of a process with these words, once it is there."""
    deadline = time.monotonic() + 20
    while (pid := sandbox.find(*words)) is None:
        assert time.monotonic() < deadline, f"no {words}"
        time.sleep(0.05)
    return pid


@pytest.mark.parametrize(
    ("victim", "said"),
    [
        (("ovs-vswitchd",), "the shell ended with the lab: ovs-vswitchd ended (signal 9)"),
        (("-m", "atoll_daemon"), "the daemon died"),
    ],
)
def test_the_end_of_the_lab_ends_a_shell(sandbox: Sandbox, victim: tuple[str, ...], said: str) -> None:
    """`kill -9` under an open shell: one line that says so, exit code 1, at once."""
    if sandbox.find("atoll_emulation.mininet_lab.ns_init") is None:
        bring_up(sandbox)
    with Terminal(sandbox, 80, 24) as shell:
        shell.until(PROMPT)
        pid = sandbox.find(*victim)
        assert pid is not None
        sandbox.kill(pid)
        code, errors = shell.end()
    assert code == 1
    assert errors.startswith(said), errors
    assert errors.count("\n") == 1
    sandbox.wait_clean()
    assert piped(sandbox, b"nodes\n").stderr == b"no lab is up; `atoll up LAB` starts one\n"


# What the lab's own /run would hide


def test_a_runs_directory_below_run_is_refused(sandbox: Sandbox) -> None:
    done = sandbox.run(ATOLL, "run", GEO, "--runs", "/var/run/atoll-runs", limit_s=100)
    assert done.returncode == 2
    assert done.stderr.startswith("/var/run/atoll-runs: the lab has its own /run")
    assert done.stderr.count("\n") == 1


def test_a_runs_directory_that_cannot_be_made_is_refused_before_a_lab_comes_up(sandbox: Sandbox) -> None:
    (sandbox.directory / "file").touch()
    done = sandbox.run(ATOLL, "run", GEO, "--runs", "file/runs", limit_s=100)
    assert done.returncode == 2
    assert done.stderr.startswith("file/runs: cannot be written (Not a directory)")
    assert done.stderr.count("\n") == 1


def test_an_installation_below_run_is_refused(tmp_path: Path) -> None:
    setup = f"mount -t tmpfs run /run && mkdir /run/atoll && mount --bind {ROOT} /run/atoll"
    with Sandbox(tmp_path, setup=setup) as below:
        done = below.run("/run/atoll/.venv/bin/python", "-m", "atoll_cli.main", "up", GEO, limit_s=100)
        assert done.returncode == 1
        assert done.stderr.startswith("/run/atoll/.venv: the lab has its own /run")
        assert done.stderr.count("\n") == 1
        assert below.traces() == []
