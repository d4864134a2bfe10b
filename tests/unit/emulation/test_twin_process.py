# SPDX-License-Identifier: Apache-2.0
"""The process of a twin that somebody starts by hand ends with the process that started it."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

LIMIT_S = 60.0
# Starts a twin, prints its process id, and waits: the parent that is killed.
PARENT = """
import subprocess, sys, time
twin = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
print(twin.pid, flush=True)
time.sleep(600)
"""


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def twin(port: int) -> list[str]:
    return [sys.executable, "-m", "atoll_emulation.twin", "--driver", "procurve-v2", "--listen", str(port)]


def wait_for_port(port: int) -> None:
    """Wait until the twin listens."""
    deadline_s = time.monotonic() + LIMIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < deadline_s, "the twin does not listen"
            time.sleep(0.05)
        else:
            return


@contextlib.contextmanager
def running(argv: list[str], stdin: int) -> Generator["subprocess.Popen[str]"]:
    """A process that is gone afterwards."""
    with subprocess.Popen(argv, stdin=stdin, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_twin_ends_when_its_standard_input_does() -> None:
    port = unused_port()
    with running(twin(port), subprocess.PIPE) as process:
        wait_for_port(port)
        assert process.poll() is None
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(LIMIT_S) == 0


def test_a_twin_ends_when_its_parent_is_killed() -> None:
    port = unused_port()
    with running([sys.executable, "-c", PARENT, *twin(port)], subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        wait_for_port(port)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        deadline_s = time.monotonic() + LIMIT_S
        while Path(f"/proc/{pid}").exists() and not is_zombie(pid):
            if time.monotonic() > deadline_s:
                os.kill(pid, signal.SIGKILL)
                pytest.fail("the twin outlived its parent")
            time.sleep(0.05)


def is_zombie(pid: int) -> bool:
    """Whether it has ended, and whoever inherited it has not noticed yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_twin_without_a_pipe_for_its_input_stays() -> None:
    """In the background of a shell, or with /dev/null, nothing says that it should end."""
    port = unused_port()
    with running(twin(port), subprocess.DEVNULL) as process:
        wait_for_port(port)
        time.sleep(0.5)
        assert process.poll() is None
