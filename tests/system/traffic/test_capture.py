# SPDX-License-Identifier: Apache-2.0
"""Captures between two machines on a cable: what was sent is in the file, whatever ends the capture."""

import asyncio
import itertools
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from atoll_hosts.agent import Agent, Job
from atoll_hosts.binary import find_binary
from tests.guests.frame_train import frame
from tests.support.agent_lab import READY_S, SANDBOX, Machines
from tests.support.capture_file import Record, read_capture

pytestmark = pytest.mark.lab

PYTHON = sys.executable
FRAME_TRAIN = Path(__file__).parents[2] / "guests" / "frame_train.py"
SNAP_BYTES = 96
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]
PLAIN_USER = [
    *(NOBODY if os.geteuid() == 0 else []),
    *["unshare", "--user", "--map-root-user", "--net", "--pid", "--mount"],
    *["--fork", "--kill-child", "--mount-proc", "--"],
]


@dataclass
class Cable:
    """A machine with ``near``, cabled to another one with ``far``, and the captures on both."""

    machines: Machines
    near: str
    far: str
    file: Path
    said: list[dict[str, Any]] = field(default_factory=list)

    def config(self, **changes: Any) -> dict[str, Any]:
        """The configuration of a capture on ``near``."""
        usual = {"interface": "near", "file": str(self.file), "snap_bytes": SNAP_BYTES, "direction": "both"}
        return {**usual, "buffer_bytes": 16 << 20, **changes}

    async def capture(self, **changes: Any) -> Job:
        """Start a capture on ``near`` and wait until it is ready."""
        job = await self.start(self.config(**changes))
        await job.ready(READY_S)
        return job

    async def start(self, config: Any) -> Job:
        """Start a capture."""
        return await self.machines.agent.start_job(
            "capture", ["atoll-host", "capture"], netns=self.near, config=config, on_line=self.said.append
        )

    async def send(self, end: str, count: int, *words: object) -> tuple[int, int]:
        """Send a train of frames from one end; CLOCK_REALTIME before and after, ns."""
        netns = self.near if end == "near" else self.far
        said = await self.machines.run(netns, f"{PYTHON} {FRAME_TRAIN} {end} {count} {' '.join(map(str, words))}")
        begin_ns, end_ns = map(int, said.split())
        return begin_ns, end_ns

    async def holds(self, count: int) -> None:
        """Wait until the file holds that many records."""
        await until(lambda: len(whole_records(self.file)) >= count)

    async def done(self, job: Job) -> dict[str, Any]:
        """Wait until the capture has ended well; its last line."""
        async with asyncio.timeout(READY_S):
            ended = await job.wait()
        assert ended.code == 0, job.exit_text()
        assert self.said[0]["type"] == "ready"
        assert 14 <= self.said[0]["snap_bytes"] <= 65535
        assert 1 << 18 <= self.said[0]["buffer_bytes"] <= 1 << 30
        assert self.said[-1]["type"] == "done"
        return self.said[-1]


async def until(true: Callable[[], bool]) -> None:
    """Wait until that is so; TimeoutError if it never is."""
    async with asyncio.timeout(READY_S):
        for _ in itertools.takewhile(lambda _: not true(), itertools.count()):
            await asyncio.sleep(0.02)


def whole_records(file: Path) -> list[Record]:
    """The records of a file that is being written; a write under way shows as a torn one, so none are told then."""
    try:
        return read_capture(file)
    except AssertionError:
        return []


def assert_is_train(records: list[Record], count: int) -> None:
    """The records are those of a train of ``count`` frames: none missing, none other, in order, tags in their place."""
    assert [record.wire_bytes for record in records] == [len(frame(number)) for number in range(count)]
    assert [record.kept for record in records] == [frame(number)[:SNAP_BYTES] for number in range(count)]


@pytest.fixture(params=["own user", "plain user"])
async def cable(request: pytest.FixtureRequest) -> AsyncIterator[Cable]:
    """Two machines that send nothing of their own accord, in namespaces of the test's user or of nobody's."""
    sandbox = SANDBOX if request.param == "own user" else PLAIN_USER
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o777)
        agent = await Agent.start(sandbox, find_binary())
        try:
            made = Machines(agent, directory)
            near, far = await made.add("near"), await made.add("far")
            for netns in (near, far):
                await made.run(netns, "sysctl -qw net.ipv6.conf.default.disable_ipv6=1")
            ends = [f"{name} netns {netns.split('/')[2]}" for name, netns in (("near", near), ("far", far))]
            await made.run(None, f"ip link add {ends[0]} type veth peer {ends[1]}")
            for end, netns in (("near", near), ("far", far)):
                await made.run(netns, f"ip link set {end} up")
            yield Cable(made, near, far, directory / "near.pcap")
        finally:
            await agent.close()


async def test_every_frame_is_captured_as_it_was_on_the_wire(cable: Cable) -> None:
    """Frames for other machines too, with their VLAN tags, lengths and the nanosecond they arrived in."""
    job = await cable.capture()
    begin_ns, end_ns = await cable.send("far", 300)
    await cable.holds(300)
    await job.stop()
    done = await cable.done(job)
    records = read_capture(cable.file)
    assert_is_train(records, 300)
    assert (done["captured_packets"], done["dropped_packets"]) == (300, 0)
    assert done["captured_bytes"] == sum(record.wire_bytes for record in records)
    instants = [record.t_ns for record in records]
    assert begin_ns <= instants[0]
    assert instants == sorted(instants)
    assert instants[-1] <= end_ns + 10**9  # the cable may hand over frames after they were sent
    assert any(t_ns % 1000 for t_ns in instants)


@pytest.mark.parametrize("direction", ["in", "out", "both"])
async def test_a_direction_is_captured_alone(cable: Cable, direction: str) -> None:
    expected = {"in": 50, "out": 70, "both": 120}[direction]
    job = await cable.capture(direction=direction)
    await cable.send("far", 50)
    await cable.send("near", 70)
    await cable.holds(expected)
    await job.stop()
    assert (await cable.done(job))["captured_packets"] == expected
    if direction != "both":
        assert_is_train(read_capture(cable.file), expected)


async def test_a_stop_with_the_last_frame_loses_none(cable: Cable) -> None:
    """On the sender's own interface, where every frame sent has passed the capture when the sender goes on."""
    job = await cable.capture(direction="out")
    await cable.send("near", 20_000, job.pid)
    done = await cable.done(job)
    assert_is_train(read_capture(cable.file), 20_000)
    assert (done["captured_packets"], done["dropped_packets"]) == (20_000, 0)


async def test_what_finds_the_ring_full_is_counted(cable: Cable) -> None:
    """A capture that does not get to run: what was sent is in the file or among the dropped."""
    job = await cable.capture(direction="out", buffer_bytes=1 << 20)
    await cable.machines.run(cable.near, f"kill -STOP {job.pid}")
    await cable.send("near", 20_000)
    await cable.machines.run(cable.near, f"kill -TERM {job.pid}; kill -CONT {job.pid}")
    done = await cable.done(job)
    assert done["dropped_packets"] > 0
    assert done["captured_packets"] == len(read_capture(cable.file)) > 0
    assert done["captured_packets"] + done["dropped_packets"] == 20_000


async def test_frames_whose_checksum_was_left_to_hardware_are_counted(cable: Cable) -> None:
    """A cable of veth has none: the kernel leaves the sum out of what a socket sends, but not of a packet socket's."""
    job = await cable.capture(direction="out")
    script = (
        "import socket; s = socket.socket(type=socket.SOCK_DGRAM); [s.sendto(b'x', ('10.9.0.2', 9)) for _ in '123']"
    )
    await cable.machines.run(
        cable.near,
        "ip addr add 10.9.0.1/24 dev near"
        " && ip neigh replace 10.9.0.2 lladdr 02:00:00:00:00:09 dev near nud permanent"
        f' && {PYTHON} -c "{script}"',
    )
    await cable.send("near", 4)
    await cable.holds(7)
    await job.stop()
    done = await cable.done(job)
    assert (done["captured_packets"], done["unchecked_packets"]) == (7, 3)


async def test_what_was_captured_is_in_the_file_though_the_capture_is_killed(cable: Cable) -> None:
    job = await cable.capture(direction="out")
    await cable.send("near", 1000)
    await cable.holds(1000)
    await cable.machines.run(cable.near, f"kill -KILL {job.pid}")
    async with asyncio.timeout(READY_S):
        assert (await job.wait()).signal == "KILL"
    assert_is_train(read_capture(cable.file), 1000)


async def test_a_capture_says_its_counters_while_it_lasts(cable: Cable) -> None:
    job = await cable.capture(direction="out")
    await cable.send("near", 10)
    await until(lambda: cable.said[-1]["type"] == "counters" and cable.said[-1]["captured_packets"] == 10)
    await job.stop()
    assert (await cable.done(job))["captured_packets"] == 10


async def test_a_capture_ends_with_its_standard_input(cable: Cable) -> None:
    config = json.dumps(cable.config())
    lines = (await cable.machines.run(cable.near, f"echo '{config}' | {find_binary()} capture")).splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["ready", "done"]
    assert read_capture(cable.file) == []


async def test_a_full_disk_is_one_line_and_the_records_before_it_are_whole(cable: Cable) -> None:
    """Records of 112 bytes do not fill pages evenly: the last one would be torn."""
    small = cable.file.parent / "small"
    await cable.machines.run(None, f"mkdir {small} && mount -t tmpfs -o size=256k tmpfs {small}")
    job = await cable.capture(direction="out", file=str(small / "full.pcap"))
    await cable.send("near", 5000)
    async with asyncio.timeout(READY_S):
        ended = await job.wait()
    assert ended.code == 1
    assert job.exit_text().startswith(f"atoll-host: disk full: cannot write {small}/full.pcap (")
    await cable.machines.run(None, f"cp {small}/full.pcap {cable.file}")
    records = read_capture(cable.file)
    assert_is_train(records, len(records))
    assert cable.file.stat().st_size > 200_000


async def test_an_interface_that_goes_away_ends_the_capture_and_what_was_captured_stays(cable: Cable) -> None:
    job = await cable.capture(direction="out")
    await cable.send("near", 100)
    await cable.machines.run(cable.near, "ip link del near")
    async with asyncio.timeout(READY_S):
        ended = await job.wait()
    assert ended.code == 1
    assert job.exit_text().startswith("atoll-host: cannot listen on near: Network is down")
    assert_is_train(read_capture(cable.file), 100)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"interface": "nowhere"}, "cannot listen on nowhere: no such interface"),
        ({"interface": "lo"}, "cannot listen on lo: the interface is down"),
        ({"direction": "up"}, "unknown variant `up`"),
        ({"snap_bytes": 0}, "snap_bytes 0"),
        ({"colour": "red"}, "unknown field `colour`"),
    ],
)
async def test_a_bad_configuration_is_refused(cable: Cable, changes: dict[str, Any], said: str) -> None:
    job = await cable.start(cable.config(**changes))
    async with asyncio.timeout(READY_S):
        ended = await job.wait()
    assert ended.code == 2
    assert said in job.exit_text()
    assert not cable.file.exists()
