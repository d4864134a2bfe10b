# SPDX-License-Identifier: Apache-2.0
"""A run's jobs on the lab's machines: captures, servers, clients, whistles, and users' programs."""

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path

from atoll_analysis.tables.run_data import is_load
from atoll_core.errors import LabError, RunError
from atoll_core.plan.plan import JobSpec, Phase
from atoll_hosts.agent import Job
from atoll_testbed.run.run_clock import RunClock
from atoll_testbed.run.run_recorder import RunRecorder
from atoll_testbed.testbed import Testbed

_STOP_GRACE_S = 3.0
_REPORT_TIMEOUT_S = 30.0
_END_TOLERANCE_NS = 200_000_000  # channels end of their own accord when the measurement does


class RunJobs:
    """The jobs of a run, each started at most once. :meth:`end` ends them in any case."""

    def __init__(self, testbed: Testbed, recording: RunRecorder, directory: Path) -> None:
        """``recording``: takes their lines. ``directory``: of the run, in which they write."""
        self._testbed = testbed
        self._recording = recording
        self._directory = directory
        self._specs: dict[str, JobSpec] = {}
        self._started: dict[str, Job] = {}
        self._scheduled: dict[str, asyncio.Task[None]] = {}

    def set_jobs(self, specs: tuple[JobSpec, ...]) -> None:
        """Set the jobs; none is started yet."""
        self._specs = {spec.name: spec for spec in specs}

    def of_phases(self, *phases: Phase) -> list[JobSpec]:
        """The jobs of some phases, in the plan's order."""
        return [spec for spec in self._specs.values() if spec.phase in phases]

    def spec_of(self, name: str) -> JobSpec:
        """The specification of a job (KeyError: no such job)."""
        return self._specs[name]

    async def start(self, spec: JobSpec) -> None:
        """Start a job. If it is one of our own programs, wait until it is ready. Raises LabError."""
        record = self._recording.line_recorder(spec, self._testbed.machine(spec.host).clock_offset_ns)
        job = self._started[spec.name] = await self._testbed.start_job(spec, self._directory, on_line=record)
        if job.unapplied_limit is not None:
            self._recording.append_event("note", message=f"{spec.name}: {job.unapplied_limit}")
        if spec.config is not None:  # one of our own programs, which report when they are ready
            await job.ready()

    async def start_all(self, *phases: Phase) -> None:
        """Start the jobs of some phases, all at once. Raises LabError."""
        await asyncio.gather(*(self.start(spec) for spec in self.of_phases(*phases)))

    async def start_at(self, instants: list[tuple[JobSpec, int]], clock: RunClock) -> None:
        """Start each job at its time by the run's clock (ns). Our own programs get the time and wait for it.

        Other programs (iperf3) are started at that time. Raises LabError.
        """
        builtin_specs = [
            replace(spec, config={**spec.config, "start_at_ns": at_ns})
            for spec, at_ns in instants
            if spec.config is not None
        ]
        await asyncio.gather(*map(self.start, builtin_specs))

        async def start_later(spec: JobSpec, at_ns: int) -> None:
            await clock.sleep_until(at_ns)
            await self.start(spec)

        for spec, at_ns in instants:
            if spec.config is None:
                self._scheduled[spec.name] = asyncio.create_task(start_later(spec, at_ns))

    def raise_for_failed(self, *, remaining_ns: int) -> None:
        """Raise RunError if a job could not be started, has failed, or has ended while it was still needed.

        ``remaining_ns``: remaining time of the measurement. A broken transfer is no failure (:meth:`broken_transfer`).
        """
        for name, task in self._scheduled.items():
            if task.done() and (error := task.exception()) is not None:
                raise RunError(f"{name} could not be started: {error}") from error
        for name, job in self._started.items():
            if job.exit is None or self._is_broken_transfer(name):
                continue
            if job.exit.code != 0:
                raise _failure(name, job)
            if remaining_ns > _END_TOLERANCE_NS and _must_run_to_end(self._specs[name]):
                text = f"{remaining_ns / 1e9:.1f} s before the end of the measurement"
                raise RunError(f"{name} ended too early, {text}: {job.exit_text()}")

    def broken_transfer(self, *ends: str) -> str | None:
        """The reason why a transfer broke off, by its jobs' names; None if it did not.

        The bytes received until then are a result.
        """
        broken = [name for name in ends if name in self._started and self._is_broken_transfer(name)]
        return "; ".join(str(_failure(name, self._started[name])) for name in broken) or None

    def _is_broken_transfer(self, name: str) -> bool:
        """Whether a job is an end of the transfer that failed with the exit status for that (docs/contracts.md).

        A server that ends before its client has been started could not serve: no transfer broke off.
        """
        ended = self._started[name].exit
        return (
            ended is not None
            and ended.code == 1
            and self._specs[name].phase in (Phase.TRANSFER, Phase.TRANSFER_SERVER)
            and any(spec.name in self._started for spec in self.of_phases(Phase.TRANSFER))
        )

    def raise_for_missing(self) -> None:
        """Raise RunError if a scheduled job has not been started by the end of the measurement."""
        missing = [name for name, task in self._scheduled.items() if not task.done()]
        if missing:
            raise RunError(f"{', '.join(missing)} had not started when the measurement ended; the machine is too busy")

    async def stop(self, *phases: Phase) -> None:
        """Stop the jobs of one phase after the other; their exit statuses are ignored. Raises LabError."""
        for phase in phases:
            jobs = [self._started[spec.name] for spec in self.of_phases(phase) if spec.name in self._started]
            await asyncio.gather(*(job.stop(_STOP_GRACE_S) for job in jobs))
            await asyncio.gather(*(job.wait() for job in jobs))

    async def stop_successfully(self, spec: JobSpec) -> None:
        """Stop a job that must end successfully. Raises RunError, LabError."""
        await self._started[spec.name].stop(_STOP_GRACE_S)
        await self.wait_for_success(spec)

    async def wait_for_success(self, spec: JobSpec, limit_s: float = _REPORT_TIMEOUT_S) -> None:
        """Wait for a job that ends by itself. Raises RunError if it fails or takes longer."""
        job = self._started[spec.name]
        try:
            async with asyncio.timeout(limit_s):
                ended = await job.wait()
        except TimeoutError:
            raise RunError(f"{spec.name} is not done after {limit_s:g} s") from None
        if ended.code != 0:
            raise _failure(spec.name, job)

    async def end(self) -> None:
        """End all jobs: the load first, then the captures, so that they are complete."""
        for task in self._scheduled.values():
            task.cancel()
        await asyncio.gather(*self._scheduled.values(), return_exceptions=True)  # errors are reported elsewhere
        captures = [self._started[spec.name] for spec in self.of_phases(Phase.CAPTURE) if spec.name in self._started]
        load = [job for job in self._started.values() if job not in captures]
        for jobs in (load, captures):
            await asyncio.gather(*(_end(job) for job in jobs if job.exit is None))


def _must_run_to_end(spec: JobSpec) -> bool:
    """Whether a job must run until the measurement ends; a UDP sender may send its last packet before."""
    return spec.phase in (Phase.SERVER, Phase.PING, Phase.CAPTURE) or is_load(spec)


def _failure(name: str, job: Job) -> RunError:
    return RunError(f"{name} failed: {job.exit_text()}")


async def _end(job: Job) -> None:
    """End a job; a job whose machine is gone has ended."""
    with contextlib.suppress(LabError):
        await job.stop(_STOP_GRACE_S)
        await job.wait()
