# SPDX-License-Identifier: Apache-2.0
"""The live testbed: emulated lab, controller and agent, and the plan they hold.

Owned by the keeper from `up` to `down`; a run borrows it. One method an arrow of the design:
``start``, ``apply``, ``stop``. Everything else is watching.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from atoll.control.plan import make_plan
from atoll.control.reconcile import Reconciler
from atoll.model.codec import to_json
from atoll.model.errors import AtollError, LabError
from atoll.model.experiment import Experiment
from atoll.model.flow import FlowEntry, ForeignEntry, describe_actions
from atoll.model.network import Network
from atoll.model.plan import Backend, HostSettings, JobSpec, Phase, Plan
from atoll.model.switch import Runtime
from atoll.model.tc import TIMER_SLACK
from atoll.model.units import Duration
from atoll.openflow.client import Controller
from atoll.openflow.interpreters import interpreter
from atoll_emulation.lab import EmulatedLab
from atoll_hosts.agent import Agent, Job
from atoll_hosts.binary import find_binary

_SWITCHES_TIMEOUT_S = 20.0
_READY_TIMEOUT_S = 10.0
_ASKED_TIMEOUT_S = 5.0  # for a program that has been asked to end

T = TypeVar("T")
Report = Callable[[str], None]
BoxLine = Callable[[str, dict[str, Any]], None]
OnEvent = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between what the testbed holds and what the plan wants."""

    kind: str  # "flow", "machine" or "box"
    action: str  # "add", "modify" or "delete"
    subject: str
    reason: str

    def __str__(self) -> str:
        return f"{self.action:<6} {self.kind:<7} {self.subject}: {self.reason}"


class Testbed:
    """A lab that is up, with the plan it holds. Build it with :meth:`start`."""

    __test__ = False  # not a test class, whatever its name looks like to pytest

    def __init__(
        self,
        network: Network,
        lab: EmulatedLab,
        controller: Controller,
        agent: Agent,
        runtime: Runtime,
        slack: Duration = TIMER_SLACK,
    ) -> None:
        self.network = network
        self.lab = lab
        self.agent = agent
        self.runtime = runtime
        self._slack = slack
        self.plan: Plan | None = None
        self.experiment: Experiment | None = None
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.on_box_line: BoxLine | None = None  # set by a run that wants the boxes' counters
        self.on_note: Report = _to_log  # what happens to the testbed of its own accord; a run takes it over
        self.on_event: OnEvent | None = None  # set by the keeper: switches that go and come, the boxes' counters
        self._machines: dict[str, HostSettings] = {}
        self._services: dict[str, tuple[JobSpec, Job]] = {}
        self._marks: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._next_mark = 1
        self._traces_begun: set[str] = set()  # services whose links have left the beginning of their trace
        self._stopping = False
        self._switches = Reconciler(
            controller,
            network,
            lambda: _start_controller(lab, network, runtime),
            lambda text: self.on_note(text),  # noqa: PLW0108 - a run takes `on_note` over
            lambda name, up: self._tell({"type": "switch", "switch": name, "state": "up" if up else "down"}),
        )
        self._watchers = [
            asyncio.create_task(self._watch_lab()),
            asyncio.create_task(self._watch_agent()),
            asyncio.create_task(self._watch_switches()),
        ]

    @classmethod
    async def start(
        cls, network: Network, report: Report, runtime: Runtime = Runtime.OS_KEN, slack: Duration = TIMER_SLACK
    ) -> "Testbed":
        """Bring the lab up: namespaces, switches, machines, controller, agent; the switches' tables stay empty.

        ``slack``: how late timers may be here. Raises LabError or MachineError; nothing is left behind then.
        """
        binary = find_binary()
        interpreter(runtime)  # before there is anything to take down again
        async with contextlib.AsyncExitStack() as undo:
            lab = await EmulatedLab.start(network, report)
            undo.push_async_callback(lab.stop)
            report("controller and agent")
            agent = await Agent.start(lab.enter(), binary)
            undo.push_async_callback(agent.close)
            controller = await _start_controller(lab, network, runtime)
            undo.pop_all()
        return cls(network, lab, controller, agent, runtime, slack)

    @property
    def controller(self) -> Controller:
        """The controller process: another one after that has died."""
        return self._switches.controller

    async def stop(self) -> None:
        """Take the lab down; returns when every process and namespace is gone."""
        self._stopping = True
        for watcher in self._watchers:
            watcher.cancel()
        for spec, job in self._services.values():
            with contextlib.suppress(LabError):
                await (self._end_service(spec, job) if spec.stop else job.stop(1.0))
        self._services.clear()
        with contextlib.suppress(LabError):
            await self.agent.close()
        with contextlib.suppress(LabError):
            await self.controller.close()
        await self.lab.stop()

    def netns(self, machine: str) -> str:
        """The network namespace of a machine, as a path inside the lab (KeyError: no such machine)."""
        return f"/proc/{self.lab.hosts[machine]}/ns/net"

    async def apply(
        self, experiment: Experiment, backend: Backend = Backend.ENGINE, *, dry_run: bool = False
    ) -> tuple[Plan, tuple[Change, ...]]:
        """Bring machines, boxes and switches to what the experiment asks for, by the smallest change.

        Returns the plan and the changes made (``dry_run``: that would be made). Raises PlanError, LabError.
        """
        plan = make_plan(self.network, experiment, backend, slack=self._slack)
        changes = [*self._machine_changes(plan), *self._service_changes(plan)]
        if not dry_run:
            await self._apply_machines(plan)
            await self._apply_services(plan)
        flow_changes = await self._switches.apply(plan, dry_run=dry_run)
        changes += [
            Change(
                "flow",
                change.action,
                f"{change.entry.switch} {_in_words(change.entry)}",
                change.reason,
            )
            for change in flow_changes
        ]
        if not dry_run:
            self.plan, self.experiment = plan, experiment
        return plan, tuple(changes)

    async def start_job(self, spec: JobSpec, run: Path, on_line: Callable[[dict[str, Any]], None] | None = None) -> Job:
        """Start one job of a plan; its files go below the run directory."""
        return await self.agent.start_job(
            spec.name,
            [word.replace("{run}", str(run)) for word in spec.argv],
            netns=self.netns(spec.host),
            config=json.loads(json.dumps(spec.config).replace("{run}", str(run))) if spec.config is not None else None,
            stdout=str(run / spec.stdout) if spec.stdout else "lines",
            stderr=str(run / spec.stderr) if spec.stderr else "lines",
            on_line=on_line,
        )

    async def mark_boxes(self) -> dict[str, dict[str, Any]]:
        """End one measurement of every link and delay box and begin the next; what passed, by box name."""
        answers: dict[str, dict[str, Any]] = {}
        for name, (spec, job) in self._services.items():
            if spec.config is None:
                continue  # a program brought along: it knows no marks
            number, self._next_mark = self._next_mark, self._next_mark + 1
            answer = self._marks[number] = asyncio.get_running_loop().create_future()
            await job.send({"op": "mark", "id": number})
            try:
                answers[spec.host] = await asyncio.wait_for(answer, _READY_TIMEOUT_S)
            except TimeoutError:
                msg = f"{name} did not answer within {_READY_TIMEOUT_S:g} s"
                raise LabError(msg) from None
            finally:
                del self._marks[number]
        return answers

    async def start_traces(self) -> tuple[str, ...]:
        """Let every link that follows a trace begin it now; the boxes. The next :meth:`apply` starts them anew."""
        begun: list[str] = []
        for name, (spec, job) in self._services.items():
            if _follows_trace(spec):
                number, self._next_mark = self._next_mark, self._next_mark + 1
                self._traces_begun.add(name)
                await job.send({"op": "trace-start", "id": number})
                begun.append(spec.host)
        return tuple(begun)

    async def settled(self) -> None:
        """Wait until the controller, if it was being restarted, has repaired the switches."""
        await self._switches.settled()

    # Machines and boxes

    def _machine_changes(self, plan: Plan) -> list[Change]:
        changes: list[Change] = []
        for settings in plan.hosts:
            held = self._machines.get(settings.host)
            if held is None:
                changes.append(Change("machine", "add", settings.host, "not set up yet"))
            elif held != settings:
                changes.append(Change("machine", "modify", settings.host, "its settings differ from the plan"))
        return changes

    async def _apply_machines(self, plan: Plan) -> None:
        wanted = [settings for settings in plan.hosts if self._machines.get(settings.host) != settings]
        for settings in wanted:
            if settings.host in self._machines:
                await self.agent.unset_host(settings.host)
                del self._machines[settings.host]
        await asyncio.gather(*(self.agent.set_host(settings, self.netns(settings.host)) for settings in wanted))
        self._machines |= {settings.host: settings for settings in wanted}

    def _service_changes(self, plan: Plan) -> list[Change]:
        wanted = _services_of(plan)
        changes: list[Change] = []
        for name, (spec, _) in self._services.items():
            if name not in wanted:
                changes.append(Change("box", "delete", spec.host, "not in the plan"))
        for name, spec in wanted.items():
            if name not in self._services:
                changes.append(Change("box", "add", spec.host, f"{' '.join(spec.argv)} is not running"))
            elif self._services[name][0] != spec:
                changes.append(Change("box", "modify", spec.host, "its configuration differs from the plan"))
            elif name in self._traces_begun:
                changes.append(Change("box", "modify", spec.host, "it is no longer at the beginning of its trace"))
        return changes

    async def _apply_services(self, plan: Plan) -> None:
        wanted = _services_of(plan)
        for name, (spec, job) in list(self._services.items()):
            if name not in wanted or wanted[name] != spec or name in self._traces_begun:
                self._traces_begun.discard(name)
                del self._services[name]  # before it ends: its watcher tells this end from a failure by that
                await self._end_service(spec, job)
        for name, spec in wanted.items():
            if name not in self._services:
                job = await self.agent.start_job(
                    name,
                    list(spec.argv),
                    netns=self.netns(spec.host),
                    config=spec.config,
                    stdout="lines",
                    stderr="lines",
                    on_line=_with_box(spec.host, self._box_line),
                )
                if spec.config is not None:  # one of our own: it says when it is ready
                    await job.ready(_READY_TIMEOUT_S)
                self._services[name] = (spec, job)
                task = asyncio.create_task(self._watch_service(name, job))
                self._watchers.append(task)

    async def _end_service(self, spec: JobSpec, job: Job) -> None:
        """Ask a box to end as it wants to be asked; SIGTERM if that does not help, then SIGKILL."""
        if spec.stop:
            asked = await self.agent.start_job(f"stop-{spec.name}", list(spec.stop), netns=self.netns(spec.host))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(asked.wait(), job.wait()), _ASKED_TIMEOUT_S)
            await asked.stop(0)
        await job.stop(1.0)
        await job.wait()

    def _box_line(self, box: str, line: dict[str, Any]) -> None:
        if line.get("type") == "mark":
            answer = self._marks.get(line.get("id", 0))
            if answer is not None and not answer.done():
                answer.set_result(line)
            return
        if line.get("type") == "trace-start" and line.get("ok") is False:
            self._fail(f"{box} does not follow its trace: {line.get('error')}")
        if self.on_box_line is not None:
            self.on_box_line(box, line)
        if line.get("type") == "counters":
            self._tell({"box": box, **line})

    # Watching

    def _tell(self, event: dict[str, Any]) -> None:
        if self.on_event is not None:
            self.on_event(event)

    def _fail(self, reason: str) -> None:
        if not self._stopping and not self.failed.done():
            self.failed.set_result(reason)

    async def _watch_lab(self) -> None:
        self._fail(f"the lab ended: {await asyncio.shield(self.lab.dead)}")

    async def _watch_agent(self) -> None:
        await asyncio.shield(self.agent.closed)
        self._fail("the agent died; every job on every machine has ended")

    async def _watch_service(self, name: str, job: Job) -> None:
        ended = await job.wait()
        if name in self._services and self._services[name][1] is job:
            self._fail(f"{name} ended unexpectedly ({ended})")

    async def _watch_switches(self) -> None:
        self._fail(await self._switches.run())


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
    sys.stderr.write(f"keeper: {text}\n")


def _services_of(plan: Plan) -> dict[str, JobSpec]:
    return {spec.name: spec for spec in plan.jobs if spec.phase is Phase.SERVICE}


def _follows_trace(spec: JobSpec) -> bool:
    config = spec.config or {}
    return any("trace" in config.get(way, {}) for way in ("to_island", "to_world"))


def _with_box(box: str, take: BoxLine) -> Callable[[dict[str, Any]], None]:
    return lambda line: take(box, line)


async def _start_controller(lab: EmulatedLab, network: Network, runtime: Runtime) -> Controller:
    controller = await Controller.start(lab.enter(), interpreter(runtime), runtime=runtime)
    try:
        await controller.wait_for([switch.dpid for switch in network.switches], _SWITCHES_TIMEOUT_S)
    except BaseException:
        await controller.close()
        raise
    return controller


def with_start(spec: JobSpec, start_at_ns: int) -> JobSpec:
    """The job with the instant it is to begin at (CLOCK_REALTIME, ns) filled in."""
    return replace(spec, config={**(spec.config or {}), "start_at_ns": start_at_ns})


def _in_words(entry: FlowEntry | ForeignEntry) -> str:
    if isinstance(entry, ForeignEntry) or entry.why:
        return entry.why
    return f"{entry.match}: {describe_actions(entry.actions)}"  # read from a switch, which does not hold why


def changes_json(changes: tuple[Change, ...]) -> list[Any]:
    """Changes as JSON objects."""
    return [to_json(change) for change in changes]
