# SPDX-License-Identifier: Apache-2.0
"""Other users of this machine: one exhausts the daemon, one takes its name.

Each is a process of `nobody`, so these tests take root.
"""

import asyncio
import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from atoll_core.errors import LabError
from atoll_core.platforms import HARDWARE, LabTarget
from atoll_daemon import socket_lock
from atoll_daemon.client import connected, wait_until_ended
from atoll_daemon.http import tcp_listener
from atoll_daemon.lab_daemon import LabDaemon
from atoll_daemon.replays.watch_server import Upstream
from atoll_daemon.server import Server
from atoll_daemon.socket_lock import bind_daemon_socket, daemon_holder, socket_name

NOBODY = 65534

TARGET = LabTarget(HARDWARE, Path(f"/nowhere/{os.getpid()}/rack.yaml"))
"""A lab of this process: its daemons meet no others."""

DAEMON = [sys.executable, "-m", "atoll_daemon", "--inventory", str(TARGET.inventory)]

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="to become another user takes root"), pytest.mark.long]

# As many connections as it can have, none of which ever asks for anything; told on a line once they are there.
_EXHAUSTING = """
import resource, socket, sys, time
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = []
while True:
    try:
        held.append(socket.socket(socket.AF_UNIX))
        held[-1].settimeout(1)
        held[-1].connect("\\0" + sys.argv[1][1:])
    except OSError:
        time.sleep(0.001)
    if len(held) == 1500:
        print(len(held), flush=True)
        held = held[1000:]
"""

# Binds the daemon's name and notes every byte that it is sent.
_SITTING = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind("\\0" + sys.argv[1][1:])
listener.listen(64)
print("held", flush=True)
while True:
    connection, _ = listener.accept()
    connection.settimeout(1)
    try:
        told = connection.recv(65536)
    except OSError:
        continue
    if told:
        print("told " + repr(told), flush=True)
        connection.send(b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: 2\\r\\n\\r\\n{}")
"""


@pytest.fixture
async def daemon() -> AsyncGenerator[LabDaemon]:
    """A daemon of ours, without a lab."""
    listener = bind_daemon_socket(TARGET)
    made = LabDaemon(TARGET, for_run=False)
    serving = asyncio.create_task(Server(made).serve(listener))
    yield made
    made.end.set()
    await serving


@contextmanager
def as_nobody(script: str, *words: str) -> Generator["subprocess.Popen[str]"]:
    """A Python program of user `nobody`."""
    command = [sys.executable, "-I", "-c", script, *words]
    process = subprocess.Popen(command, user=NOBODY, group=NOBODY, extra_groups=[], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def answered() -> bool:
    """Whether the daemon answers its owner."""
    async with connected(TARGET) as client:
        return client is not None and "busy" in await client.status()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return (await asyncio.to_thread(process.stdout.readline)).strip()


async def assert_heard_nothing(process: "subprocess.Popen[str]") -> None:
    """Kill a process that prints what it is sent: it has printed no more than its first line."""
    await asyncio.sleep(0.3)
    process.kill()
    assert process.stdout is not None
    assert process.stdout.read() == ""


async def test_a_plain_user_cannot_exhaust_the_daemon(daemon: LabDaemon) -> None:
    """Thousands of connections take no descriptor of the daemon's, and its owner is answered meanwhile."""
    before = descriptors()
    with as_nobody(_EXHAUSTING, socket_name(TARGET)) as attacker:
        assert await first_line(attacker) == "1500"
        assert descriptors() < before + 5 * socket_lock.LISTEN_BACKLOG
        for _ in range(20):
            assert await asyncio.to_thread(asyncio.run, answered())  # in a loop of its own, as a verb is
    while descriptors() > before + 2:  # noqa: ASYNC110 - the daemon closes what has ended
        await asyncio.sleep(0.01)


async def test_a_foreign_connection_is_closed_before_it_asks(daemon: LabDaemon) -> None:
    script = """
import socket, sys
s = socket.socket(socket.AF_UNIX); s.settimeout(60); s.connect("\\0" + sys.argv[1][1:])
try: print("closed", s.recv(1))
except ConnectionResetError: print("closed", b"")
"""
    with as_nobody(script, socket_name(TARGET)) as foreign:
        assert await first_line(foreign) == "closed b''"


async def test_own_connections_are_few_and_ask_soon(daemon: LabDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(tcp_listener, "FIRST_REQUEST_TIMEOUT_S", 0.1)
        reader, writer = await asyncio.open_unix_connection(socket_lock.socket_address(TARGET))
        assert await reader.read() == b""
        writer.close()
    monkeypatch.setattr(tcp_listener, "MOST_LOCAL_CONNECTIONS", 3)
    idle = [await asyncio.open_unix_connection(socket_lock.socket_address(TARGET)) for _ in range(5)]
    closed = [asyncio.create_task(reader.read()) for reader, _ in idle]
    await asyncio.wait(closed[3:])
    assert not any(task.done() for task in closed[:3])
    for _, writer in idle:
        writer.close()
    await asyncio.wait(closed)


async def test_nothing_is_sent_to_another_users_process() -> None:
    """Neither the token nor the first request: root's commands see first who holds the daemon's name."""
    with as_nobody(_SITTING, socket_name(TARGET)) as sitting:
        assert await first_line(sitting) == "held"
        holder = daemon_holder(TARGET)
        assert holder is not None
        assert holder[1] == NOBODY
        with pytest.raises(LabError, match=rf"nobody's process {sitting.pid}; .*atoll sent nothing to it"):
            async with connected(TARGET):
                pass
        upstream = Upstream(TARGET)
        assert await upstream.get("/v1/status") is None
        await upstream.close()
        await assert_heard_nothing(sitting)


async def test_each_connection_is_checked_not_only_the_first(
    daemon: LabDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon ends between two requests, and another user takes its name: the token is not sent there."""
    async with connected(TARGET) as client:
        assert client is not None
        await client.status()
        daemon.end.set()
        await wait_until_ended(TARGET, os.getpid())
        for _ in range(2):  # the connection that has ended, then a new one
            with pytest.raises(aiohttp.ClientError):
                await client.status()
        with as_nobody(_SITTING, socket_name(TARGET)) as sitting:
            assert await first_line(sitting) == "held"
            with pytest.raises(LabError, match="atoll sent nothing to it"):
                await client.listen("127.0.0.1:0", "a-token-that-nobody-may-have", None)
            await assert_heard_nothing(sitting)


async def test_a_full_queue_of_connections_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that does not wait is refused then, and the daemon would seem not to be there."""
    monkeypatch.setattr(socket_lock, "LISTEN_BACKLOG", 0)
    listener = bind_daemon_socket(TARGET)
    waiting = socket.socket(socket.AF_UNIX)
    waiting.connect(socket_lock.socket_address(TARGET))
    held = asyncio.create_task(asyncio.to_thread(daemon_holder, TARGET))
    await asyncio.sleep(0.2)
    assert not held.done()
    listener.accept()[0].close()
    assert await held == (os.getpid(), 0)
    waiting.close()
    listener.close()


def refusal_of_nobody() -> str:
    """What a verb of user `nobody` says of the daemon."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            asyncio.run(answered())
        except LabError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


def test_a_plain_user_reads_that_the_lab_is_roots() -> None:
    daemon = subprocess.Popen(DAEMON, stdout=subprocess.PIPE)
    try:
        assert daemon.stdout is not None
        daemon.stdout.readline()
        belongs = f"is up and belongs to root (process {daemon.pid}); only root can use it"
        assert refusal_of_nobody() == f"{TARGET} {belongs}"
    finally:
        daemon.terminate()
        daemon.communicate(timeout=60)


def test_a_process_of_root_that_is_no_daemon_is_not_called_one() -> None:
    listener = bind_daemon_socket(TARGET)

    def close_each() -> None:
        with contextlib.suppress(OSError):
            while True:
                listener.accept()[0].close()

    closing = threading.Thread(target=close_each, daemon=True)
    closing.start()
    try:
        assert refusal_of_nobody().endswith(
            f"root's process {os.getpid()} holds the lock but does not answer like a daemon"
        )
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        closing.join()
        listener.close()


def test_the_daemon_has_descriptors_for_all_that_it_serves() -> None:
    soft = 256
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    daemon = subprocess.Popen(
        DAEMON,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),  # noqa: PLW1509 - one thread here
    )
    try:
        assert daemon.stdout is not None
        assert json.loads(daemon.stdout.readline())["type"] == "ready"
        assert resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)[0] == min(1 << 16, hard)
    finally:
        daemon.terminate()
        daemon.communicate(timeout=60)
