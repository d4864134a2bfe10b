# SPDX-License-Identifier: Apache-2.0
"""The boxes' programs: links, delay boxes and what users bring, from the apply that needs them to one that does not."""

import asyncio
import contextlib
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from atoll_core.errors import LabError
from atoll_core.plan.plan import JobSpec, Phase, Plan
from atoll_hosts.job import Job
from atoll_testbed.platforms.base import Platform
from atoll_testbed.testbed_diff import TestbedChange

_READY_TIMEOUT_S = 10.0
_ASKED_TIMEOUT_S = 5.0  # for a program that has been asked to end
_START_S = 1.0  # a program that ends within this time has not started; an interpreter finds a syntax error much earlier

BoxLine = Callable[[str, dict[str, Any]], None]
ProgramLine = Callable[[str, str], None]
"""Takes a line that a program of the user's printed, with the name of its job."""


class Services:
    """What runs on the boxes of a testbed.

    ``on_line``: takes their lines of JSON, with the box's name. ``on_program_line``: takes what users' programs print.
    ``on_failure``: told, in one line, of what ended or does not do what it was asked.
    """

    def __init__(
        self,
        place: Platform,
        on_line: BoxLine,
        on_program_line: ProgramLine,
        on_failure: Callable[[str], None],
    ) -> None:
        self._place = place
        self._on_line = on_line
        self._on_program_line = on_program_line
        self._on_failure = on_failure
        self._running: dict[str, tuple[JobSpec, Job]] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._marks: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._next_mark = 1
        self._traces_begun: set[str] = set()  # services whose links have left the beginning of their trace

    def changes(self, plan: Plan, *, anew: bool) -> tuple[TestbedChange, ...]:
        """What would have to be done for the services of a plan to run; ``anew``: traces from their beginning."""
        wanted = _services_of(plan)
        found: list[TestbedChange] = []
        for name, (spec, _) in self._running.items():
            if name not in wanted:
                found.append(TestbedChange("box", "delete", spec.host, "not in the plan"))
        for name, spec in wanted.items():
            if name not in self._running:
                found.append(TestbedChange("box", "add", spec.host, f"{' '.join(spec.argv)} is not running"))
            elif self._running[name][0] != spec:
                found.append(TestbedChange("box", "modify", spec.host, "its configuration differs from the plan"))
            elif anew and name in self._traces_begun:
                found.append(TestbedChange("box", "modify", spec.host, "it is no longer at the beginning of its trace"))
        return tuple(found)

    async def add(self, plan: Plan | None) -> None:
        """Start the plan's services that are not running; what else runs goes on as it is.

        Raises LabError, with the last lines of users' programs that end at once.
        """
        programs: dict[str, Job] = {}  # not watched yet: their end is an error of this call, not of the lab
        try:
            for name, spec in _services_of(plan).items():
                if name not in self._running:
                    job = await self._start(name, spec)
                    if _is_ours(spec):
                        self._watch(name, job)
                    else:
                        programs[name] = job
            await _first_end(programs.values(), _START_S)
        finally:
            ended = {name: job for name, job in programs.items() if job.exit is not None}
            for name in programs.keys() - ended:
                self._watch(name, programs[name])
        if ended:
            raise LabError("; ".join(f"{name} ended at once: {job.exit_text()}" for name, job in ended.items()))

    async def settle(self, plan: Plan | None, *, anew: bool) -> None:
        """Bring the services to those of a plan: end what it does not have or has otherwise; all if there is no plan.

        Raises LabError. ``anew``: also restart links that have left the beginning of their trace.
        """
        wanted = _services_of(plan)
        for name, (spec, job) in list(self._running.items()):
            restarted = job.exit is not None or (anew and name in self._traces_begun)
            if restarted or wanted.get(name) != spec:
                self._traces_begun.discard(name)
                del self._running[name]  # before it ends: its watcher tells this end from a failure by that
                await self._end(spec, job)
        await self.add(plan)

    async def restart(self, box: str) -> None:
        """End a box's program and start it again: its connections end with it. Raises LabError."""
        for name, (spec, job) in list(self._running.items()):
            if spec.host == box:
                del self._running[name]
                await self._end(spec, job)
                self._watch(name, await self._start(name, spec))

    async def mark(self) -> dict[str, dict[str, Any]]:
        """End one measurement of every link and delay box and begin the next; what passed, by box name."""
        answers: dict[str, dict[str, Any]] = {}
        for name, (spec, job) in self._running.items():
            if not _is_ours(spec):
                continue  # a program brought along: it knows no marks
            number, self._next_mark = self._next_mark, self._next_mark + 1
            answer = self._marks[number] = asyncio.get_running_loop().create_future()
            await job.send({"op": "mark", "id": number})
            try:
                async with asyncio.timeout(_READY_TIMEOUT_S):
                    answers[spec.host] = await answer
            except TimeoutError:
                msg = f"{name} did not answer within {_READY_TIMEOUT_S:g} s"
                raise LabError(msg) from None
            finally:
                del self._marks[number]
        return answers

    async def start_traces(self) -> tuple[str, ...]:
        """Let every link that follows a trace begin it now; the boxes. :meth:`settle` starts them anew."""
        begun: list[str] = []
        for name, (spec, job) in self._running.items():
            if _follows_trace(spec):
                number, self._next_mark = self._next_mark, self._next_mark + 1
                self._traces_begun.add(name)
                await job.send({"op": "trace-start", "id": number})
                begun.append(spec.host)
        return tuple(begun)

    async def stop(self) -> None:
        """End all of them, whatever they say."""
        for watcher in self._watchers:
            watcher.cancel()
        for spec, job in self._running.values():
            with contextlib.suppress(LabError):
                await (self._end(spec, job) if spec.stop else job.stop(1.0))
        self._running.clear()

    async def _start(self, name: str, spec: JobSpec) -> Job:
        ours = _is_ours(spec)
        job = await self._place.machine(spec.host).start_job(
            name,
            spec.argv,
            config=spec.config,
            stdout="lines",
            stderr="lines",
            on_line=partial(self._take, spec.host),
            on_output=None if ours else partial(self._on_program_line, name),
            limits=spec.limits,
            privileges=spec.privileges,
            directory=None if ours else self._place.lab_folder,
        )
        if ours:
            await job.ready(_READY_TIMEOUT_S)
        self._running[name] = (spec, job)
        return job

    async def _end(self, spec: JobSpec, job: Job) -> None:
        """Ask a box to end as it wants to be asked; SIGTERM if that does not help, then SIGKILL."""
        if spec.stop:
            asked = await self._place.machine(spec.host).start_job(
                f"stop-{spec.name}", spec.stop, privileges=spec.privileges, directory=self._place.lab_folder
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ASKED_TIMEOUT_S):
                    await asyncio.gather(asked.wait(), job.wait())
            await asked.stop(0)
        await job.stop(1.0)
        await job.wait()

    def _watch(self, name: str, job: Job) -> None:
        """Report the end of a service that nobody asked to end."""
        watcher = asyncio.create_task(self._report_end(name, job))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)

    async def _report_end(self, name: str, job: Job) -> None:
        await job.wait()
        if name in self._running and self._running[name][1] is job:
            self._on_failure(f"{name} ended unexpectedly: {job.exit_text()}")

    def _take(self, box: str, line: dict[str, Any]) -> None:
        if line.get("type") == "mark":
            answer = self._marks.get(line.get("id", 0))
            if answer is not None and not answer.done():
                answer.set_result(line)
            return
        if line.get("type") == "trace-start" and line.get("ok") is False:
            self._on_failure(f"{box} does not follow its trace: {line.get('error')}")
        self._on_line(box, line)


def _services_of(plan: Plan | None) -> dict[str, JobSpec]:
    return {spec.name: spec for spec in (plan.jobs if plan else ()) if spec.phase is Phase.SERVICE}


def _is_ours(spec: JobSpec) -> bool:
    """A link or delay box: it says when it is ready, and nothing but lines of JSON. Others are users' programs."""
    return spec.config is not None


async def _first_end(jobs: Collection[Job], limit_s: float) -> None:
    """Return when one of the jobs has ended, or after the limit."""
    if jobs:
        ends = [asyncio.ensure_future(job.wait()) for job in jobs]
        try:
            await asyncio.wait(ends, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()


def _follows_trace(spec: JobSpec) -> bool:
    config = spec.config or {}
    return any("trace" in config.get(way, {}) for way in ("to_island", "to_world"))
