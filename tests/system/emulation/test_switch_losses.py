# SPDX-License-Identifier: Apache-2.0
"""Frames for which Open vSwitch comes too late are what the lab tells of its ports: all of them, and nobody else's."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from atoll_core.codec import from_json
from atoll_core.events.event_bus import EventBus
from atoll_core.lab.network import Network
from atoll_core.lab.port_ref import PortRef
from atoll_core.metrics.metrics_schema import EMULATION
from atoll_emulation.mininet_lab.emulated_lab import EmulatedLab
from atoll_emulation.mininet_lab.port_names import port_interface_names
from atoll_emulation.this_machine.packet_sockets import PacketSocketCounters
from atoll_testbed.run.kernel_drops import DropSample, drop_increase
from tests.support.sandbox import ROOT

pytestmark = pytest.mark.lab

FRAME_BYTES = 1514
DAEMON = "$(cat /run/openvswitch/ovs-vswitchd.pid)"

# Full size, no tag: tagged frames that no VLAN interface takes are among an interface's rx_dropped, whoever got them.
TRAIN = """
import socket, sys
port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
port.bind(("w1-eth0", 0))
for _ in range(int(sys.argv[1])):
    port.send(bytes.fromhex("02000000ff0202000000000188b5") + bytes(1500))
"""

# A socket on the switch's port that is not the switch's, and nobody reads: it loses what does not fit, too.
SPECTATOR = """
import socket, sys
idle = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
idle.bind(("s1-eth1", 3))
print("ready", flush=True)
sys.stdin.read()
"""


@asynccontextmanager
async def lab_of_two() -> AsyncGenerator[tuple[Network, EmulatedLab]]:
    """The contract's example, w1 and i1 on a switch, which passes on what w1 sends."""
    first = (ROOT / "tests" / "data" / "contract" / "lab-init.jsonl").read_text().splitlines()[1]
    network = from_json(Network, json.loads(first)["message"]["network"])
    lab = await EmulatedLab.begin(network, EventBus())
    await lab.complete()
    try:
        await inside(lab, "ovs-ofctl -O OpenFlow13 add-flow s1 in_port=1,actions=output:2")
        yield network, lab
    finally:
        await lab.stop()


async def inside(lab: EmulatedLab, command: str, machine: str | None = None) -> str:
    """Output of a shell command in the lab, where the switches are or on a machine."""
    where = ["nsenter", f"--net=/proc/{lab.hosts[machine]}/ns/net", "--"] if machine else []
    started = await asyncio.create_subprocess_exec(
        *(*lab.enter(), *where, "sh", "-c", command), stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        said, _ = await started.communicate()
    assert started.returncode == 0, command
    return said.decode()


async def counted(lab: EmulatedLab, interface: str, counter: str, machine: str | None = None) -> int:
    """What an interface counts (/proc shows the counters of the namespace that is looked from)."""
    (link,) = json.loads(await inside(lab, f"ip -json -statistics link show {interface}", machine))
    direction, _, name = counter.partition("_")
    return link["stats64"][direction][name]


async def looked(lab: EmulatedLab, network: Network) -> dict[PortRef, PacketSocketCounters]:
    """The lab's sockets by port; there are those of the ports and no other."""
    names = port_interface_names(network)
    sockets = await lab.packet_sockets()
    assert sockets.keys() == set(names.values())
    return {port: sockets[name] for port, name in names.items()}


def enough(ports: dict[PortRef, PacketSocketCounters]) -> tuple[int, int]:
    """How many frames a socket of this machine holds at most, and more than twice as many: those to be sent.

    A frame takes more of a socket's buffer than its own bytes.
    """
    assert {one.receive_buffer_bytes for one in ports.values()} == {4 << 20}, "whatever net.core.rmem_max allows"
    held = (4 << 20) // FRAME_BYTES
    return held, max(5000, 2 * held)


async def accounts(
    lab: EmulatedLab, network: Network, sent: int
) -> tuple[int, dict[PortRef, PacketSocketCounters], int]:
    """What became of the frames that w1 has sent, once it is known of all: received, counted by port, lost on cables.

    Nobody else sends anything in this lab. What is found after 30 s is told all the same.
    """
    deadline = time.monotonic() + 30
    before, now = -1, 0
    while True:
        received = await counted(lab, "i1-eth0", "rx_packets", "i1")
        ports = await looked(lab, network)
        on_cables = await counted(lab, "w1-eth0", "tx_dropped", "w1") + await counted(lab, "s1-eth2", "tx_dropped")
        before, now = now, received + sum(one.dropped_packets for one in ports.values()) + on_cables
        if (now >= sent and now == before) or time.monotonic() > deadline:
            return received, ports, on_cables
        await asyncio.sleep(0.3)


async def test_what_a_stopped_switch_has_no_room_for_is_counted_to_the_frame() -> None:
    """Its socket holds what fits into its buffer; the frames sent are those received and those counted."""
    async with lab_of_two() as (network, lab):
        if lab.datapath == "kernel":  # switches packets itself: there are no sockets that could lose any
            assert await lab.packet_sockets() == {}
            return
        begin = await looked(lab, network)
        held, sent = enough(begin)
        await inside(lab, f"kill -STOP {DAEMON}")
        await inside(lab, f"{sys.executable} -c '{TRAIN}' {sent}", "w1")
        await inside(lab, f"kill -CONT {DAEMON}")
        received, end, on_cables = await accounts(lab, network, sent)
        as_received = await counted(lab, "s1-eth1", "rx_packets")
        as_dropped = await counted(lab, "s1-eth1", "rx_dropped")

    sample = {"machine": {"backlog_dropped_packets": 0}, "hosts": {}, "unread": []}
    found = drop_increase(
        {EMULATION: DropSample(sample, ports=begin)}, {EMULATION: DropSample(sample, ports=end)}, None
    )
    lost = found["ports"].pop("s1/1")["dropped_packets"]
    assert found["ports"] == {}, "what went out at the other port was not lost there"
    assert received + lost + on_cables == sent
    assert 0 < received <= held, "the socket holds what fits into its buffer"
    assert (as_received, as_dropped) == (received + lost, 0), "for the interface, all that came was received"


async def test_another_programs_socket_on_the_switchs_port_is_not_counted() -> None:
    """Somebody may look at a port with tcpdump: what that loses, the laboratory does not."""
    async with lab_of_two() as (network, lab):
        if lab.datapath == "kernel":
            assert await lab.packet_sockets() == {}
            return
        pipe = asyncio.subprocess.PIPE
        command = [*lab.enter(), sys.executable, "-c", SPECTATOR]
        spectator = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        assert spectator.stdout is not None
        assert await spectator.stdout.readline() == b"ready\n"
        held, sent = enough(await looked(lab, network))
        await inside(lab, f"{sys.executable} -c '{TRAIN}' {sent}", "w1")
        received, end, on_cables = await accounts(lab, network, sent)
        shown = await inside(lab, "ss --packet --all --memory --numeric")
        await spectator.communicate(b"")  # which ends it
    lost = sum(one.dropped_packets for one in end.values())
    assert received + lost + on_cables == sent
    assert _drops(shown) - lost >= sent - held - on_cables, "the spectator has lost what its buffer could not hold"


def _drops(shown: str) -> int:
    """Of all sockets, as ss(8) shows them: ``skmem:(r0,rb212992,t0,tb212992,f0,w0,o0,bl0,d4744)``."""
    return sum(int(line.rpartition(",d")[2].rstrip(") ")) for line in shown.splitlines() if "skmem:" in line)
