# SPDX-License-Identifier: Apache-2.0
"""Hosts behind a proxy: ``pep_peer.py serve ADDRESS``, or ``pep_peer.py SCENARIO ADDRESS [NUMBER]`` for a client.

Each port of the server ends connections in its own way. A client prints one line about what it saw.
"""

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import random
import socket
import struct
import sys
import termios
import threading
import time
from collections import Counter

from atoll_core.experiment.flow_sizes import published

PAYLOAD = bytes(range(251)) * 1000  # 251 is prime: no power of two is a period of it
SIZE = 100_000
SIZE_MAX = 3_000_000  # of endings: 99.9 % of the published flows are no larger

DOWNLOAD, DIGEST, RESETTING, RECORDING, TALKING, PATIENT, ENDLESS, VANISHING = range(8000, 8008)
REFUSED, UNREACHABLE = 81, 8010

TCP_REPAIR = 19  # linux/tcp.h: a socket under repair is closed without a word

LINGER_NOT = struct.pack("ii", 1, 0)


def reset(connection: socket.socket) -> None:
    """End a connection by RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
    connection.close()


def read_all(connection: socket.socket) -> tuple[bytes, str]:
    """All that comes, and how it ended."""
    data = bytearray()
    try:
        while piece := connection.recv(1 << 16):
            data += piece
    except OSError as error:
        return bytes(data), errno.errorcode[error.errno or 0]
    return bytes(data), "FIN"


def body(size: int) -> bytes:
    """The payload of so many bytes."""
    return (PAYLOAD * (size // len(PAYLOAD) + 1))[:size]


# The server


def asked(connection: socket.socket) -> bytes:
    """The payload of the size that a client has asked for, or of the usual one."""
    said = connection.recv(100)
    return body(int(said)) if said.isdigit() else PAYLOAD[:SIZE]


def acknowledged(connection: socket.socket) -> None:
    """Wait until everything is (tcp(7), SIOCOUTQ)."""
    while fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)) != bytes(4):
        time.sleep(0.05)


def download(connection: socket.socket) -> None:
    """The server closes first, and at once."""
    connection.sendall(asked(connection))
    connection.shutdown(socket.SHUT_WR)
    read_all(connection)
    connection.close()


def digest(connection: socket.socket) -> None:
    """The client half-closes first."""
    data, how = read_all(connection)
    peer = "{}:{}".format(*connection.getpeername())
    connection.sendall(json.dumps([len(data), hashlib.sha256(data).hexdigest(), how, peer]).encode())
    connection.close()


def resetting(connection: socket.socket) -> None:
    """RST after some data."""
    connection.sendall(asked(connection))
    acknowledged(connection)  # a kernel discards what it has not sent before a RST
    reset(connection)


recorded: list[tuple[int, str, str]] = []


def recording(connection: socket.socket) -> None:
    """Remember what came, how it ended and its first line; a connection that says nothing asks for that."""
    data, how = read_all(connection)
    if data:
        recorded.append((len(data), how, data[:20].partition(b"\n")[0].decode(errors="replace")))
    else:
        connection.sendall(json.dumps(recorded).encode())
    connection.close()


def talking(connection: socket.socket) -> None:
    """Talk on after the client's FIN."""
    data, _ = read_all(connection)
    for _ in range(5):
        time.sleep(0.1)
        connection.sendall(data)
    connection.close()


def patient(connection: socket.socket) -> None:
    """Say hello, wait for the end, and report it."""
    connection.sendall(b"hello")
    _, how = read_all(connection)
    print(json.dumps({"type": "ended", "how": how}), flush=True)
    connection.close()


def endless(connection: socket.socket) -> None:
    """Send until the client is gone."""
    with contextlib.suppress(OSError):
        while True:
            connection.sendall(PAYLOAD)


def vanishing(connection: socket.socket) -> None:
    """Be gone after some data, without FIN or RST; a packet filter has to keep the kernel from answering for it."""
    connection.sendall(asked(connection))
    acknowledged(connection)
    connection.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    connection.close()


def serve(address: str) -> None:
    """Serve all ports."""
    os.environ["PYTHONUNBUFFERED"] = "1"
    threading.stack_size(1 << 18)

    def accept(listener: socket.socket, serve_one: object) -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve_one, args=(connection,), daemon=True).start()  # type: ignore[arg-type]

    waits = {
        DOWNLOAD: download,
        DIGEST: digest,
        RESETTING: resetting,
        RECORDING: recording,
        TALKING: talking,
        PATIENT: patient,
        ENDLESS: endless,
        VANISHING: vanishing,
    }
    for port, serve_one in waits.items():
        listener = socket.create_server((address, port), backlog=4096)
        threading.Thread(target=accept, args=(listener, serve_one), daemon=True).start()
    print('{"type":"ready"}', flush=True)
    threading.Event().wait()


# Clients


def connected(address: str, port: int, own_port: int = 0) -> socket.socket:
    """A connection to the server."""
    return socket.create_connection((address, port), 30, ("10.20.0.1", own_port) if own_port else None)


def addresses(address: str) -> object:
    """What the server sees of a client with a port of its own choice, after a megabyte and a half-close."""
    data = PAYLOAD * 4
    with connected(address, DIGEST, 543) as client:
        peer = client.getpeername()
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        count, found, how, seen = json.loads(client.makefile().read())
    return [peer, count == len(data), found == hashlib.sha256(data).hexdigest(), how, seen]


def attempt(address: str, port: str) -> object:
    """The error of a connection, or what comes of it."""
    try:
        with connected(address, int(port)) as client:
            return ["connected", read_all(client)[1]]
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))


def resets(address: str) -> object:
    """The server resets a connection."""
    with connected(address, RESETTING) as client:
        client.sendall(b"go")
        data, how = read_all(client)
    return [data == PAYLOAD[:SIZE], how]


def client_resets(address: str, seconds: str = "0.5") -> object:
    """What the server has seen of a client that sends and resets, so long afterwards."""
    client = connected(address, RECORDING)
    client.sendall(PAYLOAD[:1000])
    time.sleep(0.3)
    reset(client)
    time.sleep(float(seconds))
    return [each[:2] for each in seen(address)]


def half_closed(address: str) -> object:
    """The client has closed its half long before the server ends."""
    with connected(address, TALKING) as client:
        client.sendall(b"hello")
        client.shutdown(socket.SHUT_WR)
        return [part.decode() if isinstance(part, bytes) else part for part in read_all(client)]


def waiting(address: str, seconds: str = "0") -> object:
    """Connect, and report how the connection ends; the client says something after ``seconds``."""
    with connected(address, PATIENT) as client:
        assert client.recv(5) == b"hello"
        print(json.dumps({"type": "ready"}), flush=True)
        if wait_s := float(seconds):
            time.sleep(wait_s)
            client.sendall(b"still there?")
        return read_all(client)[1]


def stalled(address: str) -> object:
    """Ask for an endless download, and never read."""
    with connected(address, ENDLESS):
        print(json.dumps({"type": "ready"}), flush=True)
        time.sleep(3600)
    return None


async def _fetch(address: str) -> str:
    reader, writer = await asyncio.open_connection(address, DOWNLOAD)
    try:
        writer.write(b"go")
        data = await reader.read(-1)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return "whole" if data == PAYLOAD[:SIZE] else f"{len(data)} bytes"


async def _fetches(address: str, count: int) -> dict[str, int]:
    found = await asyncio.gather(*(_fetch(address) for _ in range(count)))
    return {what: found.count(what) for what in sorted(set(found))}


def downloads(address: str, count: str) -> object:
    """Downloads at the same time, whose server closes first."""
    return asyncio.run(_fetches(address, int(count)))


async def _received(reader: asyncio.StreamReader) -> tuple[bytes, str]:
    data = bytearray()
    try:
        while piece := await reader.read(1 << 16):
            data += piece
    except OSError as error:
        return bytes(data), errno.errorcode[error.errno or 0]
    return bytes(data), "FIN"


RIGHT, WRONG, MISSING = "right", "another ending", "bytes missing"
GIVEN_UP_S = 60


async def _ended(address: str, port: int, size: int, number: int) -> str:
    """How a connection to the port of a server has ended, ``size`` bytes being sent; what the server saw is unknown."""
    refusals = {REFUSED: "ECONNREFUSED", UNREACHABLE: "EHOSTUNREACH"}
    try:
        reader, writer = await asyncio.open_connection(address, port)
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0)
        return RIGHT if name == refusals.get(port) else f"{WRONG} ({name})"
    own = writer.transport.get_extra_info("socket")
    try:
        if port == DIGEST:
            writer.write(body(size))
            writer.write_eof()
            said, _ = await _received(reader)
            count, found, how, _ = json.loads(said or "[0, 0, 0, 0]")
            if (count, found) != (size, hashlib.sha256(body(size)).hexdigest()):
                return MISSING
            return RIGHT if how == "FIN" else f"{WRONG} ({how})"
        if port == RECORDING:
            writer.transport.set_write_buffer_limits(0)
            writer.write(f"{number}\n".encode() + body(size))
            await writer.drain()  # all is in the kernel
            while fcntl.ioctl(own.fileno(), termios.TIOCOUTQ, bytes(4)) != bytes(4):  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.05)
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
            writer.transport.abort()
            return RIGHT
        writer.write(str(size).encode())
        data, how = await _received(reader)
        if port in refusals:
            return f"{WRONG} (accepted)"
        if how != ("FIN" if port == DOWNLOAD else "ECONNRESET"):
            return f"{WRONG} ({how})"
        return RIGHT if data == body(size) else MISSING
    except OSError as error:
        return f"{WRONG} ({errno.errorcode.get(error.errno or 0)})"
    except ValueError:
        return MISSING
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


ENDINGS = {
    "server first": DOWNLOAD,
    "client first": DIGEST,
    "server resets": RESETTING,
    "client resets": RECORDING,
    "vanished": VANISHING,
    "refused": REFUSED,
    "unreachable": UNREACHABLE,
}


async def _endings(address: str, sizes: dict[int, int], at_once: int) -> dict[str, Counter[str]]:
    slots = asyncio.Semaphore(at_once)
    found = {name: Counter[str]() for name in ENDINGS}

    async def one(number: int) -> None:
        name = list(ENDINGS)[number % len(ENDINGS)]
        async with slots:
            try:
                how = await asyncio.wait_for(_ended(address, ENDINGS[name], sizes[number], number), GIVEN_UP_S)
            except TimeoutError:
                how = f"{WRONG} (none)"
            found[name][how] += 1

    await asyncio.gather(*(one(number) for number in sizes))
    return found


def endings(address: str, count: str, at_once: str, first: str = "0") -> object:
    """Connections with every ending in turn, of published sizes: of each ending, how many were right and how many not.

    And what was sent by connections that the client has reset, by their numbers, which begin with ``first``: only the
    server knows whether it came.
    """
    drawn = random.Random(int(first))
    numbers = range(int(first), int(first) + int(count))
    sizes = {number: min(round(published().quantile(drawn.random())), SIZE_MAX) for number in numbers}
    found = asyncio.run(_endings(address, sizes, int(at_once)))
    time.sleep(float(os.environ.get("SETTLING_S", "5")))  # a lost RST is noticed later
    step = list(ENDINGS).index("client resets")
    resets = {number: size for number, size in sizes.items() if number % len(ENDINGS) == step}
    return {"endings": found, "sent": {number: len(f"{number}\n") + size for number, size in resets.items()}}


def seen(address: str) -> list[tuple[int, str, str]]:
    """What the server has recorded."""
    with connected(address, RECORDING) as client:
        client.shutdown(socket.SHUT_WR)
        return [(size, how, first) for size, how, first in json.loads(client.makefile().read())]


def idle(address: str, count: str) -> object:
    """So many connections that have said hello and wait."""
    held: list[socket.socket] = []
    for _ in range(int(count)):
        client = connected(address, PATIENT)
        assert client.recv(5) == b"hello"
        held.append(client)
    print(json.dumps({"type": "ready"}), flush=True)
    time.sleep(3600)
    return None


def flood(address: str, port: str, count: str) -> object:
    """First segments without any interest in an answer: the kernel, which has no socket for it, resets."""
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
    raw.bind(("10.20.0.1", 0))
    source, target = socket.inet_aton("10.20.0.1"), socket.inet_aton(address)
    for number in range(int(count)):
        segment = struct.pack("!HHIIBBHHH", 10000 + number, int(port), number, 0, 5 << 4, 2, 65535, 0, 0)
        pseudo = source + target + struct.pack("!BBH", 0, 6, len(segment))
        total = sum(struct.unpack("!16H", pseudo + segment))
        total = (total >> 16) + (total & 0xFFFF)
        checksum = ~(total + (total >> 16)) & 0xFFFF
        raw.sendto(segment[:16] + struct.pack("!H", checksum) + segment[18:], (address, 0))
    return "sent"


def datagram(address: str) -> object:
    """The answer to a datagram for a port without a socket."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(10)
        client.connect((address, 9))
        client.send(b"anybody?")
        try:
            client.recv(1)
        except OSError as error:
            return errno.errorcode[error.errno or 0]
    return "answered"


SCENARIOS = (
    addresses,
    attempt,
    resets,
    client_resets,
    half_closed,
    waiting,
    stalled,
    downloads,
    endings,
    seen,
    idle,
    flood,
    datagram,
)

if __name__ == "__main__":
    role, *words = sys.argv[1:]
    if role == "serve":
        serve(*words)
    else:
        scenario = next(each for each in SCENARIOS if each.__name__ == role)
        print(json.dumps(scenario(*words)))
