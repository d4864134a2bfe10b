# SPDX-License-Identifier: Apache-2.0
"""A whistle whose answer comes while its program stands still, and one that waits in its own machine's queue.

First process of namespaces of its own, as root there. Prints a line of JSON for each.
"""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MS = 10**6
ANSWER_AFTER_S, STOPPED_S = 0.05, 0.3
QUEUED = 8  # packets of 1400 bytes ahead of the whistle, at 112 ms each
RATE = "100kbit"


def whistle(address: str) -> subprocess.Popen[str]:
    """A job that is ready, and sends its one ping at once."""
    argv = [sys.argv[1], "ping"]
    job = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    config = {
        "targets": [{"name": "peer", "address": address}],
        "interval_ns": MS,
        "count": 1,
        "timeout_ns": 20_000 * MS,
        "size_bytes": 56,
        "identifier": 4711,
        "payload": "atoll whistle start",
        "start_at_ns": 0,
    }
    assert job.stdin is not None
    job.stdin.write(json.dumps(config) + "\n")
    job.stdin.flush()
    return job


def reply(job: subprocess.Popen[str]) -> dict[str, Any]:
    """What it says of the answer."""
    assert job.stdout is not None
    return next(line for line in map(json.loads, job.stdout) if line["type"] == "reply")


def answered_while_it_stands_still() -> dict[str, Any]:
    """Loopback's own answers being off, this process gives the answer."""
    Path("/proc/sys/net/ipv4/icmp_echo_ignore_all").write_text("1")
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
        job = whistle("127.0.0.1")
        packet = raw.recv(2000)
        os.kill(job.pid, signal.SIGSTOP)
        time.sleep(ANSWER_AFTER_S)
        message = bytearray(packet[20:])
        message[0], message[2:4] = 0, b"\0\0"  # an echo reply (RFC 792)
        message[2:4] = checksum(message)
        raw.sendto(message, ("127.0.0.1", 0))
        answered_ns = time.time_ns()
        time.sleep(STOPPED_S)
        awake_ns = time.time_ns()
        os.kill(job.pid, signal.SIGCONT)
    return {**reply(job), "answered_ns": answered_ns, "awake_ns": awake_ns}


def queued_before_it_leaves() -> dict[str, Any]:
    """A neighbour's packets fill the queue of the interface by which the whistle leaves."""
    peer = subprocess.Popen(["unshare", "--net", "sleep", "60"])
    while Path(f"/proc/{peer.pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink():
        time.sleep(0.01)
    there = f"nsenter -t {peer.pid} -n"
    script = f"""
        ip link add v0 type veth peer name v1 netns {peer.pid}
        ip address add 10.99.0.1/24 dev v0; ip link set v0 up
        {there} ip address add 10.99.0.2/24 dev v1; {there} ip link set v1 up
        ping -q -c 1 -w 5 10.99.0.2 >/dev/null
        tc qdisc add dev v0 root tbf rate {RATE} burst 1540 limit 100000
    """
    subprocess.run(["sh", "-e", "-c", script], check=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for _ in range(QUEUED):
            udp.sendto(bytes(1400), ("10.99.0.2", 9))
        asked_ns = time.time_ns()
        said = reply(whistle("10.99.0.2"))
    peer.kill()
    return {**said, "asked_ns": asked_ns}


def checksum(message: bytes | bytearray) -> bytes:
    """The Internet checksum (RFC 1071) of an even number of bytes."""
    total = sum(struct.unpack(f">{len(message) // 2}H", message))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack(">H", ~total & 0xFFFF)


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for scene in (queued_before_it_leaves, answered_while_it_stands_still):
        print(json.dumps(scene()), flush=True)
