# SPDX-License-Identifier: Apache-2.0
"""Programs of boxes: links, delay boxes and users' programs. They run as long as the applied plan contains them."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from atoll_controller.planner.running_changes import running_changes
from atoll_core.errors import LabError, PlanError
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import Counters, Note, ProgramOutput
from atoll_core.experiment.experiment import DIRECTIONS
from atoll_core.plan.plan import JobLimits, JobSpec, Phase, Plan
from atoll_hosts.job import Job
from atoll_testbed.platforms.base import Platform

_ANSWER_TIMEOUT_S = 10.0
_POLL_S = 0.05
_GRACE_S = 1.0  # from SIGTERM to SIGKILL; settings of tc are undone in it
_STOP_TIMEOUT_S = 5.0  # for a program that has been asked to end
_START_TIME_S = 1.0  # a program that ends within this time has not started; an interpreter finds syntax errors sooner


@dataclass(frozen=True, slots=True)
class TestbedChange:
    """One difference between a testbed and a plan."""

    kind: str  # "flow", "machine" or "box"
    action: str  # "add", "modify" or "delete"
    subject: str
    reason: str

    def __str__(self) -> str:
        return f"{self.action:<6} {self.kind:<7} {self.subject}: {self.reason}"


@dataclass(slots=True)
class _Running:
    """A program that runs. ``limits``: those that it has now. ``drifted``: it is no longer as it began."""

    spec: JobSpec
    job: Job
    limits: JobLimits
    drifted: bool = False


class Services:
    """The programs that run on the boxes of a testbed.

    ``events``: takes the counters of boxes and the output of users' programs. ``on_failure``: takes a line about a
    program that ended unexpectedly, refused a request or cannot do its work.
    """

    def __init__(self, platform: Platform, events: EventBus, on_failure: Callable[[str], None]) -> None:
        self._platform = platform
        self._events = events
        self._on_failure = on_failure
        self._running: dict[str, _Running] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}  # by id of the request
        self._next_id = 1
        self._counters: dict[str, dict[str, Any]] = {}  # latest counters by box

    def changes(self, plan: Plan, *, restart_traces: bool, idle: Collection[str] = ()) -> tuple[TestbedChange, ...]:
        """The changes that lead to the services of a plan; ``restart_traces``: traces begin again.

        ``idle``: boxes that no packet passes when their programs begin again. Without ``restart_traces``, raises
        PlanError naming the settings that programs on other boxes do not take while they run.
        """
        specs = _services_of(plan)
        changes = [
            TestbedChange("box", "delete", running.spec.host, "not in the plan")
            for name, running in self._running.items()
            if name not in specs
        ]
        refusals: list[str] = []
        for name, spec in specs.items():
            if name not in self._running:
                changes.append(TestbedChange("box", "add", spec.host, f"{' '.join(spec.argv)} is not running"))
                continue
            try:
                reason = _reason(self._running[name], spec, restart_traces=restart_traces, idle=spec.host in idle)
            except PlanError as error:
                refusals.append(
                    f"{spec.host}: its program does not take other settings ({error}) while it runs; keep them, or use "
                    "--immediate, which loses packets and connections in it"
                )
                continue
            if reason:
                changes.append(TestbedChange("box", "modify", spec.host, reason))
        if refusals:
            raise PlanError("\n".join(refusals))
        return tuple(changes)

    async def add(self, plan: Plan | None, kept_boxes: Collection[str] = ()) -> None:
        """Start the plan's services that are not running, but on boxes ``kept_boxes``; others continue unchanged.

        Raises LabError with the last lines of users' programs that end at once.
        """
        programs: dict[str, Job] = {}  # not watched yet: their end is an error of this call, not of the lab
        try:
            for name, spec in _services_of(plan).items():
                if name not in self._running and spec.host not in kept_boxes:
                    job = await self._start(name, spec)
                    if _is_builtin(spec):
                        self._watch(name, job)
                    else:
                        programs[name] = job
            await _wait_for_first_end(programs.values(), _START_TIME_S)
        finally:
            ended = {name: job for name, job in programs.items() if job.exit is not None}
            for name in programs.keys() - ended:
                self._watch(name, programs[name])
        if ended:
            raise LabError("; ".join(f"{name} ended at once: {job.exit_text()}" for name, job in ended.items()))

    async def reconcile(self, plan: Plan | None, *, restart_traces: bool) -> None:
        """Make the running services those of a plan: change those that differ, or restart them, and start missing ones.

        Without a plan, stop all. ``restart_traces``: restart all that differ, links that follow their trace, and those
        that were changed. Raises LabError.
        """
        specs = _services_of(plan)
        for name, running in list(self._running.items()):
            spec = specs.get(name)
            if running.job.exit is not None or spec is None:
                continues = False
            elif restart_traces:
                continues = running.spec == spec and not running.drifted
            else:
                continues = running.spec == spec or await self._take_settings(name, running, spec)
            if not continues:
                await self._end(name)
        await self.add(plan)

    async def _take_settings(self, name: str, running: _Running, spec: JobSpec) -> bool:
        """Give a program other settings while it runs; returns whether it has taken them."""
        try:
            requests = running_changes(running.spec, spec, drifted=running.drifted)
            if (spec.limits.data_bytes or 0) > (running.limits.data_bytes or 0):
                await running.job.raise_memory(spec.limits.data_bytes or 0)
                running.limits = spec.limits
            for request in requests:
                await self._send_request(name, running.job, request)
        except PlanError:
            return False
        except LabError as error:
            self._events.publish(Note(f"{name} begins again, and loses packets and connections in it: {error}"))
            return False
        running.spec, running.drifted = spec, True
        return True

    async def end(self, plan: Plan, boxes: Collection[str]) -> None:
        """Stop the programs of these boxes that a plan does not have, or has otherwise. Raises LabError."""
        specs = _services_of(plan)
        for name in self._programs_on(boxes):
            if specs.get(name) != self._running[name].spec:
                await self._end(name)

    async def restart(self, box: str) -> None:
        """Restart a box's program, which ends its connections. Raises LabError."""
        for name in self._programs_on([box]):
            spec = self._running[name].spec
            await self._end(name)
            self._watch(name, await self._start(name, spec))

    async def mark(self) -> dict[str, dict[str, Any]]:
        """End a measurement of every link and delay box and begin the next; returns the counters by box name."""
        return {
            running.spec.host: await self._send_request(name, running.job, {"op": "mark"})
            for name, running in self._running.items()
            if _is_builtin(running.spec)  # users' programs have no marks
        }

    async def admit(self, box: str, *, on: bool) -> None:
        """Let a box's program take new connections, or none. Raises LabError."""
        for name in self._programs_on([box]):
            await self._send_request(name, self._running[name].job, {"op": "set", "admit": on})

    def _programs_on(self, boxes: Collection[str]) -> list[str]:
        """The names of the programs that run on these boxes."""
        return [name for name, running in self._running.items() if running.spec.host in boxes]

    async def set_link(self, box: str, request: dict[str, Any]) -> None:
        """Change a running link. Raises LabError if it refuses."""
        name = f"link-{box}"
        if name not in self._running:
            raise LabError(f"{name} is not running")
        self._running[name].drifted = True
        await self._send_request(name, self._running[name].job, request)

    async def _send_request(self, name: str, job: Job, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request, and return the answer. Raises LabError if there is none, or a refusal."""
        request_id, self._next_id = self._next_id, self._next_id + 1
        answer = self._answers[request_id] = asyncio.get_running_loop().create_future()
        try:
            await job.send({**request, "id": request_id})
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                line = await answer
        except TimeoutError:
            answer_to = f"answer '{request['op']}' within {_ANSWER_TIMEOUT_S:g} s"
            raise LabError(f"{name} did not {answer_to}: {job.exit_text()}") from None
        finally:
            del self._answers[request_id]
        if not line.get("ok", True):
            raise LabError(f"{name}: {line['error']}")
        return line

    async def wait_until_empty(self, boxes: Mapping[str, Collection[str]], limit_s: float) -> tuple[str, ...]:
        """Wait until the next counters of boxes say that these levels are 0; returns the boxes where that is not so."""
        self._counters.clear()

        def has_packets(box: str) -> bool:
            counters = self._counters.get(box)
            return counters is None or any(counters.get(level) for level in boxes[box])

        clock = asyncio.get_running_loop()
        deadline = clock.time() + limit_s
        while (occupied := tuple(filter(has_packets, boxes))) and clock.time() < deadline:  # noqa: ASYNC110 - counters come
            await asyncio.sleep(_POLL_S)
        return occupied

    async def start_traces(self) -> tuple[str, ...]:
        """Make every link that follows a trace begin it now; returns the boxes. :meth:`reconcile` can restart them."""
        boxes: list[str] = []
        for running in self._running.values():
            if any("trace" in (running.spec.config or {}).get(direction, {}) for direction in DIRECTIONS):
                request_id, self._next_id = self._next_id, self._next_id + 1
                running.drifted = True
                await running.job.send({"op": "trace-start", "id": request_id})
                boxes.append(running.spec.host)
        return tuple(boxes)

    async def stop(self) -> tuple[str, ...]:
        """Stop all services; returns a line for each of ours that did not end as it should."""
        for watcher in self._watchers:
            watcher.cancel()
        for name, running in list(self._running.items()):
            with contextlib.suppress(LabError):
                await (self._end(name) if running.spec.stop else running.job.stop(_GRACE_S))
        failures: list[str] = []
        for name, running in self._running.items():
            try:
                async with asyncio.timeout(_STOP_TIMEOUT_S):
                    ended = await running.job.wait()
            except (LabError, TimeoutError):
                failures.append(f"{running.spec.host}: it is not known whether {name} has ended")
                continue
            if _is_builtin(running.spec) and (ended.code or ended.signal not in (None, "TERM")):
                failures.append(f"{running.spec.host}: {name} did not end as it should: {running.job.exit_text()}")
        self._running.clear()
        return tuple(failures)

    async def _start(self, name: str, spec: JobSpec) -> Job:
        is_builtin = _is_builtin(spec)
        job = await self._platform.machine(spec.host).start_job(
            name,
            spec.argv,
            config=spec.config,
            stdout="lines",
            stderr="lines",
            on_line=partial(self._on_line, spec.host),
            on_output=None if is_builtin else partial(self._publish_output, name),
            limits=spec.limits,
            privileges=spec.privileges,
            directory=None if is_builtin else self._platform.lab_folder,
        )
        if is_builtin:
            await job.ready()
        self._running[name] = _Running(spec, job, spec.limits)
        return job

    async def _end(self, name: str) -> None:
        """Stop a program by its stop command if it has one, then by SIGTERM, then by SIGKILL."""
        running = self._running.pop(name)  # before it ends, so that its watcher does not report a failure
        spec, job = running.spec, running.job
        if spec.stop:
            stop = await self._platform.machine(spec.host).start_job(
                f"stop-{spec.name}", spec.stop, privileges=spec.privileges, directory=self._platform.lab_folder
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_TIMEOUT_S):
                    await asyncio.gather(stop.wait(), job.wait())
            await stop.stop(0)
        running_until_now = job.exit is None
        await job.stop(_GRACE_S)
        if (await job.wait()).code and running_until_now and _is_builtin(spec):
            self._events.publish(Note(f"{name} did not end as it should: {job.exit_text()}"))

    def _watch(self, name: str, job: Job) -> None:
        """Report a service that ends unexpectedly."""
        watcher = asyncio.create_task(self._report_end(name, job))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)

    async def _report_end(self, name: str, job: Job) -> None:
        await job.wait()
        running = self._running.get(name)
        if running and running.job is job:
            limit = job.exit and job.exit.exceeded
            limits = " and ".join(running.limits.follow_from) if limit else ""
            reason = f"; the limit follows from {limits} of {running.spec.host}" if limits else ""
            self._on_failure(f"{name} ended unexpectedly: {job.exit_text()}{reason}")

    def _publish_output(self, job: str, line: str) -> None:
        self._events.publish(ProgramOutput(job, line))

    def _on_line(self, box: str, line: dict[str, Any]) -> None:
        kind = line.get("type")
        if kind in ("mark", "set"):
            answer = self._answers.get(line.get("id", 0))
            if answer is not None and not answer.done():
                answer.set_result(line)
        elif kind == "trace-start" and line.get("ok") is False:
            self._on_failure(f"{box} does not follow its trace: {line.get('error')}")
        elif kind == "counters":
            self._counters[box] = line
            self._events.publish(Counters(box, line))
            if error := line.get("error"):
                self._on_failure(f"{box}: {error}")


def _services_of(plan: Plan | None) -> dict[str, JobSpec]:
    return {spec.name: spec for spec in (plan.jobs if plan else ()) if spec.phase is Phase.SERVICE}


def _reason(running: _Running, spec: JobSpec, *, restart_traces: bool, idle: bool) -> str:
    """What becomes of a program in a plan; empty: it stays as it is. ``idle``: no packet passes it meanwhile.

    Raises PlanError with the settings that it does not take while it runs.
    """
    if running.spec == spec:
        return "it is no longer as it began" if restart_traces and running.drifted else ""
    if idle:
        return "its program begins again, with other settings"
    if restart_traces:
        return "its program begins again, with other settings; packets and connections in it are lost"
    requests = running_changes(running.spec, spec, drifted=running.drifted)
    return "its program takes the other settings while it runs" if requests else ""


def _is_builtin(spec: JobSpec) -> bool:
    """Whether it is a link or delay box, which reports when it is ready and prints only JSON lines."""
    return spec.config is not None


async def _wait_for_first_end(jobs: Collection[Job], limit_s: float) -> None:
    """Return when one of the jobs has ended, or after the limit."""
    if jobs:
        ends = [asyncio.ensure_future(job.wait()) for job in jobs]
        try:
            await asyncio.wait(ends, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
