# SPDX-License-Identifier: Apache-2.0
"""What sockets really have no room for is what the agent tells of their host, and of no other."""

import sys
from pathlib import Path

import pytest

from atoll.analysis.lost_outside import lost_outside, outside_remarks
from atoll.experiment.lost_outside import Look, risen
from tests.lab.agent_lab import machines

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


async def test_what_sockets_have_no_room_for_is_told_of_their_host(tmp_path: Path) -> None:
    """Datagrams beyond a receive buffer, connections beyond a listen queue; nothing of a host where all is well."""
    async with machines(tmp_path) as lab:
        hosts = [("full", await lab.add("full"), ["lo"]), ("idle", await lab.add("idle"), ["lo"])]
        full = hosts[0][1]
        await lab.run(full, "ip link set lo up")
        begin = {"here": Look(await lab.agent.sample(hosts))}
        await lab.run(full, f"{sys.executable} -c '{UNREAD}'")
        found = risen(begin, {"here": Look(await lab.agent.sample(hosts))}, None)
    assert found["uncounted"] == {}
    assert found["hosts"].keys() == {"full"}
    counted = found["hosts"]["full"]
    assert 0 < counted["udp.receive_buffer_errors"] == counted["udp.in_errors"] < SENT
    assert 0 < counted["tcp.listen_drops"] < CALLS
    listening, receiving = outside_remarks(lost_outside({"lost_outside": {**found, "machines": {}}}), blamed=False)
    assert "the listen queue being full (full " in listening
    assert "no room in a socket's receive buffer (full " in receiving
