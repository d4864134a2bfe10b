# SPDX-License-Identifier: Apache-2.0
"""Platforms: the interface that provides a testbed with machines and switches, and the emulated lab."""

import asyncio
import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from atoll_controller.openflow.controller_client import Controller, interpreter
from atoll_core.errors import LabError
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import Progress
from atoll_core.lab.network import Network
from atoll_core.plan.switch_features import Runtime
from atoll_core.platforms import MININET
from atoll_emulation.mininet_lab.emulated_lab import EmulatedLab
from atoll_hosts.agent import Agent
from atoll_hosts.binary import find_binary
from atoll_hosts.machine import ClockOffset, Machine

_SWITCHES_TIMEOUT_S = 20.0


class Platform(ABC):
    """Machines with agents, and switches that connect to a controller, until it is stopped.

    By default, machines have the file system and the clock of this machine. ``network``: the lab with the interface
    names, MAC addresses and datapath ids of this platform. ``failed``: done, with the reason, when the platform or an
    agent has failed.
    """

    name: str
    """The platform's name in ``--on``."""

    def __init__(self, network: Network, machines: dict[str, Machine]) -> None:
        self.network = network
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._machines = machines

    def machine(self, name: str) -> Machine:
        """The machine with a name (KeyError: no such machine)."""
        return self._machines[name]

    @property
    def lab_folder(self) -> str | None:
        """The folder of the lab's file; None if the machines have another file system."""
        return None

    @abstractmethod
    async def start_controller(self, runtime: Runtime) -> Controller:
        """Start a controller that the switches can reach. Raises LabError."""

    @abstractmethod
    async def wait_for_switches(self, controller: Controller) -> None:
        """Wait until all switches have connected to a controller. Raises LabError."""

    async def wait_for_links(self, machines: Iterable[str]) -> None:
        """Wait until the experiment interfaces of machines, which are up, have a carrier.

        Raises LabError with a line for each interface without one.
        """
        del machines

    async def compare_clocks(self) -> Mapping[str, ClockOffset]:
        """Measure the offsets of the machines' clocks and use them from now on; empty if all have the same clock.

        Raises LabError if an offset is too large, or if an agent ends.
        """
        return {}

    async def measure_clocks(self) -> Mapping[str, ClockOffset]:
        """Measure the offsets of the machines' clocks. Raises LabError if an agent ends."""
        return {}

    async def directory(self, machine: str, run: Path, files: Collection[str]) -> Path:
        """The directory on a machine for files of a run with these names. Raises LabError."""
        del machine, files
        return run

    async def collect(self, run: Path) -> tuple[str, ...]:
        """Fetch the files of a run from the machines into its directory; returns a line for each failure."""
        del run
        return ()

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Facts for the manifest of a run."""

    @abstractmethod
    async def stop(self) -> None:
        """End the agents, which undo their settings, and everything else that the platform has started."""

    def _fail(self, reason: str) -> None:
        if not self.failed.done():
            self.failed.set_result(reason)


class EmulatedPlatform(Platform):
    """An emulated lab: one agent serves all machines, and jobs use the file system of this machine."""

    name = MININET

    def __init__(self, network: Network, lab: EmulatedLab, agent: Agent) -> None:
        super().__init__(
            network, {name: Machine(name, agent, f"/proc/{pid}/ns/net") for name, pid in lab.hosts.items()}
        )
        self.lab = lab
        self._agent = agent
        self._watchers = [asyncio.create_task(self._watch_lab()), asyncio.create_task(self._watch_agent())]

    @classmethod
    async def start(cls, network: Network, runtime: Runtime, events: EventBus) -> tuple["EmulatedPlatform", Controller]:
        """Bring up namespaces, machines and the agent, the controller, and the switches, which connect to it.

        Raises LabError or MachineError, and leaves nothing behind then.
        """
        binary = find_binary()
        async with contextlib.AsyncExitStack() as undo:
            lab = await EmulatedLab.begin(network, events)
            undo.push_async_callback(lab.stop)
            events.publish(Progress("controller and agent"))
            try:
                controller = await Controller.start(lab.enter(), interpreter(runtime), runtime=runtime)
                undo.push_async_callback(controller.close)
                agent = await Agent.start(lab.enter(), binary)
                undo.push_async_callback(agent.close)
            except LabError as error:
                raise LabError(lab.failure or str(error)) from error  # both end with the lab
            await lab.complete()
            undo.pop_all()
        return cls(network, lab, agent), controller

    @property
    def lab_folder(self) -> str:
        """The folder of the lab's file: the machines have this machine's file system."""
        return os.path.dirname(os.path.abspath(self.network.file))  # noqa: PTH100, PTH120 (Path.absolute keeps `..`)

    def set_read_interval(self, seconds: float) -> None:
        """Read the agent's messages at this interval only; 0: as they arrive. Answers are still read at once."""
        self._agent.read_every(seconds)

    async def start_controller(self, runtime: Runtime) -> Controller:
        """Start a controller inside the lab. Raises LabError."""
        return await Controller.start(self.lab.enter(), interpreter(runtime), runtime=runtime)

    async def wait_for_switches(self, controller: Controller) -> None:
        """Wait until all switches have connected to a controller. Raises LabError."""
        await controller.wait_for([switch.dpid for switch in self.network.switches], _SWITCHES_TIMEOUT_S)

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
        self._fail(f"the lab ended: {await asyncio.shield(self.lab.ended)}")

    async def _watch_agent(self) -> None:
        await asyncio.shield(self._agent.closed)
        self._fail("the agent died; every job on every machine has ended")
