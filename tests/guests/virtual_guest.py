# SPDX-License-Identifier: Apache-2.0
"""Run by test_virtual_kernel in the kernel for virtual time: ``python -m tests.guests.virtual_guest WHAT``, clock, say.

Each writes what it found to standard output, as one JSON object.
"""

import ctypes
import json
import mmap
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from itertools import pairwise
from typing import Any

from tests.guests.virtual_link_guest import inside

_PR_SET_TIMERSLACK = 29  # linux/prctl.h
_TCPI_MIN_RTT = 148  # offset in struct tcp_info, linux/tcp.h
_libc = ctypes.CDLL(None)

SLEEP_S = 1000
LOOKS = 4_000_000
SPIN_NS = 20_000_000
TRANSFER_BYTES = 20_000_000

# world --tbf--> router --netem--> island, and back through a netem
_PATH = """
netns add world
netns add router
netns add island
link add name up0 netns world type veth peer name world0 netns router
link add name up0 netns island type veth peer name island0 netns router
-n world addr add 10.0.0.2/24 dev up0
-n router addr add 10.0.0.1/24 dev world0
-n router addr add 10.0.1.1/24 dev island0
-n island addr add 10.0.1.2/24 dev up0
-n world link set up0 up
-n router link set world0 up
-n router link set island0 up
-n island link set up0 up
-n world route add default via 10.0.0.1
-n island route add default via 10.0.1.1
netns exec router sysctl -qw net.ipv4.ip_forward=1
netns exec world ethtool -K up0 tso off gso off
netns exec world tc qdisc add dev up0 root tbf rate 16mbit burst 1540 limit 300000
netns exec router tc qdisc add dev island0 root netem delay 250ms limit 10000
netns exec router tc qdisc add dev world0 root netem delay 250ms limit 10000
"""


def clock() -> dict[str, Any]:
    """A long sleep by the clock, and whatever a seed decides."""
    _libc.prctl(_PR_SET_TIMERSLACK, 1)
    before_ns = time.monotonic_ns()
    time.sleep(SLEEP_S)
    after_ns = time.monotonic_ns()
    child = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True)
    return {
        "began_ns": before_ns,
        "slept_ns": after_ns - before_ns,
        "wall_ns": time.time_ns(),
        "pids": [os.getpid(), int(child.stdout)],
        "random": [os.urandom(16).hex(), str(uuid.uuid4()), hash("a string")],
    }


def looking() -> dict[str, Any]:
    """Looks at both clocks; then a process that spins until an instant, while another sleeps half as long."""
    looks = {
        name: [look() for _ in range(1000)] for name, look in (("monotonic", time.monotonic_ns), ("real", time.time_ns))
    }
    steps = {name: sorted({later - before for before, later in pairwise(each)}) for name, each in looks.items()}
    before_ns = time.monotonic_ns()
    for _ in range(LOOKS - 1):
        time.monotonic_ns()
    looked_ns = time.monotonic_ns() - before_ns
    reader, writer = os.pipe()
    begin_ns = time.monotonic_ns()
    if os.fork() == 0:
        time.sleep(SPIN_NS / 2e9)
        os.write(writer, str(time.monotonic_ns()).encode())
        os._exit(0)
    while (end_ns := time.monotonic_ns()) < begin_ns + SPIN_NS:
        pass
    return {
        "steps_ns": steps,
        "looked_ns": looked_ns,
        "spun_ns": end_ns - begin_ns,
        "slept_ns": int(os.read(reader, 100)) - begin_ns,
    }


def path() -> dict[str, Any]:
    """Pings, then a bulk transfer, through a shaper and a delay of 250 ms each way."""
    for command in _PATH.strip().splitlines():
        subprocess.run(["ip", *command.split()], check=True)
    pings = subprocess.run(
        ["ip", "netns", "exec", "world", "ping", "-c", "5", "10.0.1.2"], capture_output=True, text=True, check=True
    ).stdout
    with inside("island"):
        listener = socket.create_server(("10.0.1.2", 5000))
    with inside("world"):
        sender = socket.create_connection(("10.0.1.2", 5000))
    receiver, _ = listener.accept()
    threading.Thread(target=sender.sendall, args=(bytes(TRANSFER_BYTES),)).start()
    received = 0
    while received < TRANSFER_BYTES:
        received += len(receiver.recv(1 << 16))
    information = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return {
        "pings_ms": [float(rtt) for rtt in re.findall(r"time=([\d.]+) ms", pings)][1:],  # the first waits for ARP
        "min_rtt_us": struct.unpack_from("=I", information, _TCPI_MIN_RTT)[0],
    }


def yielding() -> dict[str, Any]:
    """A process that spins on ``sched_yield`` until another, started after it, has run."""
    flag = mmap.mmap(-1, mmap.PAGESIZE)
    if os.fork() == 0:
        flag[0] = 1
        os._exit(0)
    rounds = 0
    while not flag[0]:
        _libc.sched_yield()
        rounds += 1
    return {"rounds": rounds}


if __name__ == "__main__":
    print(json.dumps({"clock": clock, "look": looking, "path": path, "yield": yielding}[sys.argv[1]]()))
