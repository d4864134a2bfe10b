# SPDX-License-Identifier: Apache-2.0
"""A run: the steps of an experiment on a testbed that is up, each of which succeeds or ends the run.

Order and reasons are the laboratory's: nothing is measured before every path was tested; captures begin
at the island end, so that no packet passes an observer that is not listening yet; the load starts within
a second everywhere; after the load the link drains before its counters are read, so that captures and
counters speak of the same packets.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

from atoll.control.hosts import CONGESTION_CONTROL, tcp_sysctls
from atoll.control.schedule import Scheduled, plan_schedule
from atoll.experiment.calibrate import brief
from atoll.experiment.calibration import Row, State
from atoll.experiment.checks import Measured, base_rtt, judge_paths, measure_paths, terrestrial
from atoll.experiment.finish import compress_and_analyse
from atoll.experiment.lost_outside import look, own_limit, risen
from atoll.experiment.metering import VIRTUAL, OnPoints
from atoll.experiment.recording import Recording, describe_lab
from atoll.experiment.scheduled import carry_out
from atoll.experiment.starting import lead_ns, told
from atoll.experiment.testbed import Testbed, while_up, with_start
from atoll.model.codec import to_json
from atoll.model.errors import AtollError, LabError, RunError
from atoll.model.experiment import Experiment
from atoll.model.network import HostRole
from atoll.model.plan import Backend, JobSpec, Phase, Plan
from atoll.rundir import RunDir
from atoll_dashboards.feeding import feeding
from atoll_hosts.agent import Job

Progress = Callable[[dict[str, Any]], None]
Settings = dict[str, tuple[tuple[str, str], ...]]  # sysctls by host

# A busy machine only ever adds to an RTT: pings are collected until the least of them is right, or was not five times.
_CHECK_ATTEMPTS = 5
_LINK_ATTEMPTS = 3  # each of them fills the links anew
_CHECK_QUIET_S = 0.3  # what filled the links has stopped before: this only waits for their counters to say so
_DRAIN_QUIET_S = 1.5  # two round trips of a GEO link without a packet: nothing is under way any more
_DRAIN_LIMIT_S = 20.0
_STOP_GRACE_S = 3.0
_READY_TIMEOUT_S = 10.0
_REPORT_TIMEOUT_S = 30.0


class Run:
    """One run of one experiment: :meth:`measure` makes the raw data, :meth:`analyse` what is derived from it."""

    def __init__(
        self,
        testbed: Testbed,
        experiment: Experiment,
        run_dir: RunDir,
        progress: Progress,
        backend: Backend,
        on_points: OnPoints | None = None,
    ) -> None:
        """``run_dir``: holds the request already (atoll.experiment.request). ``on_points``: who watches its metrics."""
        self._testbed = testbed
        self._experiment = experiment
        self._dir = run_dir
        self._progress = progress
        self._backend = backend
        self._jobs: dict[str, Job] = {}
        self._delayed: list[asyncio.Task[None]] = []
        self._step_name = ""
        self._plan: Plan | None = None
        self._schedule: tuple[Scheduled, ...] = ()
        self._recording = Recording(run_dir, testbed.network, experiment, progress, on_points)

    async def measure(self, started_ns: int) -> None:
        """Run every step up to the last byte of raw data. ``started_ns``: when the user asked for the run.

        Raises RunError, LabError, PlanError after recording what went wrong; cancellation likewise.
        Whatever happens, jobs are stopped, settings restored and captures kept.
        """
        self._dir.update_manifest(describe_lab(self._testbed, started_ns))
        outside = self._dir.manifest().get("place") != VIRTUAL  # nothing can be reached from there
        if not (outside and self._recording.metering.wanted):
            await self._measure(started_ns)
            return
        async with feeding(self._dir.path, self._note):
            await self._measure(started_ns)

    async def _measure(self, started_ns: int) -> None:
        outcome = "completed"
        self._testbed.on_box_line = self._recording.box_line
        self._dir.on_event = self._recording.metering.event
        to_log, self._testbed.on_note = self._testbed.on_note, self._note
        try:
            await while_up(self._testbed, self._steps())
        except asyncio.CancelledError:
            outcome = f"cancelled at step {self._step_name}"
            raise
        except AtollError as error:
            outcome = f"failed at step {self._step_name}: {error}"
            raise
        finally:
            self._testbed.on_box_line, self._testbed.on_note = None, to_log
            await self._stop_jobs()
            with contextlib.suppress(RunError):  # the first error is the one to tell; this one is an event
                await self._collect()
            try:
                self._conclude(outcome, started_ns)
            except RunError:
                if outcome == "completed":  # otherwise the first error is the one to tell
                    raise

    async def analyse(self) -> dict[str, Any]:
        """Compress the captures, analyse, write the report; returns the summary. Raises RunError."""
        async with self._step("analyse"):
            return await compress_and_analyse(self._dir)

    async def _steps(self) -> None:
        async with self._step("apply"):
            self._schedule = plan_schedule(self._testbed.network, self._experiment)
            self._plan, changes = await self._testbed.apply(self._experiment, self._backend, at_once=True)
            self._dir.event("applied", time.time_ns(), changes=len(changes))
            await self._recording.plan(self._testbed, self._plan)
        async with self._step("check"):
            await self._check(self._plan)
        async with contextlib.AsyncExitStack() as restore:
            async with self._step("settings"):
                restore.push_async_callback(await self._pin_tcp())
            await restore.enter_async_context(self._recording.metering.sampling(self._testbed))
            async with self._step("captures"):
                await self._start_captures(self._plan)
                begin = await look(self._testbed)
                self._recording.marks("begin", await self._testbed.mark_boxes())
            async with self._step("servers"):
                await self._start_all(Phase.SERVER, Phase.TRANSFER_SERVER)
            async with self._step("clients"):
                begin_ns = await self._start_clients()
            async with self._step("measure"), self._changes(begin_ns):
                await self._start_traces(begin_ns)
                await self._wait_for_end(begin_ns)
            async with self._step("stop"):
                await self._end_load()
            async with self._step("drain"):
                await self._recording.drained(_DRAIN_QUIET_S, _DRAIN_LIMIT_S)
                self._recording.marks("end", await self._testbed.mark_boxes())
                self._recording.lost_outside(risen(begin, await look(self._testbed), own_limit()))
                self._dir.event("drained", time.time_ns())
                await self._stop_captures()
        async with self._step("record"):
            await self._hear_programs()
            await self._testbed.settled()
            await self._recording.tables_after(self._testbed)
            await self._collect()

    def _conclude(self, outcome: str, started_ns: int) -> None:
        self._dir.on_event = None
        self._recording.metering.event("outcome", time.time_ns(), {"outcome": outcome})
        self._recording.close()
        self._dir.event("outcome", time.time_ns(), outcome=outcome)
        self._dir.update_manifest(
            {
                "outcome": outcome,
                "finished_ns": time.time_ns(),
                "overhead_s": (time.time_ns() - started_ns) / 1e9 - self._experiment.duration.s,
            }
        )

    def _note(self, text: str) -> None:
        self._dir.event("note", time.time_ns(), message=text)
        self._progress({"type": "progress", "text": text})

    @contextlib.asynccontextmanager
    async def _step(self, name: str) -> AsyncGenerator[None]:
        self._step_name = name
        self._dir.event("step", time.time_ns(), step=name, state="begin")
        self._progress({"type": "step", "step": name})
        try:
            yield
        except BaseException as error:
            with contextlib.suppress(RunError):
                cancelled = isinstance(error, asyncio.CancelledError)
                why = "cancelled" if cancelled else str(error) or type(error).__name__
                self._dir.event("step", time.time_ns(), step=name, state="failed", message=why)
            raise
        self._dir.event("step", time.time_ns(), step=name, state="end")

    # Steps

    async def _check(self, plan: Plan) -> None:
        wrong: list[str] = []
        measured: Measured = {(check.src, check.dst): [] for check in plan.checks}
        for attempt in range(1, _CHECK_ATTEMPTS + 1):
            for path, rtts in (await measure_paths(self._testbed, plan, self._dir.path)).items():
                measured[path] += rtts
            wrong = judge_paths(plan, measured, self._testbed.network)
            for message in wrong:
                self._dir.event("check_off", time.time_ns(), attempt=attempt, message=message)
            if not wrong:
                await self._check_links(self._record_checks(plan, measured))
                return
        more = f"\n... and {len(wrong) - 10} more paths" if len(wrong) > 10 else ""
        raise RunError("the configuration test failed; nothing was started\n" + "\n".join(wrong[:10]) + more)

    async def _check_links(self, base_ns: int) -> None:
        """Fill every link for a moment: a wrong rate or queue passes any test of an idle path."""
        off: list[Row] = []
        for attempt in range(1, _LINK_ATTEMPTS + 1):
            rows = await brief(self._testbed, self._experiment, base_ns)
            off = [row for row in rows if row.state is State.OFF]
            for row in rows:
                self._dir.event("calibration", time.time_ns(), attempt=attempt, **to_json(row))
            await self._recording.drained(_CHECK_QUIET_S, _DRAIN_LIMIT_S)
            if not off:
                return
        lines = "\n".join(str(row) for row in off)
        raise RunError(f"a link does not do what it is configured to; nothing was started\n{lines}")

    def _record_checks(self, plan: Plan, measured: Measured) -> int:
        """Write the paths' figures down; returns the RTT between the special hosts."""
        now = time.time_ns()
        for check in plan.checks:
            rtts = sorted(measured[check.src, check.dst])
            self._dir.event(
                "check",
                now,
                src=check.src,
                dst=check.dst,
                received=len(rtts),
                rtt_min_ns=rtts[0],
                rtt_median_ns=rtts[len(rtts) // 2],
                expected_ns=check.rtt_ns,
                terrestrial_ns=check.terrestrial_rtt_ns,
            )
        for server, configured_ns, measured_ns in terrestrial(plan, measured, self._testbed.network):
            self._dir.event("terrestrial", now, server=server, configured_ns=configured_ns, measured_ns=measured_ns)
        special = self._testbed.network.with_role(HostRole.WORLD_SPECIAL)[0].name
        island = self._testbed.network.with_role(HostRole.ISLAND_SPECIAL)[0].name
        jitter_ns = next(check.jitter_ns for check in plan.checks if (check.src, check.dst) == (special, island))
        base_ns = base_rtt(measured[special, island], jitter_ns)
        self._dir.event("base_rtt", now, rtt_ns=base_ns)
        return base_ns

    async def _pin_tcp(self) -> Callable[[], Any]:
        """Pin the TCP settings that decide results on every end host; returns what restores them."""
        machine, hosts = self._testbed.machine, [host.name for host in self._testbed.network.hosts]
        wanted = await self._permitted({host: tcp_sysctls(self._experiment, host) for host in hosts})
        was = dict(
            zip(
                hosts,
                await asyncio.gather(*(machine(host).sysctl(wanted[host]) for host in hosts)),
                strict=True,
            )
        )
        self._recording.settings(wanted, was)

        async def restore() -> None:
            with contextlib.suppress(LabError):
                await asyncio.gather(*(machine(host).sysctl(was[host]) for host in hosts))

        return restore

    async def _permitted(self, wanted: Settings) -> Settings:
        """The settings without default congestion controls that the kernel reserves to its first namespace.

        Then only the sockets of our own programs use it, which they ask for one by one; a kernel that lacks it makes
        them fail. Which controls are restricted: net.ipv4.tcp_allowed_congestion_control.
        """
        machine = self._testbed.machine(self._testbed.network.hosts[0].name)
        named = {pair for pairs in wanted.values() for pair in pairs if pair[0] == CONGESTION_CONTROL}
        for pair in sorted(named):
            try:
                was = await machine.sysctl([pair])
            except LabError as error:
                self._dir.event("note", time.time_ns(), message=f"set per socket, not as the default: {error}")
                wanted = {host: tuple(each for each in pairs if each != pair) for host, pairs in wanted.items()}
            else:
                await machine.sysctl(was)
        return wanted

    async def _start_captures(self, plan: Plan) -> None:
        points = sorted(plan.captures, key=lambda point: (point.name != "island", point.name == "world"))
        for point in points:
            await self._start(self._spec(f"capture-{point.name}"))

    async def _start_clients(self) -> int:
        transfer = self._experiment.transfer
        after_ns = {Phase.CLIENT: 0, Phase.PING: 0, Phase.TRANSFER: transfer.start.ns if transfer else 0}
        later = [(spec, after_ns[spec.phase]) for spec in self._plan_jobs() if spec.phase in after_ns]
        later.append((self._spec("whistle-start"), 0))
        clocks = await self._testbed.place.compare_clocks()
        begin_ns = time.time_ns() + lead_ns(len(later))
        self._dir.event("start", time.time_ns(), **told(begin_ns, clocks))
        specs = [(spec, begin_ns + ns) for spec, ns in later]
        await asyncio.gather(
            *(self._start(with_start(spec, at_ns)) for spec, at_ns in specs if spec.config is not None)
        )
        # A foreign program (iperf3) knows of no instant to begin at: it is started at that instant.
        self._delayed += [
            asyncio.create_task(self._start_at(spec, at_ns)) for spec, at_ns in specs if spec.config is None
        ]
        late_ns = time.time_ns() - begin_ns
        if late_ns > 0:
            msg = f"the clients were not ready in time: {late_ns / 1e6:.0f} ms late; the machine is too busy"
            raise RunError(msg)
        return begin_ns

    async def _start_traces(self, begin_ns: int) -> None:
        """Links that follow a trace begin it with the load."""
        if not any(way.trace for link in self._experiment.links for way in (link.to_island, link.to_world)):
            return
        await asyncio.sleep(max(0, begin_ns - time.time_ns()) / 1e9)
        boxes = await self._testbed.start_traces()
        self._dir.event("trace_start", time.time_ns(), boxes=boxes)

    @contextlib.asynccontextmanager
    async def _changes(self, begin_ns: int) -> AsyncGenerator[None]:
        """Meanwhile the scheduled changes are carried out; the last one ends before this does."""
        backend, record = self._backend, self._dir.event
        work = asyncio.create_task(
            carry_out(self._testbed, self._experiment, backend, self._schedule, begin_ns, record)
        )
        try:
            yield
            await work
        finally:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError, AtollError):
                await work

    async def _wait_for_end(self, begin_ns: int) -> None:
        end_ns = begin_ns + self._experiment.duration.ns
        self._recording.measurement_begins()
        while (left_ns := end_ns - time.time_ns()) > 0:
            await asyncio.sleep(min(0.5, left_ns / 1e9))
            self._recording.live(begin_ns, time.time_ns())
            self._raise_for_dead_jobs()
        self._dir.event("window", time.time_ns(), start_ns=begin_ns, end_ns=end_ns)

    def _raise_for_dead_jobs(self) -> None:
        for name, job in self._jobs.items():
            if job.exit is not None and job.exit.code != 0:
                msg = f"{name} failed: {job.exit_text()}"
                raise RunError(msg)

    async def _end_load(self) -> None:
        await self._stop_named(Phase.CLIENT, Phase.TRANSFER)
        await self._start(self._spec("whistle-end"))
        await asyncio.wait_for(self._jobs["whistle-end"].wait(), 10)
        await self._stop_named(Phase.PING, Phase.SERVER, Phase.TRANSFER_SERVER)

    async def _stop_captures(self) -> None:
        for point in self._plan.captures if self._plan else ():
            name = f"capture-{point.name}"
            job = self._jobs[name]
            await job.stop(_STOP_GRACE_S)
            ended = await job.wait()
            if ended.code != 0:
                msg = f"{name} failed: {job.exit_text()}"
                raise RunError(msg)

    async def _hear_programs(self) -> None:
        """Let the programs that users brought along print their reports. Raises RunError when one fails."""
        await self._start_all(Phase.REPORT)
        for spec in self._plan_jobs():
            if spec.phase is Phase.REPORT:
                job = self._jobs[spec.name]
                try:
                    ended = await asyncio.wait_for(job.wait(), _REPORT_TIMEOUT_S)
                except TimeoutError:
                    raise RunError(f"{spec.name} is not done after {_REPORT_TIMEOUT_S:g} s") from None
                if ended.code != 0:
                    raise RunError(f"{spec.name} failed: {job.exit_text()}")

    # Jobs

    def _plan_jobs(self) -> tuple[JobSpec, ...]:
        return self._plan.jobs if self._plan else ()

    def _spec(self, name: str) -> JobSpec:
        return {spec.name: spec for spec in self._plan_jobs()}[name]

    async def _start(self, spec: JobSpec) -> None:
        record = self._recording.job_line(spec, self._testbed.machine(spec.host).clock_offset_ns)
        job = self._jobs[spec.name] = await self._testbed.start_job(spec, self._dir.path, on_line=record)
        if spec.config is not None:  # one of our own programs: it says when it is ready
            await job.ready(_READY_TIMEOUT_S)

    async def _start_at(self, spec: JobSpec, at_ns: int) -> None:
        await asyncio.sleep(max(0, at_ns - time.time_ns()) / 1e9)
        await self._start(spec)

    async def _start_all(self, *phases: Phase) -> None:
        await asyncio.gather(*(self._start(spec) for spec in self._plan_jobs() if spec.phase in phases))

    async def _stop_named(self, *phases: Phase) -> None:
        for phase in phases:
            jobs = [
                self._jobs[spec.name] for spec in self._plan_jobs() if spec.phase is phase and spec.name in self._jobs
            ]
            await asyncio.gather(*(job.stop(_STOP_GRACE_S) for job in jobs))
            await asyncio.gather(*(job.wait() for job in jobs))

    async def _stop_jobs(self) -> None:
        """After whatever happened: the load first, then the captures, so that they are complete."""
        for task in self._delayed:
            task.cancel()
        captures = {name: job for name, job in self._jobs.items() if name.startswith("capture-")}
        for jobs in ([job for name, job in self._jobs.items() if name not in captures], list(captures.values())):
            await asyncio.gather(*(_end(job) for job in jobs if job.exit is None))

    async def _collect(self) -> None:
        """Bring what machines of their own have written into the run directory. RunError when something is missing."""
        missing = await self._testbed.place.collect(self._dir.path)
        for line in missing:
            self._dir.event("not_collected", time.time_ns(), message=line)
        if missing:
            raise RunError("\n".join(missing))


async def _end(job: Job) -> None:
    """End a job; one whose machine is gone has ended."""
    with contextlib.suppress(LabError):
        await job.stop(_STOP_GRACE_S)
        await job.wait()
