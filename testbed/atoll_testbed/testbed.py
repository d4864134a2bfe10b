# SPDX-License-Identifier: Apache-2.0
"""The live testbed: machines, switches and controller of a place, and the plan they hold.

Owned by the daemon from `up` to `down`; a run borrows it. One method an arrow of the design:
``start``, ``apply``, ``stop``. Everything else is watching.
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
from atoll_controller.openflow.client import Controller
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
from atoll_testbed.platforms.base import EmulatedPlatform, Platform
from atoll_testbed.testbed_diff import TestbedChange, flow_changes
from atoll_testbed.testbed_swap import LiveSwap
from atoll_testbed.verification.cutover_verification import turned as turned_to
from atoll_testbed.verification.path_verification import verify
from atoll_testbed.verification.swap_verification import passed, probe

T = TypeVar("T")
Report = Callable[[str], None]
OnEvent = Callable[[dict[str, Any]], None]


class Testbed:
    """A lab that is up, with the plan it holds. Build it with :meth:`start`."""

    __test__ = False  # not a test class, whatever its name looks like to pytest

    def __init__(
        self,
        place: Platform,
        controller: Controller,
        runtime: Runtime,
        slack: Duration = TIMER_SLACK,
    ) -> None:
        self.place = place
        self.network = place.network
        self.runtime = runtime
        self._slack = slack
        self.plan: Plan | None = None
        self.experiment: Experiment | None = None
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.on_box_line: BoxLine | None = None  # set by a run that wants the boxes' counters
        self.on_program_line: ProgramLine | None = None  # likewise, what users' programs on boxes print
        self.on_note: Report = _to_log  # what happens to the testbed of its own accord; a run takes it over
        self.on_event: OnEvent | None = None  # set by the daemon: switches that go and come, the boxes' counters
        self._machines: dict[str, HostSettings] = {}
        self._services = Services(place, self._box_line, self._program_line, self._fail)
        self._swap: LiveSwap | None = None
        self._stopping = False
        self._switches = Reconciler(
            controller,
            self.network,
            lambda: place.start_controller(runtime),
            self._note,
            lambda name, up: self._tell({"type": "switch", "switch": name, "state": "up" if up else "down"}),
        )
        self._watchers = [
            asyncio.create_task(self._watch(asyncio.shield(place.failed))),
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
        """Bring the lab up: its machines, its switches, a controller; the switches' tables stay as they are.

        ``slack``: how late timers may be here. ``inventory``: of real machines; without, the lab is emulated. Raises
        LabError or MachineError; nothing is left behind then.
        """
        interpreter(runtime)  # before there is anything to take down again
        if inventory is None:
            place = await EmulatedPlatform.start(network, report)
        else:
            from atoll_testbed.platforms.hardware import HardwarePlatform  # which brings asyncssh

            place = await HardwarePlatform.start(network, inventory, report)
            report("controller and switches")
        try:
            controller = await place.start_controller(runtime)
            try:
                await place.all_switches(controller)
            except BaseException:
                await controller.close()
                raise
        except BaseException:
            await place.stop()
            raise
        return cls(place, controller, runtime, slack)

    @property
    def lab(self) -> EmulatedLab:
        """The emulated lab. Raises LabError where the lab is not emulated."""
        if isinstance(self.place, EmulatedPlatform):
            return self.place.lab
        raise LabError(
            f"there is no Mininet on {self.place.name}; `atoll hosts exec -- COMMAND` runs a command on its machines"
        )

    def machine(self, name: str) -> Machine:
        """The machine of that name (KeyError: no such machine)."""
        return self.place.machine(name)

    @property
    def controller(self) -> Controller:
        """The controller process: another one after that has died."""
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
        await self.place.stop()

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
    ) -> tuple[Plan, tuple[TestbedChange, ...]]:
        """Bring machines, boxes and switches to what the experiment asks for, by the smallest change.

        If another experiment stands, every packet under way sees it or the new one, never a mixture: its ways are
        swapped in stages (docs/swaps.md), of which ``tell`` gets the events (docs/contracts.md). ``at_once``: there is
        no traffic to spare; the plan is then the one that the experiment always has. ``probes``: entries are proven on
        the data plane. ``connections``: what becomes of those that break. Plans are made in a thread, as a large one
        takes seconds. Returns the plan and the changes made (``dry_run``: that would be made). Raises PlanError, before
        anything is touched, and LabError; machines, boxes and switches are back at the previous plan then. An error of
        ``tell`` changes nothing of a swap; it is raised when the swap has ended well.
        """
        if self._swap is not None and not self._swap.over:
            raise LabError(f"one swap at a time: {self._swap.held_up()}")
        if at_once or self.plan is None or self.experiment is None:
            plan = await asyncio.to_thread(make_plan, self.network, experiment, backend, slack=self._slack)
            return plan, await self._apply_at_once(plan, experiment, dry_run=dry_run, anew=True, probes=probes)
        standing = self.plan
        swap = await asyncio.to_thread(plan_swap, self.network, self.experiment, standing.layout, experiment)
        plan = await asyncio.to_thread(make_plan, self.network, experiment, backend, swap.layout, self._slack)
        if dry_run or not swap.stages:
            return plan, await self._apply_at_once(plan, experiment, dry_run=dry_run, anew=False, probes=probes)
        changes = (
            *self._machine_changes(plan),
            *self._services.changes(plan, anew=False),
            *flow_changes(await asyncio.to_thread(diff, plan.flows, standing.flows)),
        )
        moves = await asyncio.to_thread(steps_of, standing, plan, swap)
        old, between = self.experiment, replace(self.experiment, latency=experiment.latency)

        async def proven(stage: Stage) -> None:
            if probes:
                await probe(self, stage.probes, between if stage.subject is Subject.LATENCY else experiment)

        async def taken(stage: Stage, before: Plan, after: Plan) -> None:
            if probes:
                await turned_to(self, stage.probes, before, after, (old, between, experiment))

        async def drained(stage: Stage) -> None:
            leaving = (old, between) if stage.kind is StageKind.DRAIN else (between, experiment)
            if probes:
                await passed(self, stage.probes, leaving[0 if stage.subject is Subject.LATENCY else 1])

        def turned() -> None:
            self.plan, self.experiment = plan, experiment

        unreported: list[Exception] = []

        def say(event: dict[str, Any]) -> None:
            for take in (self._tell, tell):
                try:
                    if take is not None:
                        take(event)
                except Exception as error:  # noqa: BLE001 - a full disk, say; steering does not depend on it
                    unreported.append(error)

        self._swap = LiveSwap(
            swap,
            moves,
            switches=self._switches,
            machines=self._apply_machines,
            services=self._services,
            boxes=BoxConnections(self.network, self.machine, self._services.restart, say),
            connections=connections or ConnectionPolicy(),
            probe=proven,
            taken=taken,
            drained=drained,
            turned=turned,
            tell=say,
        )
        await self._swap.carry_out(self.failed)
        if unreported:
            raise unreported[0]
        return plan, changes

    async def _apply_at_once(
        self, plan: Plan, experiment: Experiment, *, dry_run: bool, anew: bool, probes: bool
    ) -> tuple[TestbedChange, ...]:
        async def proven() -> None:
            if probes:
                await verify(self, plan, experiment)

        changes = [*self._machine_changes(plan), *self._services.changes(plan, anew=anew)]
        if dry_run:
            return (*changes, *flow_changes(await self._switches.apply(plan, dry_run=True)))
        try:
            await self._apply_machines(plan)
            await self._services.settle(plan, anew=anew)
            changes += flow_changes(await self._switches.apply(plan, verify=proven))
        except BaseException as error:
            await self._back_to(self.plan, error)
            raise
        self.plan, self.experiment = plan, experiment
        return tuple(changes)

    async def _back_to(self, plan: Plan | None, cause: BaseException) -> None:
        """Bring machines and boxes back to the previous plan, None: to how they came up; the switches are there."""
        try:
            await self._apply_machines(plan)
            await self._services.settle(plan, anew=False)
        except AtollError as error:
            if isinstance(cause, AtollError):
                msg = f"{cause}; and not all machines and boxes are back at the previous plan: {error}"
                raise LabError(msg) from cause

    async def start_job(self, spec: JobSpec, run: Path, on_line: Callable[[dict[str, Any]], None] | None = None) -> Job:
        """Start one job of a plan; its files go below the run directory, or to where they are collected from."""
        machine = self.machine(spec.host)
        at = await self.place.directory(spec.host, run, spec.files) if spec.files else run
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
            directory=self.place.lab_folder if spec.phase is Phase.REPORT else None,
        )

    async def mark_boxes(self) -> dict[str, dict[str, Any]]:
        """End one measurement of every link and delay box and begin the next; what passed, by box name."""
        return await self._services.mark()

    async def start_traces(self) -> tuple[str, ...]:
        """Let every link that follows a trace begin it now; the boxes. An apply at once starts them anew."""
        return await self._services.start_traces()

    async def settled(self) -> None:
        """Wait until the controller, if it was being restarted, has repaired the switches, and a swap is over."""
        await self._switches.settled()
        if self._swap is not None:
            await self._swap.ended()

    @property
    def standing(self) -> Plan | None:
        """What the switches are kept at: the plan, in the middle of a swap that of its stage."""
        return self._switches.plan

    # Machines and boxes

    def _machine_changes(self, plan: Plan) -> list[TestbedChange]:
        changes: list[TestbedChange] = []
        for settings in plan.hosts:
            held = self._machines.get(settings.host)
            if held is None:
                changes.append(TestbedChange("machine", "add", settings.host, "not set up yet"))
            elif held != settings:
                changes.append(TestbedChange("machine", "modify", settings.host, "its settings differ from the plan"))
        return changes

    async def _apply_machines(self, plan: Plan | None) -> None:
        """Bring the machines to the settings of a plan; without one, undo those that were made. Raises LabError."""
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
        await self.place.linked(host for host in changed if host in wanted)

    def _box_line(self, box: str, line: dict[str, Any]) -> None:
        if self.on_box_line is not None:
            self.on_box_line(box, line)
        if line.get("type") == "counters":
            self._tell({"box": box, **line})

    def _program_line(self, job: str, line: str) -> None:
        if self.on_program_line is not None:
            self.on_program_line(job, line)

    # Watching

    def _note(self, text: str) -> None:
        try:
            self.on_note(text)
        except Exception as error:  # noqa: BLE001 - a full disk, say; the switches are repaired all the same
            _to_log(f"{text} (not recorded: {error})")

    def _tell(self, event: dict[str, Any]) -> None:
        if self.on_event is not None:
            self.on_event(event)

    def _fail(self, reason: str) -> None:
        if not self._stopping and not self.failed.done():
            self.failed.set_result(reason)

    async def _watch(self, failure: Awaitable[str]) -> None:
        """Fail for the reason that this returns, or for an unexpected error: nothing watches the lab then."""
        try:
            self._fail(await failure)
        except Exception as error:  # noqa: BLE001 - whatever it is
            traceback.print_exception(error)
            self._fail(f"internal error, the lab is not watched any more: {type(error).__name__}: {error}")


async def while_up(testbed: Testbed, work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` returns; LabError as soon as the testbed fails meanwhile, ``work`` being cancelled then."""
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
    """The job with the instant it is to begin at (CLOCK_REALTIME, ns) filled in."""
    return replace(spec, config={**(spec.config or {}), "start_at_ns": start_at_ns})


def changes_json(changes: tuple[TestbedChange, ...]) -> list[Any]:
    """Changes as JSON objects."""
    return [to_json(change) for change in changes]
