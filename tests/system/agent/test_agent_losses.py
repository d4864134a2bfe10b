# SPDX-License-Identifier: Apache-2.0
"""What sockets really have no room for is what the agent tells of their host, and of no other."""

import sys
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis.verdict.lost_outside import judge_lost_outside, lost_outside
from atoll_testbed.run.kernel_drops import DropSample, drop_increase
from tests.support.agent_lab import machines

pytestmark = pytest.mark.lab

SENT = 200
CALLS = 5

# Nobody reads and nobody accepts: a receive buffer of the least size, a listen queue for a single connection.
UNREAD = f"""
import socket
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
receiver.bind(("127.0.0.1", 5000))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range({SENT}):
    sender.sendto(bytes(1000), ("127.0.0.1", 5000))
listener = socket.socket()
listener.bind(("127.0.0.1", 5001))
listener.listen(0)
callers = [socket.socket() for _ in range({CALLS})]
for caller in callers:
    caller.setblocking(False)
    caller.connect_ex(("127.0.0.1", 5001))
"""

REPEATED = 3

# Two ends of one connection, and packets that seem to be the caller's, through a raw socket.
CONNECTED = """
import socket, struct
listener = socket.create_server(("127.0.0.1", 5000))
caller = socket.create_connection(("127.0.0.1", 5000))
called, _ = listener.accept()
port = caller.getsockname()[1]

def send(protocol, packet, at, damage=0):
    home = socket.inet_aton("127.0.0.1")
    sums = home + home + struct.pack("!HH", protocol, len(packet)) + packet
    total = sum(struct.unpack(f"!{len(sums) // 2}H", sums))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = (~((total & 0xFFFF) + (total >> 16)) & 0xFFFF) ^ damage
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, protocol)
    raw.sendto(packet[:at] + struct.pack("!H", checksum) + packet[at + 2:], ("127.0.0.1", 0))

def segment(flags):
    return struct.pack("!HHIIBBHHH", port, 5000, 7, 0, 5 << 4, flags, 1000, 0, 0)
"""
SENT_AGAIN = CONNECTED + f"for _ in range({REPEATED}): send(6, segment(2), 16)"
DAMAGED = (
    CONNECTED
    + """
for _ in range(2): send(6, segment(16), 16, damage=1)
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 5001))
send(17, struct.pack("!HHHHI", 5002, 5001, 12, 0, 4711), 6, damage=1)
"""
)


def answer(found: dict[str, Any]) -> list[str]:
    """The caveats on what the hosts' sockets counted."""
    lost = lost_outside({"lost_outside": {**found, "machines": {}}}, ())
    return [finding.text for finding in judge_lost_outside(lost, causes_are_named=False)]


async def test_what_sockets_have_no_room_for_is_told_of_their_host(tmp_path: Path) -> None:
    """Datagrams beyond a receive buffer, connections beyond a listen queue; nothing of a host where all is well."""
    async with machines(tmp_path) as lab:
        hosts = [("full", await lab.add("full"), ["lo"]), ("idle", await lab.add("idle"), ["lo"])]
        full = hosts[0][1]
        await lab.run(full, "ip link set lo up")
        begin = {"here": DropSample(await lab.agent.sample(hosts))}
        await lab.run(full, f"{sys.executable} -c '{UNREAD}'")
        found = drop_increase(begin, {"here": DropSample(await lab.agent.sample(hosts))}, None)
    assert found["uncounted"] == {}
    assert found["hosts"].keys() == {"full"}
    counted = found["hosts"]["full"]
    assert 0 < counted["udp.receive_buffer_errors"] == counted["udp.in_errors"] < SENT
    assert 0 < counted["tcp.listen_drops"] < CALLS
    listening, receiving = answer(found)
    assert "because the listen queue was full (full " in listening
    assert "because a socket's receive buffer was full (full " in receiving


async def test_a_checksum_that_is_wrong_is_damage_and_a_syn_sent_again_is_none(tmp_path: Path) -> None:
    """The kernel counts both as errors: only what is really damaged is told, in the singular where it is one."""
    async with machines(tmp_path) as lab:
        hosts = [("again", await lab.add("again"), ["lo"]), ("wrong", await lab.add("wrong"), ["lo"])]
        for _, netns, _ in hosts:
            await lab.run(netns, "ip link set lo up")
        begin = {"here": DropSample(await lab.agent.sample(hosts))}
        await lab.run(hosts[0][1], f"{sys.executable} -c '{SENT_AGAIN}'")
        await lab.run(hosts[1][1], f"{sys.executable} -c '{DAMAGED}'")
        end = {"here": DropSample(await lab.agent.sample(hosts))}
    errors = [look["here"].sample["hosts"]["again"]["tcp"]["in_errors"] for look in (begin, end)]
    assert errors[1] - errors[0] == REPEATED
    found = drop_increase(begin, end, None)
    assert found["hosts"] == {"wrong": {"tcp.checksum_errors": 2, "udp.checksum_errors": 1, "udp.in_errors": 1}}
    segments, datagrams = answer(found)
    assert segments.startswith("2 TCP segments were discarded because of a wrong checksum (wrong 2): ")
    assert datagrams.startswith("1 datagram was discarded because of a wrong checksum (wrong 1): ")
