# SPDX-License-Identifier: Apache-2.0
"""The agent and its client, for real: jobs in namespaces, machines set up, nothing left behind."""

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import pytest

from atoll_core.codec import to_json
from atoll_core.errors import LabError
from atoll_core.plan.plan import HostSettings, InterfaceSettings, LegPair, RouteSettings
from atoll_hosts.agent import Agent, Exit, Job
from atoll_hosts.binary import find_binary
from tests.support.agent_lab import (
    ISLAND,
    READY_S,
    WORLD,
    Machines,
    alive,
    eventually,
    guard_of,
    guarded_by,
    machines,
    pid_here,
)

pytestmark = pytest.mark.lab

BOX_WORLD = InterfaceSettings(
    name="box-w",
    mac="02:00:00:00:03:01",
    address=None,
    routes=(RouteSettings("10.10.0.0/16"),),
    neighbours=(("10.10.0.1", "02:00:00:00:01:01"),),
    promiscuous=True,
)
BOX_ISLAND = InterfaceSettings(
    name="box-i",
    mac="02:00:00:00:03:02",
    address=None,
    routes=(RouteSettings("10.20.0.0/16"),),
    neighbours=(("10.20.0.1", "02:00:00:00:02:01"),),
    promiscuous=True,
)
LEGS = LegPair("box-w", "box-i", accept_foreign=True)
ROUTER = HostSettings("box", (BOX_WORLD, BOX_ISLAND), forwarding=True, legs=(LEGS,))


@pytest.fixture
async def agent() -> AsyncIterator[Agent]:
    """An agent on this machine, in no namespace of its own."""
    agent = await Agent.start([], find_binary())
    yield agent
    await agent.close()


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Machines]:
    """An agent in a sandbox of its own."""
    async with machines(tmp_path) as lab:
        yield lab


def in_any_order(frames: Sequence[Mapping[str, object]]) -> list[str]:
    """Frames sorted: a busy machine may send the next request before the last reply."""
    return sorted(map(str, frames))


async def pid_in(path: Path) -> int:
    """The process id that a job writes into a file."""
    await eventually(lambda: path.exists() and path.read_text().endswith("\n"), f"{path} is written")
    return int(path.read_text())


# Jobs


async def test_a_job_runs_in_the_namespace_it_is_started_in(lab: Machines) -> None:
    """It sees that namespace's interfaces and no others; jobs without one are in the agent's own."""
    world, island = await lab.add("w"), await lab.add("i")
    await lab.cable((world, WORLD), (island, ISLAND))
    names = "ip -o link | cut -d: -f2 | cut -d@ -f1 | tr -d '\\n'"
    assert (await lab.run(world, names)).split() == ["lo", "w-eth0"]
    assert (await lab.run(island, names)).split() == ["lo", "i-eth0"]
    assert (await lab.run(None, names)).split() == ["lo"]


async def test_lines_come_whole_whatever_their_length_and_bytes(agent: Agent) -> None:
    """A line of a megabyte arrives as one, bytes that are no UTF-8 as U+FFFD, foreign text not at all."""
    script = (
        r"""printf 'no json\n[1]\n{"odd":"\377"}\n{"type":"big","text":"'; """
        r"""head -c 1000000 /dev/zero | tr '\0' x; printf '"}\n{"last":1}'"""
    )
    lines: list[dict[str, object]] = []
    job = await agent.start_job("talker", ["sh", "-c", script], on_line=lines.append)
    assert await job.wait() == Exit(0, None)
    assert lines == [{"odd": "\ufffd"}, {"type": "big", "text": "x" * 1_000_000}, {"last": 1}]
    assert job.last == {"last": 1}


async def test_configuration_and_messages_reach_a_job(agent: Agent, tmp_path: Path) -> None:
    """The first line of its input is the configuration; each message is a line more; files are appended to."""
    said: list[dict[str, object]] = []
    job = await agent.start_job("echo", ["cat"], config={"seed": 1}, on_line=said.append)
    await job.send({"op": "mark", "id": 7})
    await eventually(lambda: len(said) == 2, "both lines came back")
    assert said == [{"seed": 1}, {"op": "mark", "id": 7}]
    await job.stop()
    await job.wait()
    log = tmp_path / "log"
    for word in ("one", "two"):
        job = await agent.start_job("word", ["echo", word], stdout=log)
        assert (await job.wait()).code == 0
    assert log.read_text() == "one\ntwo\n"


async def test_a_job_that_fails_before_it_is_ready_says_why(agent: Agent) -> None:
    """The error carries the job's own last words, and an unknown program is named."""
    job = await agent.start_job("link", ["sh", "-c", "echo 'no interface sat-w' >&2; exit 2"])
    with pytest.raises(LabError, match=r"link did not start: no interface sat-w \(exit status 2\)"):
        await job.ready(READY_S)
    with pytest.raises(LabError, match="cannot start no-such-program: "):
        await agent.start_job("nothing", ["no-such-program"])
    with pytest.raises(LabError, match="/no/such/ns: No such file"):
        await agent.start_job("nowhere", ["true"], netns="/no/such/ns")
    silent = await agent.start_job("silent", ["sleep", "1000"])
    with pytest.raises(LabError, match=r"silent is not ready after 0\.1 s"):
        await silent.ready(0.1)


async def test_stopping_asks_first_and_kills_after_the_grace_time(agent: Agent) -> None:
    """A job that hears TERM ends as it likes; one that does not is killed, and its children with it."""
    ready = """echo '{"type":"ready"}'"""
    polite = await agent.start_job("polite", ["sh", "-c", f"trap 'exit 7' TERM; {ready}; while :; do sleep 0.02; done"])
    deaf = await agent.start_job("deaf", ["sh", "-c", f"trap '' TERM; {ready}; while :; do sleep 0.02; done"])
    await polite.ready(READY_S)
    await deaf.ready(READY_S)
    await polite.stop(READY_S)
    assert await polite.wait() == Exit(7, None)
    await deaf.stop(0.1)
    assert await deaf.wait() == Exit(None, "KILL")
    await deaf.stop(0.1)  # ended already: nothing to do


async def test_a_start_that_is_cancelled_leaves_no_job(agent: Agent) -> None:
    """Nobody would know of it, and its name would be taken for as long as the agent lives."""
    start = asyncio.create_task(agent.start_job("sleeper", ["sleep", "100"]))
    while not agent._answers:  # noqa: ASYNC110 - not a moment later
        await asyncio.sleep(0)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    job = await agent.start_job("sleeper", ["true"])
    assert await job.wait() == Exit(0, None)


async def test_what_a_job_leaves_in_its_group_ends_with_it(agent: Agent, tmp_path: Path) -> None:
    """A job is over when its first process is; the rest of its group has a second."""
    left = tmp_path / "left"
    job = await agent.start_job("parent", ["sh", "-c", f"trap '' TERM; sleep 1000 & echo $! > {left}"])
    assert await job.wait() == Exit(0, None)
    pid = await pid_in(left)
    await eventually(lambda: not alive(pid), "the child of an ended job is gone")


async def test_a_daemon_ends_when_its_job_is_stopped_and_those_of_other_jobs_stay(agent: Agent, tmp_path: Path) -> None:
    """Without control groups, too: it left its process group, its session and its parent, but not its job."""
    began: dict[str, tuple[Job, int]] = {}
    for name in ("stopped", "other"):
        script = f"(setsid sh -c 'echo $$ > {tmp_path / name}; exec sleep 1000' &); exec sleep 1000"
        job = await agent.start_job(name, ["sh", "-c", script])
        began[name] = (job, await pid_in(tmp_path / name))
    job, daemon = began["stopped"]
    assert alive(daemon)
    await job.stop(1.0)
    await job.wait()
    await eventually(lambda: not alive(daemon), "the daemon of the stopped job is gone")
    job, daemon = began["other"]
    assert alive(daemon)
    assert alive(job.pid)


# Ends


def escaping(file: Path) -> list[str]:
    """A program that leaves its session, its parent and its environment, and notes its process id."""
    return ["sh", "-c", f"(env -i setsid sh -c 'echo $$ > {file}; exec sleep 1000' &)"]


async def test_the_end_of_the_stream_ends_every_job_and_what_escaped(tmp_path: Path) -> None:
    """Also those that left their job by forking twice."""
    agent = await Agent.start([], find_binary())
    plain = await agent.start_job("plain", ["sleep", "1000"])
    job = await agent.start_job("daemon", escaping(tmp_path / "escaped"))
    await job.wait()
    escaped = await pid_in(tmp_path / "escaped")
    assert alive(plain.pid)
    assert alive(escaped), "a daemon outlives the job that made it, until the agent ends"
    await agent.close()
    assert not alive(plain.pid)
    assert not alive(escaped)
    assert await plain.wait() == Exit(None, "TERM")
    assert await agent.closed == "the agent was closed"
    with pytest.raises(LabError, match="the agent was closed"):
        await agent.read(None)


async def test_killing_the_agent_kills_its_jobs_and_fails_all_who_wait() -> None:
    """The kernel does the first, the client the second."""
    agent = await Agent.start([], find_binary())
    job = await agent.start_job("sleeper", ["sleep", "1000"])
    assert agent._stream is not None
    agent._stream.kill()
    with pytest.raises(LabError, match=r"sleeper: the agent died \(signal 9\)"):
        await job.wait()
    with pytest.raises(LabError, match="the agent died"):
        await agent.start_job("late", ["true"])
    await eventually(lambda: not alive(job.pid), "the job died with the agent")
    await agent.close()


GUARDED = ["sh", "-c", 'exec "$1" agent --silence 60', "sh"]
"""Put before the agent's command line: the agent as it is run on a machine of its own."""


async def test_a_guard_ends_what_escaped_an_agent_that_was_killed(tmp_path: Path) -> None:
    """Jobs die with the agent; a daemon that they left is nobody's child any more."""
    agent = await Agent.start(GUARDED, find_binary())
    plain = await agent.start_job("plain", ["sleep", "1000"])
    job = await agent.start_job("daemon", escaping(tmp_path / "escaped"))
    await job.wait()
    killed = guarded_by(guard_of(agent))
    processes = [pid_here(killed, pid) for pid in (plain.pid, await pid_in(tmp_path / "escaped"))]
    os.kill(killed, signal.SIGKILL)
    assert await agent.closed == "the agent died (exit status 1)"
    assert not any(alive(pid) for pid in processes)


async def test_an_agent_that_hears_nothing_ends_everything(tmp_path: Path) -> None:
    """The client here sends no beats: to the agent, the network has failed."""
    silent = ["sh", "-c", 'exec "$1" agent --silence 2', "sh"]
    agent = await Agent.start(silent, find_binary())
    job = await agent.start_job("daemon", escaping(tmp_path / "escaped"))
    await job.wait()
    escaped = pid_here(guarded_by(guard_of(agent)), await pid_in(tmp_path / "escaped"))
    await agent.closed
    assert not alive(escaped)


KEEPER = """
import asyncio, sys
from pathlib import Path
from atoll_hosts.agent import Agent

async def main():
    agent = await Agent.start([], Path(sys.argv[1]))
    job = await agent.start_job("sleeper", ["sleep", "1000"])
    escaped = await agent.start_job("daemon", sys.argv[2:])
    print(job.pid, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


async def test_killing_whoever_holds_the_agent_ends_everything(tmp_path: Path) -> None:
    """A daemon killed with -9 closes the agent's input by dying."""
    argv = [sys.executable, "-c", KEEPER, str(find_binary()), *escaping(tmp_path / "escaped")]
    daemon = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    assert daemon.stdout is not None
    sleeper = int(await daemon.stdout.readline())
    escaped = await pid_in(tmp_path / "escaped")
    daemon.kill()
    await daemon.wait()
    await eventually(lambda: not alive(sleeper) and not alive(escaped), "both are gone")


def test_output_that_nobody_reads_waits_and_is_not_lost() -> None:
    """The agent holds about a megabyte, then lets jobs block; every line arrives in order once it is read."""
    count = 100_000
    request = {"id": 1, "op": "start", "job": "counter", "argv": ["seq", str(count)], "close_input": True}
    argv = [str(find_binary()), "agent"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        resident_kb = 0
        for _ in range(20):
            time.sleep(0.02)
            status = Path(f"/proc/{process.pid}/status").read_text()
            resident_kb = max(resident_kb, int(status.partition("VmRSS:")[2].split()[0]))
        expected, message = 1, {}
        for line in process.stdout:
            message = json.loads(line)
            if message["type"] == "line":
                assert message["line"] == str(expected)
                expected += 1
            if message["type"] == "exit":
                break
        process.stdin.close()
    assert expected == count + 1
    ended = {"type": "exit", "job": "counter", "code": 0, "signal": None, "exceeded": None}
    assert {name: message[name] for name in ended} == ended
    assert resident_kb < 30_000


# Machines


SNIFFER = """
import json, socket, sys

with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as sniffer:
    sniffer.bind((sys.argv[1], 3))
    print(json.dumps({"type": "ready"}), flush=True)
    while True:
        frame = sniffer.recv(2048)
        dst, src = (frame[at : at + 6].hex(":") for at in (0, 6))
        fields = {"src": src, "dst": dst, "ethertype": int.from_bytes(frame[12:14], "big"), "icmp_type": frame[34]}
        print(json.dumps(fields), flush=True)
"""


async def router(lab: Machines, settings: HostSettings) -> tuple[str, str, str]:
    """A world host, a box and an island host in a row, set up; their namespaces."""
    world, box, island = await lab.add("w"), await lab.add("box"), await lab.add("i")
    await lab.cable((world, WORLD), (box, BOX_WORLD))
    await lab.cable((box, BOX_ISLAND), (island, ISLAND))
    await lab.agent.set_host(HostSettings("w", (WORLD,)), world)
    await lab.agent.set_host(HostSettings("i", (ISLAND,)), island)
    await lab.agent.set_host(settings, box)
    return world, box, island


async def test_a_routed_box_forwards_frames_addressed_to_others(lab: Machines) -> None:
    """Hosts address each other's true MAC addresses, the box takes the frames all the same; nobody sends ARP."""
    world, _, island = await router(lab, ROUTER)
    seen: dict[str, list[dict[str, object]]] = {}
    for netns, interface in ((world, WORLD.name), (island, ISLAND.name)):
        frames = seen[interface] = []
        argv = [sys.executable, "-c", SNIFFER, interface]
        job = await lab.agent.start_job(f"sniff-{interface}", argv, netns=netns, on_line=frames.append)
        await job.ready(READY_S)
        frames.clear()
    said = await lab.run(world, "ping -c 5 -i 0.05 -W 10 10.20.0.1")
    assert "5 received" in said
    assert "ttl=63" in said, "routed, not bridged"
    await eventually(lambda: all(len(frames) >= 10 for frames in seen.values()), "every frame is reported")
    there = {"ethertype": 0x0800, "icmp_type": 8}
    back = {"ethertype": 0x0800, "icmp_type": 0}
    assert in_any_order(seen["w-eth0"]) == in_any_order(
        5
        * [
            {"src": WORLD.mac, "dst": ISLAND.mac, **there},
            {"src": BOX_WORLD.mac, "dst": WORLD.mac, **back},
        ]
    ), "nothing but pings"
    assert in_any_order(seen["i-eth0"]) == in_any_order(
        5
        * [
            {"src": BOX_ISLAND.mac, "dst": ISLAND.mac, **there},
            {"src": ISLAND.mac, "dst": WORLD.mac, **back},
        ]
    ), "nothing but pings"


async def test_a_box_that_does_not_accept_foreign_frames_forwards_none(lab: Machines) -> None:
    """What makes the difference is accept_foreign, not promiscuity."""
    legs = dataclasses.replace(LEGS, accept_foreign=False)
    world, _, _ = await router(lab, dataclasses.replace(ROUTER, legs=(legs,)))
    assert "0 received" in await lab.run(world, "ping -c 1 -W 0.3 10.20.0.1", check=False)


async def spoiled_box(lab: Machines) -> str:
    """A box whose interfaces have a past: one up, with an address, a route, and an MTU of its own."""
    box, other = await lab.add("box"), await lab.add("other")
    await lab.cable((box, BOX_WORLD), (other, WORLD))
    await lab.cable((box, BOX_ISLAND), (other, ISLAND))
    await lab.run(
        box,
        "ip link set box-i up && ip link set box-i down && ip link set box-w mtu 1400 up"  # once up, its qdisc stays
        " && ip address add 192.0.2.1/24 dev box-w && ip route add 198.51.100.0/24 dev box-w"
        " && ip neighbour add 192.0.2.9 lladdr 02:00:00:00:09:09 dev box-w nud permanent"
        " && ethtool -K box-i tso off rx off && nft add table inet users",
    )
    return box


async def undone_by_unset(lab: Machines, box: str) -> None:
    """Set up and unset by the same agent, looking in between."""
    await lab.agent.set_host(ROUTER, box)
    during = await lab.state(box, "box-i")
    assert "10.20.0.1 dev box-i lladdr 02:00:00:00:02:01 PERMANENT" in during["neighbours"]
    assert "10.20.0.0/16 dev box-i scope link" in during["routes"]
    assert "NOARP,PROMISC,UP" in during["link"].replace("MULTICAST,", "")
    assert during["nft"].count("hook ingress") == 2
    forwarding = {f"net.ipv4.conf.{name}.forwarding": on for name, on in (("box-i", "1"), ("box-w", "1"), ("all", "0"))}
    held = await lab.agent.read(box, sysctls=list(forwarding), interfaces=["box-i", "box-w"])
    assert held["sysctls"] == forwarding
    for features in held["offloads"].values():
        for feature in ("tx-checksumming", "scatter-gather", "tcp-segmentation-offload", "generic-receive-offload"):
            assert features[feature] == "off"
    assert set(held["counters"]) == {"box-i", "box-w"}
    await lab.agent.unset_host("box")


async def undone_by_the_end_of_the_stream(lab: Machines, box: str) -> None:
    """Set up by an agent whose input ends right after."""
    request = {"id": 1, "op": "set", "host": "box", "netns": box, "settings": to_json(ROUTER)}
    said: list[dict[str, object]] = []
    argv = ["sh", "-c", 'printf "%s\\n" "$1" | "$0" agent', str(find_binary()), json.dumps(request)]
    job = await lab.agent.start_job("agent", argv, on_line=said.append)
    assert (await job.wait()).code == 0
    assert said[-1]["ok"], said


async def undone_by_a_failure(lab: Machines, box: str) -> None:
    """Refused half way, by the last interface's MTU."""
    wrong = dataclasses.replace(BOX_ISLAND, mtu=70000)
    with pytest.raises(LabError, match="link set dev box-i mtu 70000"):
        await lab.agent.set_host(dataclasses.replace(ROUTER, interfaces=(BOX_WORLD, wrong)), box)


@pytest.mark.parametrize("undo", [undone_by_unset, undone_by_the_end_of_the_stream, undone_by_a_failure])
async def test_a_machine_is_left_as_it_was(lab: Machines, undo: Callable[[Machines, str], Awaitable[None]]) -> None:
    """Links, addresses, routes, neighbours, offloads, sysctls and filters, whatever their past."""
    box = await spoiled_box(lab)
    before = {i: await lab.state(box, i) for i in ("box-w", "box-i")}
    await undo(lab, box)
    after = {i: await lab.state(box, i) for i in ("box-w", "box-i")}
    for interface, state in before.items():
        for what, text in state.items():
            assert after[interface][what] == text, f"{what} of {interface}"


async def test_a_machine_that_is_not_as_described_is_refused(lab: Machines) -> None:
    """A wrong MAC address or a missing interface is named; a sysctl that does not take likewise."""
    world, island = await lab.add("w"), await lab.add("i")
    await lab.cable((world, WORLD), (island, ISLAND))
    wrong = dataclasses.replace(WORLD, mac="02:00:00:00:99:99")
    with pytest.raises(LabError, match="w-eth0 has MAC address 02:00:00:00:01:01, the plan says 02:00:00:00:99:99"):
        await lab.agent.set_host(HostSettings("w", (wrong,)), world)
    with pytest.raises(LabError, match="w: no interface i-eth0; there are: lo, w-eth0"):
        await lab.agent.set_host(HostSettings("w", (ISLAND,)), world)
    with pytest.raises(LabError, match=r"sysctl net\.ipv4\.tcp_congestion_control: "):
        await lab.agent.sysctl(world, [("net.ipv4.tcp_ecn", "1"), ("net.ipv4.tcp_congestion_control", "no-such")])
    held = await lab.agent.read(world, sysctls=["net.ipv4.tcp_ecn"])
    assert held["sysctls"] == {"net.ipv4.tcp_ecn": "2"}, "the first was put back when the second failed"
    was = await lab.agent.sysctl(world, [("net.ipv4.tcp_ecn", "1")])
    assert was == (("net.ipv4.tcp_ecn", "2"),)
    assert await lab.agent.sysctl(world, was) == (("net.ipv4.tcp_ecn", "1"),)


def test_a_signal_ends_the_agent_as_the_end_of_its_input_does(tmp_path: Path) -> None:
    """TERM drains: jobs are ended and reported, the exit status is 0."""
    argv = [str(find_binary()), "agent"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"id":1,"op":"start","job":"sleeper","argv":["sleep","1000"]}\n')
        process.stdin.flush()
        messages = [json.loads(process.stdout.readline()) for _ in range(2)]
        os.kill(process.pid, signal.SIGTERM)
        messages += [json.loads(line) for line in process.stdout]
        assert process.wait() == 0
    assert [message["type"] for message in messages] == ["hello", "answer", "exit"]
    assert not alive(messages[1]["pid"])
