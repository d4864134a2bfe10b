# SPDX-License-Identifier: Apache-2.0
"""Where a lab lives: what brings a testbed its machines and its switches. The emulated lab is one such place."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from atoll_controller.openflow.client import Controller
from atoll_controller.openflow.runtime_python import interpreter
from atoll_core.errors import LabError
from atoll_core.lab.network import Network
from atoll_core.plan.switch_features import Runtime
from atoll_core.platforms import MININET
from atoll_emulation.mininet_lab.emulated_lab import EmulatedLab
from atoll_hosts.agent import Agent
from atoll_hosts.binary import find_binary
from atoll_hosts.clock_offset import ClockOffset
from atoll_hosts.machine import Machine

Report = Callable[[str], None]

_SWITCHES_TIMEOUT_S = 20.0


class Platform(Protocol):
    """Machines with agents, and switches that come to a controller, for as long as it is not stopped."""

    name: str
    """As ``--on`` calls it."""
    network: Network
    """The lab as it stands here: interface names, MAC addresses and datapath ids are those of the place."""
    failed: asyncio.Future[str]
    """Done, with the reason, when the place or an agent in it has ended."""

    def machine(self, name: str) -> Machine:
        """The machine of that name (KeyError: no such machine)."""
        ...

    @property
    def lab_folder(self) -> str | None:
        """The folder of the lab's file; None: the machines do not see it."""
        ...

    async def start_controller(self, runtime: Runtime) -> Controller:
        """A controller that switches can come to. Raises LabError."""
        ...

    async def all_switches(self, controller: Controller) -> None:
        """Wait until all switches have come to a controller. Raises LabError."""
        ...

    async def linked(self, machines: Iterable[str]) -> None:
        """Wait until the experiment interfaces of machines, which are up, have a carrier.

        Raises LabError with a line for each that gets none.
        """
        ...

    async def compare_clocks(self) -> Mapping[str, ClockOffset]:
        """Measure how far the machines' clocks are off from this one, and go by that; empty where all share it.

        Raises LabError when one has drifted too far, or its machine ends.
        """
        ...

    async def measure_clocks(self) -> Mapping[str, ClockOffset]:
        """Measure that without consequences. Raises LabError when a machine ends."""
        ...

    async def directory(self, machine: str, run: Path, files: Collection[str]) -> Path:
        """Where a job on a machine puts its files of a run, which have these names there. Raises LabError."""
        ...

    async def collect(self, run: Path) -> tuple[str, ...]:
        """Bring the files that a run has left on machines into its directory; a line for each that cannot be had."""
        ...

    def describe(self) -> dict[str, Any]:
        """Facts for the manifest of a run."""
        ...

    async def stop(self) -> None:
        """End agents, which undo what they set, and whatever else makes the place."""
        ...


class EmulatedPlatform:
    """An emulated lab: one agent serves all its machines; their jobs see the file system of this one."""

    name = MININET

    def __init__(self, network: Network, lab: EmulatedLab, agent: Agent) -> None:
        self.network = network
        self.lab = lab
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._agent = agent
        self._machines = {name: Machine(name, agent, f"/proc/{pid}/ns/net") for name, pid in lab.hosts.items()}
        self._watchers = [asyncio.create_task(self._watch_lab()), asyncio.create_task(self._watch_agent())]

    @classmethod
    async def start(cls, network: Network, report: Report) -> "EmulatedPlatform":
        """Bring up namespaces, switches, machines and the agent. Raises LabError, MachineError; nothing stays then."""
        binary = find_binary()
        async with contextlib.AsyncExitStack() as undo:
            lab = await EmulatedLab.start(network, report)
            undo.push_async_callback(lab.stop)
            report("controller and agent")
            agent = await Agent.start(lab.enter(), binary)
            undo.pop_all()
        return cls(network, lab, agent)

    def machine(self, name: str) -> Machine:
        """The machine of that name (KeyError: no such machine)."""
        return self._machines[name]

    @property
    def lab_folder(self) -> str:
        """The folder itself: machines share this one's file system."""
        return os.path.dirname(os.path.abspath(self.network.file))  # noqa: PTH100, PTH120 (Path.absolute keeps `..`)

    def read_every(self, seconds: float) -> None:
        """Take what jobs say so often only; 0: as it comes. What is asked for is answered at once all the same."""
        self._agent.read_every(seconds)

    async def start_controller(self, runtime: Runtime) -> Controller:
        """A controller inside the lab. Raises LabError."""
        return await Controller.start(self.lab.enter(), interpreter(runtime), runtime=runtime)

    async def all_switches(self, controller: Controller) -> None:
        """Wait until all switches have come to a controller. Raises LabError."""
        await controller.wait_for([switch.dpid for switch in self.network.switches], _SWITCHES_TIMEOUT_S)

    async def linked(self, machines: Iterable[str]) -> None:
        """Nothing to wait for: the other ends of all cables are up."""
        del machines

    async def compare_clocks(self) -> Mapping[str, ClockOffset]:
        """There is one clock."""
        return {}

    async def measure_clocks(self) -> Mapping[str, ClockOffset]:
        """There is one clock."""
        return {}

    async def directory(self, machine: str, run: Path, files: Collection[str]) -> Path:
        """The run directory itself."""
        del machine, files
        return run

    async def collect(self, run: Path) -> tuple[str, ...]:
        """Nothing is anywhere else."""
        del run
        return ()

    def describe(self) -> dict[str, Any]:
        """The switches' datapath and version."""
        return {"datapath": self.lab.datapath, "ovs": self.lab.ovs_version}

    async def stop(self) -> None:
        """Take the lab down; returns when every process and namespace is gone."""
        for watcher in self._watchers:
            watcher.cancel()
        with contextlib.suppress(LabError):
            await self._agent.close()
        await self.lab.stop()

    async def _watch_lab(self) -> None:
        self._fail(f"the lab ended: {await asyncio.shield(self.lab.dead)}")

    async def _watch_agent(self) -> None:
        await asyncio.shield(self._agent.closed)
        self._fail("the agent died; every job on every machine has ended")

    def _fail(self, reason: str) -> None:
        if not self.failed.done():
            self.failed.set_result(reason)
