# SPDX-License-Identifier: Apache-2.0
"""A machine of the lab in somebody's hands: the agent that serves it, and the network namespace it is there."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atoll_core.plan.plan import UNLIMITED, HostSettings, JobLimits
from atoll_hosts.agent import Agent
from atoll_hosts.job import Job, OnLine, OnOutput


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine. An agent may serve many of them, each in a namespace; a real machine has one to itself."""

    name: str
    agent: Agent
    netns: str | None = None  # path, as the agent sees it; None: the agent's own
    clock_offset_ns: int = 0
    """Its CLOCK_REALTIME less that of this machine, where that is known to differ."""

    async def start_job(
        self,
        name: str,
        argv: Sequence[str],
        *,
        config: dict[str, Any] | None = None,
        stdout: str | Path = "lines",
        stderr: str | Path = "lines",
        on_line: OnLine | None = None,
        on_output: OnOutput | None = None,
        limits: JobLimits = UNLIMITED,
        privileges: Sequence[str] | None = None,
        directory: str | None = None,
    ) -> Job:
        """Start a job here, as :meth:`atoll_hosts.agent.Agent.start_job` does. Raises LabError."""
        return await self.agent.start_job(
            name,
            argv,
            netns=self.netns,
            config=config,
            stdout=stdout,
            stderr=stderr,
            on_line=on_line,
            on_output=on_output,
            limits=limits,
            privileges=privileges,
            directory=directory,
        )

    async def set(self, settings: HostSettings) -> dict[str, Any]:
        """Set the machine up; returns sysctls and offloads before. Undone by :meth:`unset` or the agent's end."""
        return await self.agent.set_host(settings, self.netns)

    async def unset(self) -> None:
        """Take back what :meth:`set` did."""
        await self.agent.unset_host(self.name)

    async def sysctl(self, sysctls: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Write sysctls in order, verified; returns what they held before, to be written back."""
        return await self.agent.sysctl(self.netns, sysctls)

    async def read(self, *, sysctls: Sequence[str] = (), interfaces: Sequence[str] = ()) -> dict[str, Any]:
        """``sysctls`` by name, ``offloads`` and ``counters`` by interface, as they are now."""
        return await self.agent.read(self.netns, sysctls=sysctls, interfaces=interfaces)
