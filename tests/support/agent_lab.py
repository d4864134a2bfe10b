# SPDX-License-Identifier: Apache-2.0
"""Machines for tests of the agent: an agent in namespaces of its own, machines as further network namespaces.

Everything lives below one PID namespace, so nothing can be left behind, and nothing outside is touched.
"""

import asyncio
import contextlib
import os
import shlex
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from atoll_core.plan.plan import HostSettings, InterfaceSettings, LegPair, RouteSettings
from atoll_hosts.agent import Agent
from atoll_hosts.binary import find_binary
from atoll_hosts.line_stream import LineProcess

SANDBOX = [
    "unshare",
    *(["--user", "--map-root-user"] if os.geteuid() else []),
    *["--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "--"],
]
READY_S = 60.0

# The two ends of most tests: whoever stands between is what is tested.
WORLD = InterfaceSettings(
    name="w-eth0",
    mac="02:00:00:00:01:01",
    address="10.10.0.1/32",
    routes=(RouteSettings("10.20.0.0/16"),),
    neighbours=(("10.20.0.1", "02:00:00:00:02:01"),),
)
ISLAND = InterfaceSettings(
    name="i-eth0",
    mac="02:00:00:00:02:01",
    address="10.20.0.1/32",
    routes=(RouteSettings("10.10.0.0/16"),),
    neighbours=(("10.10.0.1", "02:00:00:00:01:01"),),
)


def _leg(name: str, number: int, peer: InterfaceSettings, prefix: str) -> InterfaceSettings:
    """A leg of a box towards one end."""
    assert peer.address
    neighbours = ((peer.address.split("/")[0], peer.mac),)
    mac = f"02:00:00:00:03:{number:02x}"
    return InterfaceSettings(name, mac, None, (RouteSettings(prefix),), neighbours, promiscuous=True)


TWO_PAIRS = HostSettings(
    host="box",
    interfaces=(
        _leg("box-w", 1, WORLD, "10.10.0.0/16"),
        _leg("box-i", 2, ISLAND, "10.20.0.0/16"),
        _leg("box-w2", 3, WORLD, "10.10.0.0/16"),
        _leg("box-i2", 4, ISLAND, "10.20.0.0/16"),
    ),
    forwarding=True,
    legs=(LegPair("box-w", "box-i", accept_foreign=True), LegPair("box-w2", "box-i2", table=2, accept_foreign=True)),
)
"""A router with two pairs of legs."""


@dataclass
class Machines:
    """An agent and the machines it runs jobs on."""

    agent: Agent
    directory: Path
    _count: int = 0

    async def add(self, name: str) -> str:
        """A machine without interfaces; its network namespace as a path for the agent."""
        argv = ["unshare", "--net", "sh", "-c", """echo '{"type":"ready"}'; exec sleep infinity"""]
        job = await self.agent.start_job(f"machine-{name}", argv)
        await job.ready(READY_S)
        return f"/proc/{job.pid}/ns/net"

    async def own_run(self) -> None:
        """An empty /run, where agents of machines keep their lock and journal."""
        await self.run(None, "mount -t tmpfs -o mode=755 run /run")

    async def cable(self, a: tuple[str, InterfaceSettings], b: tuple[str, InterfaceSettings]) -> None:
        """A veth pair between two machines, named and numbered as the settings say."""
        ends = [f"{i.name} address {i.mac} netns {netns.split('/')[2]}" for netns, i in (a, b)]
        await self.run(None, f"ip link add {ends[0]} type veth peer {ends[1]}")

    async def run(self, netns: str | None, command: str, *, check: bool = True) -> str:
        """Run a shell command on a machine to its end; its output (AssertionError when it fails)."""
        self._count += 1
        output = self.directory / f"command-{self._count}"
        job = await self.agent.start_job(output.name, ["sh", "-c", command], netns=netns, stdout=output)
        ended = await job.wait()
        assert ended.code == 0 or not check, f"{command}: {job.exit_text()}"
        return output.read_text()

    async def state(self, netns: str, interface: str) -> dict[str, str]:
        """Everything that setting a machine up may touch."""
        quoted = shlex.quote(interface)
        commands = {
            "link": "ip -details link show",
            "addresses": "ip -4 address show",
            "routes": "ip route show table all",
            "rules": "ip rule list",
            "neighbours": "ip -4 neighbour show",
            "offloads": f"ethtool -k {quoted}",
            "sysctls": "sysctl -a -r '^net[.]ipv[46][.]conf[.]|^net[.]ipv4[.](ip_forward|tcp_.*)$'",
            "nft": "nft list ruleset",
        }
        return {what: await self.run(netns, command) for what, command in commands.items()}


async def ends(lab: Machines, box: str, legs: tuple[InterfaceSettings, ...], suffix: str) -> tuple[str, str]:
    """A world and an island host at a pair of legs; every pair has hosts of the same addresses."""
    found: list[str] = []
    for host, side in zip((WORLD, ISLAND), legs, strict=True):
        netns = await lab.add(f"{host.name}{suffix}")
        await lab.cable((netns, host), (box, side))
        await lab.agent.set_host(HostSettings(f"{host.name}{suffix}", (host,)), netns)
        found.append(netns)
    return found[0], found[1]


@asynccontextmanager
async def machines(directory: Path) -> AsyncGenerator[Machines]:
    """An agent in a sandbox, ended when the block ends."""
    agent = await Agent.start(SANDBOX, find_binary())
    try:
        yield Machines(agent, directory)
    finally:
        await agent.close()


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def guard_of(agent: Agent) -> int:
    """The process id of the guard of an agent with a machine to itself."""
    assert isinstance(agent._stream, LineProcess)
    assert agent._stream._process is not None
    return agent._stream._process.pid


def guarded_by(guard: int) -> int:
    """The process id of an agent, which has a PID namespace of its own where its guard may make one."""
    return int(Path(f"/proc/{guard}/task/{guard}/children").read_text())


def pid_here(agent: int, pid: int) -> int:
    """The process id here of a process that has this one in the PID namespace of an agent."""
    space = Path(f"/proc/{agent}/ns/pid").readlink()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            ids = (process / "status").read_text().partition("NSpid:")[2].splitlines()[0].split()
            if int(ids[-1]) == pid and (process / "ns" / "pid").readlink() == space:
                return int(process.name)
    raise AssertionError(f"the agent has no process {pid}")


async def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait until ``holds``; far longer than it should take on a busy machine."""
    deadline = time.monotonic() + READY_S
    while not holds():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)
