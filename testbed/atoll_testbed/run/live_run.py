# SPDX-License-Identifier: Apache-2.0
"""A run: the steps of an experiment on a testbed that is up. Each step succeeds or ends the run.

The order of the steps has these reasons: nothing is measured before every path was tested; captures start at the
island end, so that no packet passes a capture point that has not started; the load starts within a second everywhere;
after the load the links drain before their counters are read, so that captures and counters are about the same packets.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

from atoll_analysis.run_directory import RunDir
from atoll_controller.planner.host_config import CONGESTION_CONTROL, HYSTART, tcp_sysctls
from atoll_controller.planner.path_checks import pinging_ns, with_full_matrix
from atoll_core.codec import to_json
from atoll_core.errors import AtollError, LabError, PlanError, RunError
from atoll_core.events.events import Progress, StepBegun, SwapEvent
from atoll_core.experiment.experiment import Experiment
from atoll_core.experiment.residence import longest_residence_ns, longest_terrestrial_ns
from atoll_core.experiment.setting_texts import version_differences
from atoll_core.plan.plan import Phase, Plan
from atoll_core.platforms import MININET
from atoll_testbed.preflight.preflight import check_addresses, check_links, check_paths
from atoll_testbed.run.control_traffic import ControlCount
from atoll_testbed.run.job_runner import RunJobs
from atoll_testbed.run.kernel_drops import backlog_limit, drop_increase, heat_between, sample_drops
from atoll_testbed.run.postprocess import compress_and_analyse
from atoll_testbed.run.run_clock import RunClock, start_event, start_lead_ns
from atoll_testbed.run.run_recorder import RunRecorder, are_packets_held, describe_lab
from atoll_testbed.run.run_request import PlannedRun
from atoll_testbed.testbed import Testbed, while_up

_CHECK_QUIET_S = 0.3  # the flood has ended before; this only waits for the links' next counters
_DRAIN_QUIET_S = 1.5  # two round trips of a GEO link without a packet: none is in flight
_DRAIN_LIMIT_S = 20.0
_WHISTLE_S = 10.0


class LiveRun:
    """One run of an experiment: :meth:`measure` records the raw data, :meth:`analyse` derives the results."""

    def __init__(
        self,
        testbed: Testbed,
        planned: PlannedRun,
        run_dir: RunDir,
    ) -> None:
        """``run_dir``: contains the request (``create_run``); the caller closes it.

        Steps and figures of the run are events of the testbed.
        """
        self._testbed = testbed
        self._planned = planned
        self._request = planned.request
        self._experiment = experiment = planned.request.experiment
        self._dir = run_dir
        self._hold_s = longest_residence_ns(testbed.network, experiment) / 1e9
        self._quiet_s = max(_DRAIN_QUIET_S, longest_terrestrial_ns(testbed.network, experiment) / 1e9) + self._hold_s
        self._step_name = ""
        self._recording = RunRecorder(run_dir, testbed.network, experiment, testbed.events)
        self._jobs = RunJobs(testbed, self._recording, run_dir.path)

    async def measure(self, started_ns: int) -> None:
        """Run every step that records raw data. ``started_ns``: time of the user's command.

        Raises RunError, LabError or PlanError, and records the reason; cancellation is recorded, too. In any case, jobs
        are stopped, settings restored and captures kept.
        """
        self._recording.manifest.write(describe_lab(self._testbed, started_ns))
        outcome = "completed"
        try:
            with self._recording.recording():
                await while_up(self._testbed, self._steps())
        except asyncio.CancelledError:
            outcome = f"cancelled at step {self._step_name}"
            raise
        except Exception as error:  # internal errors, too: such a run is not completed
            outcome = f"failed at step {self._step_name}: {_error_text(error)}"
            raise
        finally:
            await self._jobs.end()
            with contextlib.suppress(RunError):  # the first error is raised; this one is an event
                await self._collect()
            try:
                await self._conclude(outcome, started_ns)
            except RunError:
                if outcome == "completed":  # otherwise the first error is raised
                    raise

    def note(self, text: str) -> None:
        """Record a note of the run and show it, also after the measurement. Raises RunError."""
        self._record_note(text)
        self._testbed.events.publish(Progress(text))

    async def analyse(self) -> dict[str, Any]:
        """Compress the captures, analyse, write the report; returns the summary. Raises RunError."""
        async with self._step("analyse"):
            return await compress_and_analyse(self._dir)

    async def _steps(self) -> None:
        async with self._step("apply"):
            planned, backend = self._planned.plan, self._request.options.backend
            plan, changes = await self._testbed.apply(self._experiment, backend, at_once=True, plan=planned)
            if self._request.options.full_matrix:
                plan = await asyncio.to_thread(with_full_matrix, plan, self._testbed.network, self._experiment)
            self._jobs.set_jobs(plan.jobs)
            self._recording.append_event("applied", changes=len(changes))
            await self._recording.record_plan(self._testbed, plan)
            if self._request.platform == MININET:  # in virtual time it would take twenty times as long
                await self._recording.record_network_state(self._testbed.lab)
        async with self._step("check"):
            await self._check(plan)
        async with contextlib.AsyncExitStack() as restore:
            async with self._step("settings"):
                pinned = pinned_tcp(self._testbed, self._experiment, self._record_note)
                sysctls, former = await restore.enter_async_context(pinned)
                await self._recording.manifest.update({"tcp_sysctls": to_json(sysctls), "tcp_sysctls_before": former})
            await restore.enter_async_context(self._recording.metrics.sampling(self._testbed))
            async with self._step("captures"):
                await self._start_captures(plan)
                begin = await sample_drops(self._testbed)
                self._recording.record_marks("begin", await self._testbed.mark_boxes())
            async with self._step("servers"):
                await self._jobs.start_all(Phase.SERVER, Phase.TRANSFER_SERVER)
            async with self._step("clients"):
                clock, begin_ns = await self._start_clients()
            async with self._step("measure"), self._changes(clock, begin_ns):
                await self._start_traces(clock, begin_ns)
                await self._wait_for_end(clock, begin_ns)
            async with self._step("stop"):
                await self._end_load()
            async with self._step("drain"):
                limit_s = _DRAIN_LIMIT_S + 2 * (self._quiet_s - _DRAIN_QUIET_S)
                wait_for_drain = partial(self._recording.wait_until_drained, self._quiet_s, limit_s)
                await wait_for_drain()
                await self._jobs.stop(Phase.PING)  # pings without an answer by now are lost
                await self._recording.record_end_marks(self._testbed.mark_boxes, wait_for_drain)
                end = await sample_drops(self._testbed)
                outside: dict[str, Any] = {"lost_outside": drop_increase(begin, end, backlog_limit())}
                if heat := heat_between(begin, end):
                    outside["host_heat"] = heat
                await self._recording.manifest.update(outside)
                self._recording.append_event("drained")
                for spec in self._jobs.of_phases(Phase.CAPTURE):
                    await self._jobs.stop_successfully(spec)
        async with self._step("record"):
            await self._jobs.start_all(Phase.REPORT)  # commands of users' programs
            for spec in self._jobs.of_phases(Phase.REPORT):
                await self._jobs.wait_for_success(spec)
            await self._testbed.wait_until_settled()
            await self._recording.record_final_tables(self._testbed)
            await self._collect()

    async def _conclude(self, outcome: str, started_ns: int) -> None:
        try:
            self._recording.metrics.event("outcome", time.time_ns(), {"outcome": outcome})
        finally:
            self._recording.close()
        self._dir.append_event("outcome", time.time_ns(), outcome=outcome)
        await self._recording.manifest.update(
            {
                "outcome": outcome,
                "finished_ns": time.time_ns(),
                "overhead_s": (time.time_ns() - started_ns) / 1e9 - self._experiment.duration.s,
            }
        )

    def _record_note(self, text: str) -> None:
        self._recording.append_event("note", message=text)

    @contextlib.asynccontextmanager
    async def _step(self, name: str) -> AsyncGenerator[None]:
        self._step_name = name
        self._recording.append_event("step", step=name, state="begin")
        self._testbed.events.publish(StepBegun(name))
        try:
            yield
        except BaseException as error:
            with contextlib.suppress(RunError):
                self._recording.append_event("step", step=name, state="failed", message=_error_text(error))
            raise
        self._recording.append_event("step", step=name, state="end")

    # Steps

    async def _check(self, plan: Plan) -> None:
        full_matrix = self._request.options.full_matrix
        if full_matrix:
            self.note(f"full matrix: {len(plan.checks)} paths; pinging takes {pinging_ns(plan) / 1e9:.0f} s")
        await check_addresses(self._testbed, plan)
        wait_for_drain = partial(self._recording.wait_until_drained, _CHECK_QUIET_S, _DRAIN_LIMIT_S)
        if are_packets_held(await self._testbed.mark_boxes()):  # probes fill the queue of a slow link for seconds
            await wait_for_drain()
        emulated = self._request.platform == MININET
        base_ns = await check_paths(self._testbed, plan, self._recording, full_matrix=full_matrix, emulated=emulated)
        await check_links(self._testbed, self._experiment, base_ns, self._recording, wait_for_drain)

    async def _start_captures(self, plan: Plan) -> None:
        points = sorted(plan.captures, key=lambda point: (point.name != "island", point.name == "world"))
        for point in points:
            await self._jobs.start(self._jobs.spec_of(f"capture-{point.name}"))

    async def _start_clients(self) -> tuple[RunClock, int]:
        starts_ns = {transfer.client_job: transfer.start.ns for transfer in self._experiment.all_transfers}
        specs = self._jobs.of_phases(Phase.CLIENT, Phase.PING, Phase.TRANSFER)
        delays = [(spec, starts_ns.get(spec.name, 0)) for spec in specs]
        delays.append((self._jobs.spec_of("whistle-start"), 0))
        clocks = await self._testbed.platform.compare_clocks()
        clock = RunClock(clocks)
        begin_ns = clock.now_ns() + start_lead_ns(len(delays))
        self._recording.append_event("start", **start_event(begin_ns, clocks))
        await self._jobs.start_at([(spec, begin_ns + delay_ns) for spec, delay_ns in delays], clock)
        late_ns = clock.now_ns() - begin_ns
        if late_ns > 0:
            msg = f"the clients were not ready in time: {late_ns / 1e6:.0f} ms late; the machine is too busy"
            raise RunError(msg)
        return clock, begin_ns

    async def _start_traces(self, clock: RunClock, begin_ns: int) -> None:
        """Make links that follow a trace begin it with the load."""
        if not any(direction.trace for link in self._experiment.links for direction in (link.to_island, link.to_world)):
            return
        await clock.sleep_until(begin_ns)
        boxes = await self._testbed.start_traces()
        self._recording.append_event("trace_start", boxes=boxes)

    @contextlib.asynccontextmanager
    async def _changes(self, clock: RunClock, begin_ns: int) -> AsyncGenerator[None]:
        """Make the scheduled changes during the block, which ends after the last one."""
        work = asyncio.create_task(self._make_changes(clock, begin_ns))
        try:
            yield
            await work
        finally:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError, AtollError):
                await work

    async def _make_changes(self, clock: RunClock, begin_ns: int) -> None:
        """Make every change at its time; ``begin_ns``: start of the load. Raises RunError if an event is not written.

        Changes of the load are in the configurations of its jobs, which make them by themselves. If a change fails, the
        version before it stays active, and later changes, which were planned from its result, are not attempted. Events
        record this (docs/contracts.md).
        """
        testbed, event = self._testbed, self._recording.append_event
        for change, previous in zip(self._planned.schedule, self._experiment.versions, strict=False):
            planned_ns = begin_ns + change.version.at.ns
            await clock.sleep_until(planned_ns)
            differences = list(version_differences(previous, change.version))
            event("change", change=change.number, state="begin", planned_ns=planned_ns, what=differences)

            def record_swap(swap: SwapEvent, number: int = change.number) -> None:
                event("swap", swap.t_ns, state=swap.state, change=number, **swap.details)

            try:
                for box, request in change.links:
                    await testbed.set_link(box, request)
                if change.swap.stages:
                    with testbed.events.subscribe(record_swap, SwapEvent):
                        await testbed.apply(change.experiment, self._request.options.backend)
            except (LabError, PlanError) as error:
                event("change", change=change.number, state="failed", message="; ".join(str(error).splitlines()))
                return
            event("change", change=change.number, state="end", drain_ns=change.drain.ns)

    async def _wait_for_end(self, clock: RunClock, begin_ns: int) -> None:
        end_ns = begin_ns + self._experiment.duration.ns
        self._recording.begin_measurement()
        with contextlib.closing(ControlCount(self._testbed)) as control:
            while (remaining_ns := end_ns - clock.now_ns()) > 0:
                await asyncio.sleep(min(0.5, remaining_ns / 1e9))
                if clock.now_ns() >= begin_ns:  # what started the clients is not counted
                    control.begin()
                clock.check_step()
                now_ns = clock.now_ns()
                self._recording.publish_live(begin_ns, now_ns)
                self._jobs.raise_for_failed(remaining_ns=end_ns - now_ns)
            await self._record_control(control)
        self._jobs.raise_for_missing()
        for transfer in self._experiment.all_transfers:
            ends = transfer.job("send"), transfer.job("receive")
            if (reason := self._jobs.broken_transfer(*ends)) is not None:
                self._recording.append_event("transfer", transfer=transfer.name, state="failed", message=reason)
        self._recording.append_event("window", start_ns=begin_ns, end_ns=end_ns)
        self._recording.append_event("clocks", **clock.clocks_event(await self._testbed.platform.measure_clocks()))

    async def _record_control(self, control: ControlCount) -> None:
        traffic = await control.end()
        if traffic is not None:
            await self._recording.manifest.update({"in_band_control": traffic})
        elif self._testbed.network.in_band_hosts:
            self.note("the packets of in-band control were not counted: the switch did not answer in time")

    async def _end_load(self) -> None:
        await self._jobs.stop(Phase.CLIENT, Phase.TRANSFER)
        whistle = self._jobs.spec_of("whistle-end")
        await self._jobs.start(whistle)
        await self._jobs.wait_for_success(whistle, _WHISTLE_S)
        await asyncio.sleep(self._hold_s)  # whistles are not held
        await self._jobs.stop(Phase.SERVER, Phase.TRANSFER_SERVER)

    async def _collect(self) -> None:
        """Fetch the files of other machines into the run directory. Raises RunError if any is missing."""
        missing = await self._testbed.platform.collect(self._dir.path)
        for line in missing:
            self._recording.append_event("not_collected", message=line)
        if missing:
            raise RunError("\n".join(missing))


def _error_text(error: BaseException) -> str:
    """The error of a step in words; the type of an error without a message, which no step should raise."""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return str(error) or f"internal error ({type(error).__name__})"


HostSysctls = dict[str, tuple[tuple[str, str], ...]]
"""Sysctls by host: pairs of name and value."""


@contextlib.asynccontextmanager
async def pinned_tcp(
    testbed: Testbed, experiment: Experiment, note: Callable[[str], None]
) -> AsyncGenerator[tuple[HostSysctls, HostSysctls]]:
    """Set the TCP parameters of an experiment during the block; yields the settings by host, and those before.

    ``note`` takes remarks about settings that are not possible. Raises LabError if a machine refuses settings; those of
    the others are restored then.
    """
    machine, hosts = testbed.machine, [host.name for host in testbed.network.hosts]
    settings = await _permitted(testbed, {host: tcp_sysctls(experiment, host) for host in hosts}, note)
    for host in hosts[1:]:
        if machine(host).netns is not None:  # hosts in virtual time have one kernel: it is set, and restored, once
            settings[host] = tuple(pair for pair in settings[host] if pair[0] != HYSTART)
    answers = await asyncio.gather(*(machine(host).sysctl(settings[host]) for host in hosts), return_exceptions=True)
    previous: HostSysctls = {}
    errors: list[BaseException] = []
    for host, answer in zip(hosts, answers, strict=True):
        if isinstance(answer, BaseException):
            errors.append(answer)
        else:
            previous[host] = answer
    try:
        if errors:
            raise errors[0]
        yield settings, previous
    finally:
        with contextlib.suppress(LabError):
            await asyncio.gather(*(machine(host).sysctl(pairs) for host, pairs in previous.items()))


async def _permitted(testbed: Testbed, settings: HostSysctls, note: Callable[[str], None]) -> HostSysctls:
    """The settings without default congestion controls that the kernel allows in its first namespace only.

    The sockets of our own programs then request the congestion control individually, and fail if the kernel does not
    have it. Restricted controls: net.ipv4.tcp_allowed_congestion_control.
    """
    machine = testbed.machine(testbed.network.hosts[0].name)
    controls = {pair for pairs in settings.values() for pair in pairs if pair[0] == CONGESTION_CONTROL}
    for pair in sorted(controls):
        try:
            before = await machine.sysctl([pair])
        except LabError as error:
            note(f"set for each socket, because the default cannot be changed: {error}")
            settings = {host: tuple(item for item in pairs if item != pair) for host, pairs in settings.items()}
        else:
            await machine.sysctl(before)
    return settings
