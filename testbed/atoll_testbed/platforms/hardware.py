# SPDX-License-Identifier: Apache-2.0
"""A lab of real machines and switches: agents over SSH, and switches that connect to the controller themselves.

Nothing is created here, only configured. Agents undo settings when their streams end for any reason. Flow entries stay
on the switches, which continue to forward by them; the next apply replaces them.

Importing this module imports asyncssh (0.3 s): do it only if there is an inventory.
"""

import asyncio
import contextlib
import getpass
import shutil
import socket
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import asyncssh

from atoll_controller.fabric.flow_installer import install_control
from atoll_controller.openflow.controller_client import Controller, interpreter
from atoll_core.errors import LabError
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import Progress
from atoll_core.lab.inventory import Inventory, InventoryMachine, apply_inventory
from atoll_core.lab.network import Network
from atoll_core.plan.switch_features import Runtime
from atoll_core.platforms import HARDWARE
from atoll_core.units import Size
from atoll_hosts.agent import Agent
from atoll_hosts.machine import ClockOffset, Machine, clock_offset
from atoll_hosts.ssh.connections import Outcome, SshConnections, on_each
from atoll_hosts.ssh.file_transfer import DiskQuota, fetch, offered_files
from atoll_hosts.ssh.remote_agent import IN_BAND_SILENCE_S, SILENCE_S, start_agent
from atoll_testbed.platforms.base import Platform
from atoll_testbed.platforms.machine_checks import address_conflict, carrier_lines, clock_lines, missing_prerequisites

# A NIC that was down takes 2 to 4 s to negotiate with a gigabit switch's port, longer with spanning tree.
_CARRIER_TIMEOUT_S = 15.0
_CARRIER_POLL_S = 0.5

# A switch that was refused tries again after some seconds, doubling: Open vSwitch up to 8 s, ProCurve up to 60 s.
_SWITCHES_TIMEOUT_S = 70.0

# Waiting for other machines' answers would count as round-trip time and make the offsets less certain.
_MAX_PARALLEL_CLOCKS = 4


@dataclass(slots=True)
class _RemoteMachine:
    """A connected machine with its agent's description."""

    machine: InventoryMachine
    connection: asyncssh.SSHClientConnection
    agent: Agent
    facts: dict[str, Any]
    clock: ClockOffset

    @property
    def address(self) -> str:
        """The address of the connection on that machine; empty behind a jump host."""
        return str((self.connection.get_extra_info("peername") or ("",))[0])

    async def close(self) -> None:
        await self.agent.close()
        self.connection.close()


class HardwarePlatform(Platform):
    """The machines and switches of an inventory, until it is stopped. Create it with :meth:`start`."""

    name = HARDWARE

    def __init__(
        self, network: Network, inventory: Inventory, connections: SshConnections, remotes: dict[str, _RemoteMachine]
    ) -> None:
        super().__init__(network, {name: Machine(name, r.agent, None, r.clock.known_ns) for name, r in remotes.items()})
        self._inventory = inventory
        self._listen = f"{inventory.address}:{inventory.port}"
        self._connections = connections
        self._remotes = remotes
        self._directories: dict[tuple[str, Path], Path] = {}
        self._file_names: dict[tuple[str, Path], set[str]] = {}  # that jobs were configured to write
        self._watchers = [asyncio.create_task(self._watch(r.agent)) for r in remotes.values()]

    @classmethod
    async def start(
        cls, network: Network, inventory: Inventory, runtime: Runtime, events: EventBus
    ) -> tuple["HardwarePlatform", Controller]:
        """Connect to every machine of the inventory, claim it, and check its prerequisites; start the controller.

        With in-band control, the controller first installs the entries by which machines are reached. Raises LabError
        with a line for each machine that fails; no machine is claimed then.
        """
        async with contextlib.AsyncExitStack() as undo:
            controller: Controller | None = None
            if network.in_band_hosts:
                controller, _ = await controller_with_control(network, inventory, runtime, events)
                undo.push_async_callback(controller.close)
            platform = await cls.connect(network, inventory, events)
            if controller is None:
                undo.push_async_callback(platform.stop)
                events.publish(Progress("controller and switches"))
                controller = await platform.start_controller(runtime)
            undo.pop_all()
        return platform, controller

    @classmethod
    async def connect(cls, network: Network, inventory: Inventory, events: EventBus) -> "HardwarePlatform":
        """As :meth:`start`, the machines alone."""
        events.publish(Progress(f"connecting to {len(inventory.machines)} machines"))
        connections = SshConnections()
        in_band = {host.name for host in network.in_band_hosts}
        outcomes = await on_each(
            inventory.machines,
            lambda machine: _connect(connections, machine, inventory, in_band=machine.name in in_band),
        )
        remotes = {outcome.machine: outcome.result for outcome in outcomes if outcome.result is not None}
        if problems := _problems(outcomes, network, inventory):
            await asyncio.gather(*(remote.close() for remote in remotes.values()))
            await connections.close()
            raise LabError("\n".join(problems))
        macs = {
            (name, interface.slot): remote.facts["interfaces"][interface.name]["mac"].lower()
            for name, remote in remotes.items()
            for interface in remote.machine.interfaces
        }
        return cls(apply_inventory(network, inventory, macs), inventory, connections, remotes)

    async def start_controller(self, runtime: Runtime) -> Controller:
        """Start a controller on this machine, at the address of the inventory. Raises LabError."""
        return await Controller.start([], interpreter(runtime), self._listen, runtime)

    async def wait_for_switches(self, controller: Controller) -> None:
        """Wait until all switches have connected to a controller, with the entries of in-band control.

        One that restarted while machines were being connected has lost them. Raises LabError.
        """
        await _wait_for_switches(controller, self.network, self._listen)
        if self.network.in_band_hosts:
            await install_control(controller, self.network)

    async def wait_for_links(self, machines: Iterable[str]) -> None:
        """Wait until the experiment interfaces of machines, which are up, have a carrier.

        Raises LabError with a line for each interface without one.
        """
        remotes = [self._remotes[name] for name in machines]
        lines = [line for lines in await asyncio.gather(*(_carrier_lines(r) for r in remotes)) for line in lines]
        if lines:
            raise LabError("\n".join(lines))

    async def compare_clocks(self) -> Mapping[str, ClockOffset]:
        """Measure the clock offsets again, as clocks drift, and use them from now on.

        Raises LabError with a line for each offset that is too large.
        """
        clocks = await self.measure_clocks()
        if problems := [line for name, clock in clocks.items() for line in clock_lines(name, clock)]:
            raise LabError("\n".join(problems))
        for name, clock in clocks.items():
            self._remotes[name].clock = clock
            self._machines[name] = replace(self._machines[name], clock_offset_ns=clock.known_ns)
        return clocks

    async def measure_clocks(self) -> Mapping[str, ClockOffset]:
        """Measure the clock offsets, of a few machines at a time. Raises LabError if an agent ends."""
        slots = asyncio.Semaphore(_MAX_PARALLEL_CLOCKS)

        async def measure(remote: _RemoteMachine) -> ClockOffset:
            async with slots:
                return await clock_offset(remote.agent)

        clocks = await asyncio.gather(*map(measure, self._remotes.values()))
        return dict(zip(self._remotes, clocks, strict=True))

    async def directory(self, machine: str, run: Path, files: Collection[str]) -> Path:
        """The machine's directory for a run's files, from which files with these names are fetched. Raises LabError."""
        self._file_names.setdefault((machine, run), set()).update(files)
        if (machine, run) not in self._directories:
            limit = self._files_limit(machine)
            in_memory = {} if limit is None else {"memory_bytes": limit.bytes}
            answer = await self._machines[machine].agent.request("spool", name=_spool_name(run), **in_memory)
            self._directories[machine, run] = Path(answer["path"])
        return self._directories[machine, run]

    def _files_limit(self, machine: str) -> Size | None:
        """The largest file of a run in a machine's memory; None: its files are on disk.

        A client writes little, and an SD card that is written to delays its programs. Captures are large.
        """
        machine_entry = self._remotes[machine].machine
        is_host = machine in {host.name for host in self.network.hosts}
        in_memory = is_host if machine_entry.files_in_memory is None else machine_entry.files_in_memory
        return machine_entry.files_limit if in_memory else None

    async def collect(self, run: Path) -> tuple[str, ...]:
        """Fetch the files of a run into its directory and remove them on the machines.

        Returns a line for each machine that failed; its files stay there for a week. If an agent has ended, the machine
        is connected again. Files that are none of its jobs', and those beyond its disk quota, are refused.
        """
        quota = DiskQuota(shutil.disk_usage(run).free)
        machines = [machine for machine, machine_run in self._directories if machine_run == run]
        outcomes = await on_each(
            [self._remotes[name].machine for name in machines], lambda machine: self._collect_from(machine, run, quota)
        )
        for machine in machines:
            del self._directories[machine, run], self._file_names[machine, run]
        return tuple(outcome.error for outcome in outcomes if outcome.error is not None)

    def describe(self) -> dict[str, Any]:
        """Facts about the machines, with their clock offsets."""
        return {
            "inventory": self._inventory.file,
            "machines": {
                name: {
                    **{fact: remote.facts[fact] for fact in ("hostname", "kernel", "cpus", "memory_bytes")},
                    "atoll_host": remote.agent.hello["version"],
                    "arch": remote.agent.hello["arch"],
                    "clock_offset_ns": remote.clock.offset_ns,
                    "clock_bound_ns": remote.clock.bound_ns,
                    "interfaces": {interface.slot: interface.name for interface in remote.machine.interfaces},
                }
                for name, remote in self._remotes.items()
            },
        }

    async def stop(self) -> None:
        """End all agents, which undo their settings, and close the connections."""
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*(remote.close() for remote in self._remotes.values()))
        await self._connections.close()

    async def _collect_from(self, machine: InventoryMachine, run: Path, quota: DiskQuota) -> int:
        """Fetch the files of one machine; returns their number. Raises LabError."""
        remote = self._remotes[machine.name]
        agent, connection = remote.agent, remote.connection

        async def connect() -> asyncssh.SSHClientConnection:
            nonlocal connection
            if connection.is_closed():
                connection = await self._connections.connect(machine.name, machine.access)
            return connection

        async with contextlib.AsyncExitStack() as cleanup:
            if agent.closed.done():
                agent = await start_agent(await connect(), machine.name, machine.access)
                cleanup.push_async_callback(agent.close)
            name = _spool_name(run)
            spool = (await agent.request("files", name=name))["spool"]
            files = offered_files(machine.name, spool, self._file_names[machine.name, run])
            quota.take(machine.name, sum(file.size_bytes for file in files))
            for file in files:
                await fetch(connect, machine.name, file, run / file.name, sudo=machine.access.sudo)
            await agent.request("discard", name=name)
        return len(files)

    async def _watch(self, agent: Agent) -> None:
        self._fail(await asyncio.shield(agent.closed))


async def controller_with_control(
    network: Network, inventory: Inventory, runtime: Runtime, events: EventBus
) -> tuple[Controller, int]:
    """Start a controller that has installed the entries of in-band control, and the number of changes.

    Raises LabError.
    """
    listen = f"{inventory.address}:{inventory.port}"
    real_network = apply_inventory(network, inventory, {})
    events.publish(Progress("controller, switches and in-band control"))
    controller = await Controller.start([], interpreter(runtime), listen, runtime)
    try:
        await _wait_for_switches(controller, real_network, listen)
        return controller, len(await install_control(controller, real_network))
    except BaseException:
        await controller.close()
        raise


async def _wait_for_switches(controller: Controller, network: Network, listen: str) -> None:
    try:
        await controller.wait_for([switch.dpid for switch in network.switches], _SWITCHES_TIMEOUT_S)
    except LabError as error:
        raise LabError(f"{error}; configure tcp:{listen} as the controller of the switches") from None


async def _connect(
    connections: SshConnections, machine: InventoryMachine, inventory: Inventory, *, in_band: bool
) -> _RemoteMachine:
    connection = await connections.connect(machine.name, machine.access)
    try:
        silence_s = IN_BAND_SILENCE_S if in_band else SILENCE_S
        agent = await start_agent(connection, machine.name, machine.access, silence_s)
        try:
            await agent.request("claim", owner=f"{getpass.getuser()}@{socket.gethostname()}, {inventory.file}")
            return _RemoteMachine(machine, connection, agent, await agent.describe(), await clock_offset(agent))
        except BaseException:
            await agent.close()
            raise
    except BaseException:
        connection.abort()
        raise


async def _carrier_lines(remote: _RemoteMachine) -> list[str]:
    """A line for each interface of a machine without a carrier after the timeout. Raises LabError."""
    deadline = time.monotonic() + _CARRIER_TIMEOUT_S
    while lines := carrier_lines(remote.machine, await remote.agent.describe()):
        if time.monotonic() >= deadline:
            break
        await asyncio.sleep(_CARRIER_POLL_S)
    return lines


def _problems(outcomes: list[Outcome[_RemoteMachine]], network: Network, inventory: Inventory) -> list[str]:
    problems = address_conflict("the controller's address", inventory.address, network)
    mac_counts: Counter[str] = Counter()
    for outcome in outcomes:
        remote = outcome.result
        if remote is None:
            problems.append(outcome.error or outcome.machine)
            continue
        problems += missing_prerequisites(remote.machine, remote.facts, remote.clock, remote.address, network)
        if remote.address:
            management_address = ip_address(remote.address.partition("%")[0])
            problems += address_conflict(f"{remote.machine.name}: its management address", management_address, network)
        interfaces = remote.facts["interfaces"]
        mac_counts.update(
            interfaces[name]["mac"]
            for name in (entry.name for entry in remote.machine.interfaces)
            if name in interfaces
        )
    problems += [
        f"MAC address {mac} is used by {count} interfaces; give each its own"
        for mac, count in mac_counts.items()
        if count > 1
    ]
    return problems


def _spool_name(run: Path) -> str:
    return f"{run.parent.name}-{run.name}"
