# SPDX-License-Identifier: Apache-2.0
"""The link and delay programs between real machines: what they do to packets, and how they end."""

import asyncio
import json
import re
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from atoll_core.plan.plan import HostSettings, InterfaceSettings
from atoll_hosts.agent import Job
from tests.support.agent_lab import ISLAND, READY_S, WORLD, Machines, machines
from tests.support.capture_file import read_capture

pytestmark = pytest.mark.lab

SAT_WORLD = InterfaceSettings(name="sat-w", mac="02:00:00:00:03:01", address=None, routes=(), neighbours=())
SAT_ISLAND = InterfaceSettings(name="sat-i", mac="02:00:00:00:03:02", address=None, routes=(), neighbours=())

ICMP, ECHO_REQUEST = 1, 8
# Scheduling on a shared machine, both ways: generous, since what is tested is the delay and not the machine.
NOISE_MS = 20.0
DIRECTION = {"rate_bit_s": 16_000_000, "delay_ns": 20_000_000, "jitter_ns": 0, "queue_bytes": 100_000}
CONFIG = {
    "world": "sat-w",
    "island": "sat-i",
    "counts": "ip",
    "mtu": 1500,
    "seed": 1,
    "to_island": DIRECTION,
    "to_world": DIRECTION,
}
PYTHON = sys.executable
TAGGED_FRAMES = Path(__file__).parents[2] / "guests" / "tagged_frames.py"


@dataclass
class LinkLab:
    """World and island machine with the emulator between them; the emulator's job."""

    machines: Machines
    world: str
    box: str
    island: str
    said: list[dict[str, Any]] = field(default_factory=list)

    async def start(self, subcommand: str, config: dict[str, Any]) -> Job:
        """Start the link or delay box and wait until it works."""
        job = await self.machines.agent.start_job(
            "box", ["atoll-host", subcommand], netns=self.box, config=config, on_line=self.said.append
        )
        await job.ready(READY_S)
        return job

    async def mark(self, job: Job, number: int) -> dict[str, Any]:
        """End a measurement; what it measured."""
        await job.send({"op": "mark", "id": number})
        return await self.line("mark", id=number)

    async def line(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The latest line of a kind, waited for if there is none."""
        async with asyncio.timeout(READY_S):
            while True:
                for line in reversed(self.said):
                    if line["type"] == kind and all(line[name] == wanted for name, wanted in fields.items()):
                        return line
                await asyncio.sleep(0.02)

    async def ping(self, *options: str) -> list[float]:
        """Ping the island from the world; the round-trip times in ms."""
        output = await self.machines.run(self.world, f"ping {' '.join(options)} 10.20.0.1", check=False)
        return [float(rtt) for rtt in re.findall(r"time=([0-9.]+) ms", output)]

    async def refusal(self, subcommand: str, config: Any) -> tuple[int | None, list[str]]:
        """How a program ends that should not start: its exit code and what it says."""
        output = self.machines.directory / "refusal"
        job = await self.machines.agent.start_job(
            "box", ["atoll-host", subcommand], netns=self.box, config=config, stderr=output
        )
        async with asyncio.timeout(READY_S):
            ended = await job.wait()
        return ended.code, output.read_text().splitlines()


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[LinkLab]:
    """Two machines and the box between them, set up as the agent sets machines up."""
    async with machines(tmp_path) as made:
        world, box, island = [await made.add(name) for name in ("world", "box", "island")]
        await made.cable((world, WORLD), (box, SAT_WORLD))
        await made.cable((box, SAT_ISLAND), (island, ISLAND))
        await made.agent.set_host(HostSettings("world", (WORLD,)), world)
        await made.agent.set_host(HostSettings("box", (SAT_WORLD, SAT_ISLAND)), box)
        await made.agent.set_host(HostSettings("island", (ISLAND,)), island)
        yield LinkLab(made, world, box, island)


async def test_an_idle_link_delays_by_what_is_configured(lab: LinkLab) -> None:
    job = await lab.start("link", CONFIG)
    rtts = await lab.ping("-c 20", "-i 0.02")
    # 84 bytes at 16 Mbit/s are 0.042 ms, in each direction.
    assert 40.08 <= min(rtts) <= 40.08 + NOISE_MS
    measured = await lab.mark(job, 1)
    for direction in ("to_island", "to_world"):
        assert (measured[direction]["in_packets"], measured[direction]["in_bytes"]) == (20, 20 * 84)
        assert measured[direction]["out_bytes"] == 20 * 84
        assert measured[direction]["sojourn_max_ns"] == 42_000


@pytest.mark.figures
async def test_a_full_queue_adds_its_bytes_at_the_rate(lab: LinkLab) -> None:
    """100 kB at 4 Mbit/s: 200 ms; both by the link's own account and by pings, which still find room."""
    slow = {**DIRECTION, "rate_bit_s": 4_000_000}
    job = await lab.start("link", {**CONFIG, "to_island": slow})
    # 1228 bytes of UDP and IP, 800 a second: 8 Mbit/s.
    flood = (
        "import socket, time\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "begin = time.monotonic()\n"
        "for n in range(2400):\n"
        "    s.sendto(bytes(1200), ('10.20.0.1', 9))\n"
        "    time.sleep(max(0, begin + n / 800 - time.monotonic()))\n"
    )
    script = lab.machines.directory / "flood.py"
    script.write_text(flood)
    _, rtts = await asyncio.gather(
        lab.machines.run(lab.world, f"{PYTHON} {script}"),
        lab.ping("-c 30", "-i 0.1"),
    )
    await asyncio.sleep(0.5)  # longer than the queue takes to drain
    measured = (await lab.mark(job, 1))["to_island"]

    assert 100_000 - 1228 < measured["queue_max_bytes"] <= 100_000
    # The queue at its fullest, and the packet being serialised.
    assert 0.98 * 200e6 < measured["sojourn_max_ns"] <= 200e6 + 1228 * 8 / 4e-3
    assert max(rtts) > 0.9 * (40 + 200)
    assert len(rtts) >= 28, "pings find room in a queue that is full for large packets"

    assert measured["dropped_packets"] > 0
    assert measured["held_packets"] == 0
    for unit in ("packets", "bytes"):
        assert measured[f"in_{unit}"] == measured[f"out_{unit}"] + measured[f"dropped_{unit}"]
    assert measured["scheduled_windows_over_rate"] == 0
    assert not measured["overloaded"]
    statistics = await lab.machines.run(lab.island, "ip -json -stats link show i-eth0")
    assert json.loads(statistics)[0]["stats64"]["rx"]["packets"] == measured["out_packets"]


async def test_each_class_of_a_delay_box_delays_by_its_own(lab: LinkLab) -> None:
    """The world machine stands for the switch: it tags, and times what comes back."""
    classes = [
        {"vlan": 101, "delay_ns": 10_000_000, "jitter_ns": 0},
        {"vlan": 102, "delay_ns": 40_000_000, "jitter_ns": 5_000_000},
    ]
    job = await lab.start("delay", {"trunk": "sat-w", "mtu": 1500, "seed": 1, "classes": classes})
    output = await lab.machines.run(lab.world, f"{PYTHON} {TAGGED_FRAMES} w-eth0 50 101,102,103,0")
    delays = json.loads(output)

    assert sorted(delays) == ["101", "102"], "other classes and untagged frames do not come back"
    assert len(delays["101"]) == len(delays["102"]) == 50
    assert 10 <= min(delays["101"]) <= 10 + NOISE_MS
    assert 35 <= min(delays["102"]) <= 45 + NOISE_MS
    measured = await lab.mark(job, 1)
    assert measured["unknown_vlan_packets"] == 100
    for figures in measured["classes"].values():
        assert (figures["in_packets"], figures["in_bytes"], figures["held_packets"]) == (50, 5000, 0)
        assert (figures["out_packets"], figures["out_bytes"]) == (50, 5000)


async def test_vlan_tags_pass_a_link_unchanged(lab: LinkLab) -> None:
    await lab.start("link", CONFIG)
    seen_by_world, seen_by_island = await asyncio.gather(
        lab.machines.run(lab.world, f"{PYTHON} {TAGGED_FRAMES} w-eth0 200 7"),
        lab.machines.run(lab.island, f"{PYTHON} {TAGGED_FRAMES} i-eth0 200 4094"),
    )
    assert list(json.loads(seen_by_world)) == ["4094"]
    assert list(json.loads(seen_by_island)) == ["7"]


async def test_packets_above_the_mtu_are_refused_and_counted(lab: LinkLab) -> None:
    for netns, interface in (
        (lab.world, "w-eth0"),
        (lab.box, "sat-w"),
        (lab.box, "sat-i"),
        (lab.island, "i-eth0"),
    ):
        await lab.machines.run(netns, f"ip link set {interface} mtu 3000")
    job = await lab.start("link", CONFIG)
    assert await lab.ping("-c 1", "-W 1", "-s 1473") == []
    assert len(await lab.ping("-c 1", "-W 5", "-s 1472")) == 1
    measured = (await lab.mark(job, 1))["to_island"]
    assert (measured["oversize_packets"], measured["in_packets"], measured["in_bytes"]) == (1, 1, 1500)


async def test_a_capture_on_the_output_port_sees_what_the_link_sends(lab: LinkLab) -> None:
    await lab.start("link", CONFIG)
    file = lab.machines.directory / "sat-i.pcap"
    config = {"interface": "sat-i", "file": str(file), "snap_bytes": 96, "direction": "out", "buffer_bytes": 1 << 20}
    capture = await lab.machines.agent.start_job(
        "capture", ["atoll-host", "capture"], netns=lab.box, config=config, on_line=[].append
    )
    await capture.ready(READY_S)
    await lab.ping("-c 3", "-i 0.02")
    await capture.stop()
    async with asyncio.timeout(READY_S):
        assert (await capture.wait()).code == 0
    addresses = socket.inet_aton("10.10.0.1") + socket.inet_aton("10.20.0.1")
    requests = [each for each in read_capture(file) if each.kept[23] == ICMP and each.kept[26:34] == addresses]
    assert [each.kept[34] for each in requests] == [ECHO_REQUEST] * 3


async def test_a_mark_begins_a_new_measurement_and_counters_go_on(lab: LinkLab) -> None:
    job = await lab.start("link", CONFIG)
    await lab.ping("-c 3", "-i 0.02")
    assert (await lab.mark(job, 1))["to_island"]["out_packets"] == 3
    await lab.ping("-c 2", "-i 0.02")
    measured = (await lab.mark(job, 2))["to_island"]
    assert measured["out_packets"] == 2
    assert sum(count for _, count in measured["lateness_histogram"]) == 2
    lab.said.clear()
    assert (await lab.line("counters"))["to_island"]["out_packets"] == 5


async def test_a_running_link_is_changed_and_says_so(lab: LinkLab) -> None:
    job = await lab.start("link", CONFIG)
    assert 40.08 <= min(await lab.ping("-c 20", "-i 0.02")) <= 40.08 + NOISE_MS
    changed = {**DIRECTION, "delay_ns": 40_000_000, "rate_bit_s": 1_000_000}
    await job.send({"op": "set", "id": 1, "to_island": changed, "to_world": changed})
    assert (await lab.line("set", id=1))["ok"]
    # 84 bytes at 1 Mbit/s are 0.672 ms.
    assert 81.34 <= min(await lab.ping("-c 20", "-i 0.02")) <= 81.34 + NOISE_MS
    await job.send({"op": "set", "id": 2, "to_island": {**changed, "rate_bit_s": 0}})
    refusal = await lab.line("set", id=2)
    assert not refusal["ok"]
    assert "rate_bit_s 0" in refusal["error"]
    assert len(await lab.ping("-c 1")) == 1


async def test_recorded_losses_lose_packet_after_packet(lab: LinkLab) -> None:
    lossy = {**DIRECTION, "loss": {"kind": "trace", "lost": [False, True, True]}}
    job = await lab.start("link", {**CONFIG, "to_island": lossy})
    assert len(await lab.ping("-c 9", "-i 0.02", "-W 1")) == 3
    measured = (await lab.mark(job, 1))["to_island"]
    assert (measured["dropped_loss_packets"], measured["dropped_loss_bytes"]) == (6, 6 * 84)
    assert (measured["dropped_packets"], measured["out_packets"]) == (6, 3)


async def test_a_trace_holds_its_first_row_until_it_is_started(lab: LinkLab) -> None:
    trace = [
        {"t_ns": 0},
        {"t_ns": 100_000_000, "delay_ns": 120_000_000},
        {"t_ns": 2_000_000_000, "blocked": True},
    ]
    job = await lab.start("link", {**CONFIG, "to_island": {**DIRECTION, "trace": trace}})
    assert min(await lab.ping("-c 10", "-i 0.04")) < 120
    await job.send({"op": "trace-start", "id": 1})
    assert (await lab.line("trace-start", id=1))["ok"]
    await asyncio.sleep(0.1)
    assert min(await lab.ping("-c 20", "-i 0.02")) >= 140
    await asyncio.sleep(2)
    assert await lab.ping("-c 5", "-i 0.02", "-W 1") == []
    measured = (await lab.mark(job, 1))["to_island"]
    assert measured["dropped_blocked_packets"] == measured["dropped_packets"] == 5


async def test_a_running_delay_box_changes_one_class(lab: LinkLab) -> None:
    classes = [{"vlan": vlan, "delay_ns": 10_000_000} for vlan in (101, 102)]
    job = await lab.start("delay", {"trunk": "sat-w", "mtu": 1500, "seed": 1, "classes": classes})
    await job.send({"op": "set", "id": 1, "vlan": 102, "delay_ns": 50_000_000})
    assert (await lab.line("set", id=1))["ok"]
    delays = json.loads(await lab.machines.run(lab.world, f"{PYTHON} {TAGGED_FRAMES} w-eth0 10 101,102"))
    assert 10 <= min(delays["101"]) <= 10 + NOISE_MS
    assert 50 <= min(delays["102"]) <= 50 + NOISE_MS


@pytest.mark.parametrize("subcommand", ["link", "delay"])
async def test_a_termination_signal_ends_with_done(lab: LinkLab, subcommand: str) -> None:
    config = CONFIG if subcommand == "link" else {"trunk": "sat-w", "mtu": 1500, "seed": 1, "classes": []}
    job = await lab.start(subcommand, config)
    await job.stop(grace_s=10)
    async with asyncio.timeout(READY_S):
        assert (await job.wait()).code == 0
    assert job.last is not None
    assert job.last["type"] == "done"


async def test_the_end_of_its_input_ends_a_link(lab: LinkLab) -> None:
    """Without the agent, whose jobs' input ends only with the agent."""
    words = await lab.machines.run(lab.box, f"echo '{json.dumps(CONFIG)}' | /proc/1/exe link")
    lines = [json.loads(line) for line in words.splitlines()]
    assert [line["type"] for line in lines] == ["ready", "done"]
    assert lines[-1]["to_island"]["in_packets"] == lines[-1]["to_world"]["in_packets"] == 0


async def test_a_link_whose_interface_vanishes_says_so_and_fails(lab: LinkLab) -> None:
    job = await lab.start("link", CONFIG)
    await lab.machines.run(lab.box, "ip link delete sat-i")
    async with asyncio.timeout(READY_S):
        ended = await job.wait()
    assert ended.code == 1
    assert "interface 'sat-i' is gone" in job.exit_text()


@pytest.mark.parametrize(
    ("change", "wrong", "remedy"),
    [
        ("true", {"island": "no-such"}, "interface 'no-such' does not exist"),
        ("true", {"mtu": 9000}, "ip link set sat-w mtu 9000"),
        ("true", {"to_island": {**DIRECTION, "rate_bit_s": 0}}, "to_island: rate_bit_s 0"),
        ("true", {"rate": 1}, "unknown field `rate`"),
        ("true", {"to_world": {**DIRECTION, "trace": [{"t_ns": 5, "loss": 2}]}}, "to_world: trace row 0: loss 2"),
        ("ip link set sat-i down", {}, "ip link set sat-i up"),
        ("ethtool -K sat-w gro on", {}, "ethtool -K sat-w gro off"),
        ("ethtool -K sat-i tx on sg on tso on", {}, "ethtool -K sat-i tso off"),
    ],
)
async def test_what_cannot_work_is_refused_in_one_line(
    lab: LinkLab, change: str, wrong: dict[str, Any], remedy: str
) -> None:
    await lab.machines.run(lab.box, change)
    code, lines = await lab.refusal("link", {**CONFIG, **wrong})
    assert code == 2
    assert len(lines) == 1
    assert remedy in lines[0]
