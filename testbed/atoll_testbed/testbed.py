# SPDX-License-Identifier: Apache-2.0
"""The live testbed: machines, switches and controller on a platform, and the applied plan.

The daemon owns it from `up` to `down`, and runs use it. The main methods are ``start``, ``apply`` and ``stop``; the
rest is monitoring.
"""

import asyncio
import contextlib
import json
import traceback
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from atoll_controller.fabric.reconciler import Reconciler
from atoll_controller.fabric.swap_detours import boxes_of
from atoll_controller.fabric.swap_executor import SwapVerifier, steps_of
from atoll_controller.fabric.swap_plan import Swap, plan_swap
from atoll_controller.openflow.controller_client import Controller, interpreter
from atoll_controller.planner.entry_diff import FlowChange, diff
from atoll_controller.planner.planner import make_plan
from atoll_core.errors import AtollError, LabError
from atoll_core.events.event_bus import EventBus
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.inventory import Inventory
from atoll_core.lab.network import Network
from atoll_core.plan.flow_entry import FlowEntry, UnmanagedEntry, describe_actions
from atoll_core.plan.plan import Backend, JobSpec, Phase, Plan
from atoll_core.plan.switch_features import Runtime
from atoll_core.plan.tc_settings import TIMER_SLACK
from atoll_core.platforms import HARDWARE
from atoll_core.units import Duration
from atoll_emulation.mininet_lab.emulated_lab import EmulatedLab
from atoll_hosts.job import Job
from atoll_hosts.machine import Machine
from atoll_testbed.box_connections import BoxConnections, ConnectionPolicy
from atoll_testbed.box_services import Services, TestbedChange
from atoll_testbed.live_swap import LiveSwap, ProbeVerifier
from atoll_testbed.machine_reconciler import MachineReconciler
from atoll_testbed.platforms.base import EmulatedPlatform, Platform
from atoll_testbed.verification.path_verification import verify_paths

T = TypeVar("T")


class Testbed:
    """A lab that is up, with the applied plan. Create it with :meth:`start`.

    ``events``: takes everything that happens on it: states of switches, swaps, notes, counters of boxes.
    """

    __test__ = False  # not a test class, whatever its name looks like to pytest

    def __init__(
        self,
        platform: Platform,
        controller: Controller,
        runtime: Runtime,
        slack: Duration = TIMER_SLACK,
        events: EventBus | None = None,
    ) -> None:
        self.platform = platform
        self.network = platform.network
        self.runtime = runtime
        self.events = events or EventBus()
        self._slack = slack
        self.plan: Plan | None = None
        self.experiment: Experiment | None = None
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._services = Services(platform, self.events, self._fail)
        self._machines = MachineReconciler(platform, self._services)
        self._swap: LiveSwap | None = None
        self._stopping = False
        self._switches = Reconciler(controller, self.network, lambda: platform.start_controller(runtime), self.events)
        self._watchers = [
            asyncio.create_task(self._watch(asyncio.shield(platform.failed))),
            asyncio.create_task(self._watch(self._switches.run())),
        ]

    @classmethod
    async def start(
        cls,
        network: Network,
        events: EventBus | None = None,
        runtime: Runtime = Runtime.OS_KEN,
        slack: Duration = TIMER_SLACK,
        inventory: Inventory | None = None,
    ) -> "Testbed":
        """Bring the lab up: machines, switches and a controller; the entries of in-band control, and no others.

        ``events``: of the testbed. ``slack``: the timer slack of the platform. ``inventory``: of real machines; without
        one, the lab is emulated. Raises LabError or MachineError, and leaves nothing behind then.
        """
        events = events or EventBus()
        interpreter(runtime)  # raises before there is anything to take down
        if inventory is None:
            platform, controller = await EmulatedPlatform.start(network, runtime, events)
        else:
            from atoll_testbed.platforms.hardware import HardwarePlatform  # imports asyncssh

            platform, controller = await HardwarePlatform.start(network, inventory, runtime, events)
        try:
            await platform.wait_for_switches(controller)
        except BaseException:
            await controller.close()
            await platform.stop()
            raise
        return cls(platform, controller, runtime, slack, events)

    @property
    def lab(self) -> EmulatedLab:
        """The emulated lab. Raises LabError where the lab is not emulated."""
        if isinstance(self.platform, EmulatedPlatform):
            return self.platform.lab
        raise LabError(
            f"there is no Mininet on {self.platform.name}; `atoll hosts exec -- COMMAND` runs a command on its machines"
        )

    def machine(self, name: str) -> Machine:
        """The machine with a name (KeyError: no such machine)."""
        return self.platform.machine(name)

    @property
    def controller(self) -> Controller:
        """The controller process; a new one after it has died."""
        return self._switches.controller

    async def stop(self) -> tuple[str, ...]:
        """Take the lab down; returns when every process and namespace is gone.

        Returns a line for each setting that real machines may still have.
        """
        self._stopping = True
        for watcher in self._watchers:
            watcher.cancel()
        if self._swap is not None:
            await self._swap.abandon()
        try:
            leftovers = await self._services.stop()
            if self.platform.name == HARDWARE:
                leftovers += await self._machines.undo()
        finally:
            with contextlib.suppress(LabError):
                await self.controller.close()
            await self.platform.stop()
        return leftovers if self.platform.name == HARDWARE else ()

    async def apply(
        self,
        experiment: Experiment,
        backend: Backend = Backend.ENGINE,
        *,
        dry_run: bool = False,
        at_once: bool = False,
        probes: bool = True,
        connections: ConnectionPolicy | None = None,
        plan: Plan | None = None,
        on_swap: Callable[[Swap], None] | None = None,
    ) -> tuple[Plan, tuple[TestbedChange, ...]]:
        """Apply an experiment to machines, boxes and switches with the fewest changes.

        If another experiment is applied, every packet in flight is forwarded by the old or the new one, never by a
        mixture: paths are swapped in stages (docs/swaps.md), which are events of the testbed (docs/contracts.md).
        ``at_once``: switch immediately; the plan is then the one that the experiment has without a swap: ``plan``, if
        it was made before. ``probes``: verify entries on the data plane. ``connections``: policy for connections that a
        swap breaks. ``on_swap``: called with the planned swap, even if ``dry_run``. Plans are made in a thread, as a
        large one takes seconds. Returns the plan and the changes made (``dry_run``: that would be made). Raises
        PlanError before anything is changed, and LabError; machines, boxes and switches are back at the previous plan
        then.
        """
        if self._swap is not None and not self._swap.is_over:
            raise LabError(f"one swap at a time: {self._swap.pending_text()}")
        if at_once or self.plan is None or self.experiment is None:
            if plan is None:
                plan = await asyncio.to_thread(make_plan, self.network, experiment, backend, slack=self._slack)
            return plan, await self._apply_at_once(
                plan, experiment, dry_run=dry_run, restart_traces=True, probes=probes
            )
        current = self.plan
        swap = await asyncio.to_thread(plan_swap, self.network, self.experiment, current.layout, experiment)
        plan = await asyncio.to_thread(make_plan, self.network, experiment, backend, swap.layout, self._slack)
        if on_swap is not None:
            on_swap(swap)
        boxes_of_versions = [boxes_of(version) for version in swap.versions]
        idle = {box.name for box in self.network.boxes if not all(box.name in boxes for boxes in boxes_of_versions)}
        if dry_run or not swap.stages:
            return plan, await self._apply_at_once(
                plan, experiment, dry_run=dry_run, restart_traces=False, probes=probes, idle=idle
            )
        changes = (
            *self._machines.changes(plan, restart_traces=False, idle=idle),
            *_flow_changes(await asyncio.to_thread(diff, plan.flows, current.flows)),
        )
        steps = await asyncio.to_thread(steps_of, current, plan, swap)

        def cut_over() -> None:
            self.plan, self.experiment = plan, experiment

        self._swap = LiveSwap(
            swap,
            steps,
            switches=self._switches,
            machines=self._machines,
            network=self.network,
            connections=BoxConnections(
                self.network,
                self.machine,
                self._services.restart,
                self._machines.admit,
                self.events,
                connections or ConnectionPolicy(),
            ),
            verifier=ProbeVerifier(self, swap) if probes else SwapVerifier(),
            events=self.events,
            on_cutover=cut_over,
        )
        await self._swap.carry_out(self.failed)
        return plan, changes

    async def _apply_at_once(
        self,
        plan: Plan,
        experiment: Experiment,
        *,
        dry_run: bool,
        restart_traces: bool,
        probes: bool,
        idle: Collection[str] = (),
    ) -> tuple[TestbedChange, ...]:
        async def verify_data_plane() -> None:
            if probes:
                await verify_paths(self, plan, experiment)

        changes = self._machines.changes(plan, restart_traces=restart_traces, idle=idle)
        if dry_run:
            return (*changes, *_flow_changes(await self._switches.apply(plan, dry_run=True)))
        try:
            await self._machines.reconcile(plan, restart_traces=restart_traces)
            changes += _flow_changes(await self._switches.apply(plan, verify=verify_data_plane))
        except BaseException as cause:  # the switches have been restored already
            try:
                await self._machines.restore(self.plan)
            except AtollError as error:
                if isinstance(cause, AtollError):
                    problem = "not all machines and boxes could be restored to the previous plan"
                    raise LabError(f"{cause}; and {problem}: {error}; run `atoll down`") from cause
            raise
        self.plan, self.experiment = plan, experiment
        return changes

    async def start_job(self, spec: JobSpec, run: Path, on_line: Callable[[dict[str, Any]], None] | None = None) -> Job:
        """Start a job of a plan; its files go to the run directory, or to a directory from which they are collected."""
        machine = self.machine(spec.host)
        directory = await self.platform.directory(spec.host, run, spec.files) if spec.files else run
        config = json.loads(json.dumps(spec.config).replace("{run}", str(directory)))
        if config and config.get("start_at_ns"):
            config["start_at_ns"] += machine.clock_offset_ns
        return await machine.start_job(
            spec.name,
            [argument.replace("{run}", str(directory)) for argument in spec.argv],
            config=config,
            stdout=str(directory / spec.stdout) if spec.stdout else "lines",
            stderr=str(directory / spec.stderr) if spec.stderr else "lines",
            on_line=on_line,
            limits=spec.limits,
            privileges=spec.privileges,
            directory=self.platform.lab_folder if spec.phase is Phase.REPORT else None,
        )

    async def mark_boxes(self) -> dict[str, dict[str, Any]]:
        """End a measurement of every link and delay box and begin the next; returns the counters by box name."""
        return await self._services.mark()

    async def start_traces(self) -> tuple[str, ...]:
        """Make every link that follows a trace begin it now; returns the boxes. An immediate apply restarts traces."""
        return await self._services.start_traces()

    async def set_link(self, box: str, request: dict[str, Any]) -> None:
        """Change a running link (docs/contracts.md, "link"). An immediate apply undoes it. Raises LabError."""
        await self._services.set_link(box, request)

    async def wait_until_settled(self) -> None:
        """Wait until a restarted controller has repaired the switches and a swap has ended."""
        await self._switches.wait_until_settled()
        if self._swap is not None:
            await self._swap.wait_for_end()

    @property
    def installed_plan(self) -> Plan | None:
        """The plan that the switches are kept at; during a swap, that of the current stage."""
        return self._switches.plan

    # Monitoring

    def _fail(self, reason: str) -> None:
        if not self._stopping and not self.failed.done():
            self.failed.set_result(reason)

    async def _watch(self, failure: Awaitable[str]) -> None:
        """Fail with the reason that ``failure`` returns, or with its unexpected error."""
        try:
            self._fail(await failure)
        except Exception as error:  # noqa: BLE001 - whatever it is
            traceback.print_exception(error)
            self._fail(f"internal error: the lab is no longer monitored: {type(error).__name__}: {error}")


async def while_up(testbed: Testbed, work: Coroutine[Any, Any, T]) -> T:
    """Await ``work`` and return its result. If the testbed fails meanwhile, cancel ``work`` and raise LabError."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task, testbed.failed], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise LabError(testbed.failed.result())
        return task.result()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, AtollError):
            await task


def _flow_changes(changes: Iterable[FlowChange]) -> tuple[TestbedChange, ...]:
    return tuple(
        TestbedChange("flow", change.action, f"{change.entry.switch} {_entry_text(change.entry)}", change.reason)
        for change in changes
    )


def _entry_text(entry: FlowEntry | UnmanagedEntry) -> str:
    if isinstance(entry, UnmanagedEntry) or entry.why:
        return entry.why
    return f"{entry.match}: {describe_actions(entry.actions)}"  # read from a switch, so without a reason
