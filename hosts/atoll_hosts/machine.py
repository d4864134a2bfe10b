# SPDX-License-Identifier: Apache-2.0
"""A machine of the lab: the agent that serves it, its network namespace, its clock."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from atoll_core.plan.plan import HostSettings
from atoll_hosts.agent import Agent
from atoll_hosts.job import Job, JobOptions


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine. The agent of an emulated lab serves many, each in a namespace; a real machine has its own agent."""

    name: str
    agent: Agent
    netns: str | None = None  # path on the agent's machine; None: the agent's own namespace
    clock_offset_ns: int = 0
    """Its CLOCK_REALTIME less that of this machine, if that is known to differ."""

    async def start_job(self, name: str, argv: Sequence[str], **options: Unpack[JobOptions]) -> Job:
        """Start a job here, as :meth:`atoll_hosts.agent.Agent.start_job` does. Raises LabError."""
        return await self.agent.start_job(name, argv, netns=self.netns, **options)

    async def set(self, settings: HostSettings) -> dict[str, Any]:
        """Configure the machine; returns its previous sysctls and offloads. Undone by :meth:`unset` or the agent."""
        return await self.agent.set_host(settings, self.netns)

    async def unset(self) -> None:
        """Undo :meth:`set`."""
        await self.agent.unset_host(self.name)

    async def sysctl(self, sysctls: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Write sysctls in order and verify them; returns the previous values, for restoring them."""
        return await self.agent.sysctl(self.netns, sysctls)

    async def read(self, *, sysctls: Sequence[str] = (), interfaces: Sequence[str] = ()) -> dict[str, Any]:
        """Read the current ``sysctls`` by name, and ``offloads`` and ``counters`` by interface."""
        return await self.agent.read(self.netns, sysctls=sysctls, interfaces=interfaces)


_CLOCK_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """A clock less this machine's, exact to ``bound_ns``. ``rtt_ns``: of the request."""

    offset_ns: int
    bound_ns: int
    rtt_ns: int

    @property
    def known_ns(self) -> int:
        """The offset if it exceeds the bound of the measurement, else 0."""
        return self.offset_ns if abs(self.offset_ns) > self.bound_ns else 0

    def __str__(self) -> str:
        return f"{self.offset_ns / 1e6:+.2f} ms (+/- {self.bound_ns / 1e6:.2f} ms)"


async def clock_offset(agent: Agent) -> ClockOffset:
    """Measure the offset: the agent reads its clock at some time between request and answer; the shortest round counts.

    Raises LabError if the agent ends.
    """
    offsets: list[ClockOffset] = []
    for _ in range(_CLOCK_ROUNDS):
        begin_ns, own_ns = time.monotonic_ns(), time.time_ns()
        agent_ns: int = (await agent.request("clock"))["t_ns"]
        rtt_ns = time.monotonic_ns() - begin_ns
        offsets.append(ClockOffset(agent_ns - own_ns - rtt_ns // 2, (rtt_ns + 1) // 2, rtt_ns))
    return min(offsets, key=lambda offset: offset.rtt_ns)
