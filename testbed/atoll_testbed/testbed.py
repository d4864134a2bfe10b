# SPDX-License-Identifier: Apache-2.0
"""The live testbed: machines, switches and controller on a platform, and the applied plan.

The daemon owns it from `up` to `down`, and runs use it. The main methods are ``start``, ``apply`` and ``stop``; the
rest is monitoring.
"""

import asyncio
import contextlib
import json
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from atoll_controller.fabric.reconciler import Reconciler
from atoll_controller.fabric.swap_executor import steps_of
from atoll_controller.fabric.swap_plan import Stage, StageKind, Subject, plan_swap
from atoll_controller.openflow.controller_client import Controller
from atoll_controller.openflow.runtime_python import interpreter
from atoll_controller.planner.diff import diff
from atoll_controller.planner.planner import make_plan
from atoll_core.codec import to_json
from atoll_core.errors import AtollError, LabError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.inventory import Inventory
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend, HostSettings, JobSpec, Phase, Plan
from atoll_core.plan.switch_features import Runtime
from atoll_core.plan.tc_settings import TIMER_SLACK
from atoll_core.units import Duration
from atoll_emulation.mininet_lab.emulated_lab import EmulatedLab
from atoll_hosts.job import Job
from atoll_hosts.machine import Machine
from atoll_testbed.box_connections import BoxConnections, ConnectionPolicy
from atoll_testbed.box_services import BoxLine, ProgramLine, Services
from atoll_testbed.live_swap import LiveSwap
from atoll_testbed.platforms.base import EmulatedPlatform, Platform
from atoll_testbed.testbed_diff import TestbedChange, flow_changes
from atoll_testbed.verification.cutover_verification import verify_cutover
from atoll_testbed.verification.path_verification import verify_paths
from atoll_testbed.verification.swap_verification import verify_drained, verify_entries

T = TypeVar("T")
Report = Callable[[str], None]
OnEvent = Callable[[dict[str, Any]], None]


class Testbed:
    """A lab that is up, with the applied plan. Create it with :meth:`start`."""

    __test__ = False  # not a test class, whatever its name looks like to pytest

    def __init__(
        self,
        platform: Platform,
        controller: Controller,
        runtime: Runtime,
        slack: Duration = TIMER_SLACK,
    ) -> None:
        self.platform = platform
        self.network = platform.network
        self.runtime = runtime
        self._slack = slack
        self.plan: Plan | None = None
        self.experiment: Experiment | None = None
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.on_box_line: BoxLine | None = None  # set by a run: takes the boxes' counters
        self.on_program_line: ProgramLine | None = None  # set by a run: takes the output of users' programs on boxes
        self.on_note: Report = _to_log  # takes remarks about incidents; a run replaces it
        self.on_event: OnEvent | None = None  # set by the daemon: takes states of switches and the boxes' counters
        self._machines: dict[str, HostSettings] = {}
        self._services = Services(platform, self._box_line, self._program_line, self._fail)
        self._swap: LiveSwap | None = None
        self._stopping = False
        self._switches = Reconciler(
            controller,
            self.network,
            lambda: platform.start_controller(runtime),
            self._note,
            lambda name, up: self._emit({"type": "switch", "switch": name, "state": "up" if up else "down"}),
        )
        self._watchers = [
            asyncio.create_task(self._watch(asyncio.shield(platform.failed))),
            asyncio.create_task(self._watch(self._switches.run())),
        ]

    @classmethod
    async def start(
        cls,
        network: Network,
        report: Report,
        runtime: Runtime = Runtime.OS_KEN,
        slack: Duration = TIMER_SLACK,
        inventory: Inventory | None = None,
    ) -> "Testbed":
        """Bring the lab up: machines, switches and a controller; the switches' tables are not changed.

        ``slack``: the timer slack of the platform. ``inventory``: of real machines; without one, the lab is emulated.
        Raises LabError or MachineError, and leaves nothing behind then.
        """
        interpreter(runtime)  # raises before there is anything to take down
        if inventory is None:
            platform = await EmulatedPlatform.start(network, report)
        else:
            from atoll_testbed.platforms.hardware import HardwarePlatform  # imports asyncssh

            platform = await HardwarePlatform.start(network, inventory, report)
            report("controller and switches")
        try:
            controller = await platform.start_controller(runtime)
            try:
                await platform.all_switches(controller)
            except BaseException:
                await controller.close()
                raise
        except BaseException:
            await platform.stop()
            raise
        return cls(platform, controller, runtime, slack)

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

    async def stop(self) -> None:
        """Take the lab down; returns when every process and namespace is gone."""
        self._stopping = True
        for watcher in self._watchers:
            watcher.cancel()
        if self._swap is not None:
            await self._swap.leave()
        await self._services.stop()
        with contextlib.suppress(LabError):
            await self.controller.close()
        await self.platform.stop()

    async def apply(
        self,
        experiment: Experiment,
        backend: Backend = Backend.ENGINE,
        *,
        dry_run: bool = False,
        at_once: bool = False,
        probes: bool = True,
        connections: ConnectionPolicy | None = None,
        tell: OnEvent | None = None,
        plan: Plan | None = None,
    ) -> tuple[Plan, tuple[TestbedChange, ...]]:
        """Apply an experiment to machines, boxes and switches with the fewest changes.

        If another experiment is applied, every packet in flight is forwarded by the old or the new one, never by a
        mixture: paths are swapped in stages (docs/swaps.md), and ``tell`` takes the events (docs/contracts.md).
        ``at_once``: switch immediately; the plan is then the one that the experiment has without a swap: ``plan``, if
        it was made before. ``probes``: verify entries on the data plane. ``connections``: policy for connections that a
        swap breaks. Plans are made in a thread, as a large one takes seconds. Returns the plan and the changes made
        (``dry_run``: that would be made). Raises PlanError before anything is changed, and LabError; machines, boxes
        and switches are back at the previous plan then. An error of ``tell`` does not affect a swap; it is raised when
        the swap is done.
        """
        if self._swap is not None and not self._swap.over:
            raise LabError(f"one swap at a time: {self._swap.held_up()}")
        if at_once or self.plan is None or self.experiment is None:
            if plan is None:
                plan = await asyncio.to_thread(make_plan, self.network, experiment, backend, slack=self._slack)
            return plan, await self._apply_at_once(
                plan, experiment, dry_run=dry_run, restart_traces=True, probes=probes
            )
        current = self.plan
        swap = await asyncio.to_thread(plan_swap, self.network, self.experiment, current.layout, experiment)
        plan = await asyncio.to_thread(make_plan, self.network, experiment, backend, swap.layout, self._slack)
        if dry_run or not swap.stages:
            return plan, await self._apply_at_once(
                plan, experiment, dry_run=dry_run, restart_traces=False, probes=probes
            )
        changes = (
            *self._machine_changes(plan),
            *self._services.changes(plan, restart_traces=False),
            *flow_changes(await asyncio.to_thread(diff, plan.flows, current.flows)),
        )
        steps = await asyncio.to_thread(steps_of, current, plan, swap)
        old, between = self.experiment, replace(self.experiment, latency=experiment.latency)

        async def verify_stage(stage: Stage) -> None:
            if probes:
                await verify_entries(self, stage.probes, between if stage.subject is Subject.LATENCY else experiment)

        async def wait_for_cutover(stage: Stage, before: Plan, after: Plan) -> None:
            if probes:
                await verify_cutover(self, stage.probes, before, after, (old, between, experiment))

        async def wait_for_drain(stage: Stage) -> None:
            leaving = (old, between) if stage.kind is StageKind.DRAIN else (between, experiment)
            if probes:
                await verify_drained(self, stage.probes, leaving[0 if stage.subject is Subject.LATENCY else 1])

        def on_cutover() -> None:
            self.plan, self.experiment = plan, experiment

        unreported: list[Exception] = []

        def emit(event: dict[str, Any]) -> None:
            for take in (self._emit, tell):
                try:
                    if take is not None:
                        take(event)
                except Exception as error:  # noqa: BLE001 - such as a full disk, which must not affect the swap
                    unreported.append(error)

        self._swap = LiveSwap(
            swap,
            steps,
            switches=self._switches,
            machines=self._apply_machines,
            services=self._services,
            boxes=BoxConnections(self.network, self.machine, self._services.restart, emit),
            connections=connections or ConnectionPolicy(),
            probe=verify_stage,
            taken=wait_for_cutover,
            drained=wait_for_drain,
            on_cutover=on_cutover,
            tell=emit,
        )
        await self._swap.carry_out(self.failed)
        if unreported:
            raise unreported[0]
        return plan, changes

    async def _apply_at_once(
        self, plan: Plan, experiment: Experiment, *, dry_run: bool, restart_traces: bool, probes: bool
    ) -> tuple[TestbedChange, ...]:
        async def verify_data_plane() -> None:
            if probes:
                await verify_paths(self, plan, experiment)

        changes = [*self._machine_changes(plan), *self._services.changes(plan, restart_traces=restart_traces)]
        if dry_run:
            return (*changes, *flow_changes(await self._switches.apply(plan, dry_run=True)))
        try:
            await self._apply_machines(plan)
            await self._services.reconcile(plan, restart_traces=restart_traces)
            changes += flow_changes(await self._switches.apply(plan, verify=verify_data_plane))
        except BaseException as error:
            await self._restore(self.plan, error)
            raise
        self.plan, self.experiment = plan, experiment
        return tuple(changes)

    async def _restore(self, plan: Plan | None, cause: BaseException) -> None:
        """Restore machines and boxes to the previous plan (None: no plan); the switches have been restored already."""
        try:
            await self._apply_machines(plan)
            await self._services.reconcile(plan, restart_traces=False)
        except AtollError as error:
            if isinstance(cause, AtollError):
                msg = f"{cause}; and not all machines and boxes could be restored to the previous plan: {error}"
                raise LabError(msg) from cause

    async def start_job(self, spec: JobSpec, run: Path, on_line: Callable[[dict[str, Any]], None] | None = None) -> Job:
        """Start a job of a plan; its files go to the run directory, or to a directory from which they are collected."""
        machine = self.machine(spec.host)
        at = await self.platform.directory(spec.host, run, spec.files) if spec.files else run
        config = json.loads(json.dumps(spec.config).replace("{run}", str(at)))
        if config and config.get("start_at_ns"):
            config["start_at_ns"] += machine.clock_offset_ns
        return await machine.start_job(
            spec.name,
            [word.replace("{run}", str(at)) for word in spec.argv],
            config=config,
            stdout=str(at / spec.stdout) if spec.stdout else "lines",
            stderr=str(at / spec.stderr) if spec.stderr else "lines",
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

    async def settled(self) -> None:
        """Wait until a restarted controller has repaired the switches and a swap has ended."""
        await self._switches.settled()
        if self._swap is not None:
            await self._swap.ended()

    @property
    def installed_plan(self) -> Plan | None:
        """The plan that the switches are kept at; during a swap, that of the current stage."""
        return self._switches.plan

    # Machines and boxes

    def _machine_changes(self, plan: Plan) -> list[TestbedChange]:
        changes: list[TestbedChange] = []
        for settings in plan.hosts:
            current = self._machines.get(settings.host)
            if current is None:
                changes.append(TestbedChange("machine", "add", settings.host, "not configured yet"))
            elif current != settings:
                changes.append(TestbedChange("machine", "modify", settings.host, "its settings differ from the plan"))
        return changes

    async def _apply_machines(self, plan: Plan | None) -> None:
        """Apply the settings of a plan to the machines; without a plan, undo all settings. Raises LabError."""
        wanted = {settings.host: settings for settings in plan.hosts} if plan is not None else {}
        changed = [host for host in (wanted or self._machines) if self._machines.get(host) != wanted.get(host)]

        async def change(host: str) -> None:
            if self._machines.pop(host, None) is not None:
                await self.machine(host).unset()
            if host in wanted:
                await self.machine(host).set(wanted[host])
                self._machines[host] = wanted[host]

        for outcome in await asyncio.gather(*map(change, changed), return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        await self.platform.linked(host for host in changed if host in wanted)

    def _box_line(self, box: str, line: dict[str, Any]) -> None:
        if self.on_box_line is not None:
            self.on_box_line(box, line)
        if line.get("type") == "counters":
            self._emit({"box": box, **line})

    def _program_line(self, job: str, line: str) -> None:
        if self.on_program_line is not None:
            self.on_program_line(job, line)

    # Monitoring

    def _note(self, text: str) -> None:
        try:
            self.on_note(text)
        except Exception as error:  # noqa: BLE001 - such as a full disk, which must not stop repairs of switches
            _to_log(f"{text} (not recorded: {error})")

    def _emit(self, event: dict[str, Any]) -> None:
        if self.on_event is not None:
            self.on_event(event)

    def _fail(self, reason: str) -> None:
        if not self._stopping and not self.failed.done():
            self.failed.set_result(reason)

    async def _watch(self, failure: Awaitable[str]) -> None:
        """Fail with the reason that ``failure`` returns, or with its unexpected error."""
        try:
            self._fail(await failure)
        except Exception as error:  # noqa: BLE001 - whatever it is
            traceback.print_exception(error)
            self._fail(f"internal error, the lab is no longer monitored: {type(error).__name__}: {error}")


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


def _to_log(text: str) -> None:
    sys.stderr.write(f"daemon: {text}\n")


def with_start(spec: JobSpec, start_at_ns: int) -> JobSpec:
    """The job with its start time (CLOCK_REALTIME, ns) filled in."""
    return replace(spec, config={**(spec.config or {}), "start_at_ns": start_at_ns})


def changes_json(changes: tuple[TestbedChange, ...]) -> list[Any]:
    """Changes as JSON objects."""
    return [to_json(change) for change in changes]
