# SPDX-License-Identifier: Apache-2.0
"""The state of the lab that the daemon owns from `up` to `down`, and the work on it. Contains no HTTP."""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from atoll_analysis.run_directory import RunDir
from atoll_controller.fabric.swap_plan import Swap
from atoll_controller.planner.placement import budget_lines, budgets_json, swap_budgets
from atoll_controller.planner.plan_text import parts_json, stage_lines, stages_json, swap_lines, wait_lines
from atoll_core.codec import to_json
from atoll_core.description.resolve_inventory import load_inventory
from atoll_core.description.resolve_lab import Lab
from atoll_core.errors import AtollError, LabError, RunDirError, RunError
from atoll_core.events.event_bus import EventBus, with_error_report
from atoll_core.events.events import (
    Counters,
    Live,
    MetricPoints,
    Note,
    Progress,
    RunBegun,
    StepBegun,
    SwapEvent,
    SwitchConnection,
)
from atoll_core.lab.network import Network
from atoll_core.plan.switch_features import Runtime
from atoll_core.platforms import LabTarget
from atoll_daemon.event_log import EventLog, LivePoints
from atoll_daemon.http.experiment_bodies import DescribedExperiment, current_description, warnings_json
from atoll_daemon.http.http_errors import RequestError, internal_error, no_lab_error
from atoll_daemon.last_failure import expect_kill, forget_failure, remember_failure
from atoll_daemon.replays.replay_index import Replays
from atoll_daemon.run_registry import RUNS, RunRecord, Runs
from atoll_daemon.task_runner import JsonObject, TaskRunner
from atoll_dashboards.grafana.grafana_links import recorded_link
from atoll_dashboards.influx.sink_supervisor import sink_for
from atoll_testbed.box_connections import ConnectionPolicy
from atoll_testbed.calibration.link_calibration import calibrate
from atoll_testbed.preflight.requirements import require_runnable
from atoll_testbed.run.live_run import LiveRun
from atoll_testbed.run.run_request import PlannedRun, RunOptions, RunRequest, create_run
from atoll_testbed.testbed import Testbed, while_up

_LOGGED_EVENTS = (Progress, StepBegun, RunBegun, SwitchConnection, SwapEvent, Live, Counters)


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """Options of :meth:`Testbed.apply`."""

    dry_run: bool
    at_once: bool
    connections: ConnectionPolicy
    probes: bool = True


@dataclass(frozen=True, slots=True)
class _RunningLab:
    """The testbed that is up, and the lab as described when it came up."""

    testbed: Testbed
    lab: Lab
    network: Network


class LabDaemon:
    """A testbed, its runs and events, and the work on it.

    ``for_run``: a run has started the daemon for itself; the lab is taken down while that run is analysed.
    """

    def __init__(self, target: LabTarget, *, for_run: bool) -> None:
        self.target = target
        self.for_run = for_run
        self.bus = EventBus()
        """Everything that happens on the lab; the event log, requests in progress and runs subscribe to it."""
        self.events = EventLog(time.time_ns)
        self.tasks = TaskRunner(self.events)
        self.points = LivePoints(self.events)
        self.runs = Runs()
        self.runs_folder = Path(RUNS).resolve()
        """The default parent of run directories: `runs` in the directory in which the daemon was started."""
        self.replays = Replays(self.runs_folder)
        self.boxes: dict[str, JsonObject] = {}
        """The latest counters of each link and delay box."""
        self.listens: list[str] = []
        """URLs of the API over TCP."""
        self.token_file: str | None = None
        """The file with the token for TCP."""
        self.end = asyncio.Event()
        """Set to make the daemon take the lab down and end."""
        self._running: _RunningLab | None = None
        self._takedown: asyncio.Task[tuple[str, ...]] | None = None
        self._described: DescribedExperiment | None = None
        self._background: set[asyncio.Task[None]] = set()
        self.bus.subscribe(with_error_report(self.events.record, _print_error), *_LOGGED_EVENTS)
        self.bus.subscribe(with_error_report(self._on_note, _print_error), Note)
        self.bus.subscribe(with_error_report(self._on_counters, _print_error), Counters)
        self.bus.subscribe(with_error_report(lambda event: self.points.add(event.points), _print_error), MetricPoints)

    # State

    @property
    def testbed(self) -> Testbed | None:
        """The testbed, if one is up."""
        return self._running.testbed if self._running else None

    def require_lab(self) -> tuple[Testbed, Lab]:
        """The testbed, and the lab as described. Raises RequestError (409) if no lab is up, LabError if it failed."""
        if self._running is None or self._takedown is not None:
            raise no_lab_error(self.target)
        if self._running.testbed.failed.done():
            raise LabError(self._running.testbed.failed.result())
        return self._running.testbed, self._running.lab

    def require_same_lab(self, network: Network) -> None:
        """Raise RequestError (409) unless the lab that is up is this one."""
        self.require_lab()
        described = self._running.network if self._running else network
        if described != network:
            lab_text = f"{described.name}, {described.file}"
            msg = (
                f"the lab that is up ({lab_text}) is not the one that {network.file} describes now, with the given "
                "settings; run `atoll down` first"
            )
            raise RequestError(409, msg, exit_code=1)

    def require_runtime(self, runtime: Runtime | None) -> None:
        """Raise RequestError (409) if the controller has another runtime than ``runtime``."""
        testbed, _ = self.require_lab()
        if runtime is not None and runtime != testbed.runtime:
            message = f"the controller of the lab that is up runs {testbed.runtime}, not {runtime}; `atoll down` first"
            raise RequestError(409, message, exit_code=1)

    @property
    def applied(self) -> DescribedExperiment | None:
        """The applied experiment with its current description; None before the first one."""
        experiment = self._running.testbed.experiment if self._running else None
        if experiment is None or self._described is None:
            return None
        return current_description(self._described, experiment)

    def require_applied(self) -> DescribedExperiment:
        """The applied experiment. Raises RequestError: 404 no experiment is applied, 409 no lab is up."""
        self.require_lab()
        applied = self.applied
        if applied is None:
            raise RequestError(404, "no experiment is applied; `atoll apply EXPERIMENT` applies one", exit_code=1)
        return applied

    # Work

    async def bring_up(self, lab: Lab, runtime: Runtime | None) -> JsonObject:
        """Bring a lab up unless it is up already, which the answer says."""
        network = lab.network
        if self._running is not None:
            self.require_same_lab(network)
            self.require_runtime(runtime)
            return {"already": True}
        network_at_path = _with_absolute_file(network)
        file = self.target.inventory
        inventory = None if file is None else await asyncio.to_thread(load_inventory, file, network_at_path)
        testbed = await Testbed.start(network_at_path, self.bus, runtime or Runtime.OS_KEN, inventory=inventory)
        self._running = _RunningLab(testbed, lab, network_at_path)
        if self.for_run:
            forget_failure(self.target)  # the run reports it
        else:
            expect_kill(self.target, network.name)
        self.events.add("lab", lab=network.name, state="up")
        self.spawn(self._end_with_lab(testbed))
        return {"already": False}

    async def apply(self, described: DescribedExperiment, options: ApplyOptions) -> JsonObject:
        """Apply an experiment; the answer has the changes."""
        testbed, _ = self.require_lab()
        dry_run = options.dry_run
        swaps: list[Swap] = []
        before = testbed.plan.flows if testbed.plan else ()
        try:
            plan, changes = await testbed.apply(
                described.experiment,
                described.backend,
                dry_run=dry_run,
                at_once=options.at_once,
                probes=options.probes,
                connections=options.connections,
                on_swap=swaps.append,
            )
        except BaseException as error:
            if testbed.experiment is described.experiment:  # the cutover was done before the error
                self._note_applied(described)
            if isinstance(error, AtollError) and testbed.failed.done():  # a failed program makes probes fail
                raise LabError(testbed.failed.result()) from error
            raise
        if not dry_run:
            self._note_applied(described, changes=len(changes))
        limit = options.connections.wait
        budgets = await asyncio.to_thread(
            lambda: [budget for swap in swaps for budget in swap_budgets(testbed.network, before, swap)]
        )
        return {
            "experiment": plan.experiment,
            "dry_run": dry_run,
            "changes": to_json(changes),
            "lines": [
                *map(str, changes),
                *(line for swap in swaps if dry_run for line in stage_lines(swap)),
                *(line for swap in swaps for line in swap_lines(swap)),
                *(line for swap in swaps if limit for line in wait_lines(testbed.network, swap, limit)),
                *budget_lines(budgets),
            ],
            "stages": [stage for swap in swaps for stage in stages_json(swap)],
            "parts": [part for swap in swaps for part in parts_json(swap)],
            "budgets": budgets_json(budgets),
            "warnings": warnings_json(testbed.network, described),
        }

    async def plan_run(self, described: DescribedExperiment, options: RunOptions, runs: Path) -> PlannedRun:
        """Check and plan a run. Raises as :func:`require_runnable`."""
        testbed, _ = self.require_lab()
        request = RunRequest(testbed.network, described.experiment, testbed.platform.name, options)
        return await asyncio.to_thread(require_runnable, request, runs)

    async def run(
        self, described: DescribedExperiment, planned: PlannedRun, runs: Path, record: RunRecord, *, analyse: bool
    ) -> JsonObject:
        """Run an experiment; the answer has the run directory, the summary, and the link to its points in Grafana.

        ``runs``: the parent of the run directory.
        """
        testbed, _ = self.require_lab()
        request = planned.request
        run_dir = create_run(runs, request, time.time_ns())
        self.runs.add(record, str(run_dir.path), run_dir.path.name)
        self.replays.add(run_dir.path)

        def on_progress(event: StepBegun | Live) -> None:
            record.update(event)
            if testbed.experiment is request.experiment and self._described is not described:
                self._note_applied(described)

        metrics = request.options.metrics
        self.bus.publish(RunBegun(record.id, str(run_dir.path)))
        with contextlib.closing(run_dir), self.bus.subscribe(on_progress, StepBegun, Live):
            running = LiveRun(testbed, planned, run_dir)
            sink = sink_for(run_dir.path, running.note, self._publish_progress) if metrics else contextlib.nullcontext()
            async with _recording_files(run_dir):
                async with sink as sent:
                    with self.points.of_run(record.id, counters_from_run=metrics):
                        await running.measure(record.started_ns)
                if self.for_run and self._running is not None:
                    self._take_down(self._running)
                summary = await running.analyse() if analyse else None
        link = recorded_link(run_dir) if sent and sent.points else None
        return {"run_dir": str(run_dir.path), "summary": summary, "grafana": link}

    async def calibrate(self, described: DescribedExperiment, directions: list[str], seconds: float) -> JsonObject:
        """Calibrate the links of an experiment against their configuration; the answer has the figures."""
        testbed, _ = self.require_lab()
        await testbed.apply(described.experiment, described.backend, at_once=True)
        self._note_applied(described)
        work = calibrate(testbed, described.experiment, directions, seconds)
        rows, base_rtt_ns, lab_rtt_ns = await while_up(testbed, work)
        return {"calibration": {"rows": to_json(rows), "base_rtt_ns": base_rtt_ns, "lab_rtt_ns": lab_rtt_ns}}

    async def stop(self) -> None:
        """Cancel the work in progress and take the lab down."""
        await self.tasks.end()
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._running is not None:
            testbed = self._running.testbed
            leftovers = await self._take_down(self._running)
            if leftovers:
                sys.stderr.write("".join(f"daemon: {line}\n" for line in leftovers))
                reasons = [testbed.failed.result(), *leftovers] if testbed.failed.done() else leftovers
                remember_failure(self.target, testbed.network.name, "; ".join(reasons), time.time_ns(), leftovers)
            elif not self.for_run and not testbed.failed.done():
                forget_failure(self.target)

    def _take_down(self, running: _RunningLab) -> "asyncio.Task[tuple[str, ...]]":
        """Begin to take the lab down, unless that has begun, in a task that no cancellation of a run reaches."""
        if self._takedown is None:
            self.events.add("lab", lab=running.testbed.network.name, state="down")
            self._takedown = asyncio.create_task(running.testbed.stop())
        return self._takedown

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a background task that the daemon keeps until it ends."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._on_background_end)

    def _on_background_end(self, task: "asyncio.Task[None]") -> None:
        self._background.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:  # without its background tasks the daemon would not notice that the lab fails
            self.bus.publish(Note(str(internal_error(error))))
            self.end.set()

    # Events

    def _note_applied(self, described: DescribedExperiment, **fields: Any) -> None:
        self._described = described
        chain = list(described.experiment.chain.hops)
        self.events.add("applied", experiment=described.experiment.name, chain=chain, **fields)

    def _on_counters(self, event: Counters) -> None:
        self.boxes[event.box] = {key: part for key, part in event.to_json().items() if key != "type"}
        if self.testbed is not None:
            self.points.add_counters(self.testbed, event, time.time_ns())

    def _on_note(self, event: Note) -> None:
        if self.runs.in_progress is None:  # the run records it
            sys.stderr.write(f"daemon: {event.message}\n")
        self.events.record(event)

    def _publish_progress(self, text: str) -> None:
        self.bus.publish(Progress(text))

    async def _end_with_lab(self, testbed: Testbed) -> None:
        reason = await asyncio.shield(testbed.failed)
        self.events.add("lab", lab=testbed.network.name, state="failed", message=reason)
        if not self.for_run:  # the run reports it
            remember_failure(self.target, testbed.network.name, reason, time.time_ns())
        # Let the work in progress end first: a run saves its measurements.
        await self.tasks.idle.wait()
        sys.stderr.write(f"daemon: {reason}\n")
        self.end.set()


@contextlib.asynccontextmanager
async def _recording_files(run_dir: RunDir) -> AsyncGenerator[None]:
    """Record the files of a run when the block ends, also by an error or cancelled."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(RunError, RunDirError):  # the first error is raised
            await asyncio.to_thread(run_dir.write_checksums)
        raise
    await asyncio.to_thread(run_dir.write_checksums)


def _print_error(text: str) -> None:
    sys.stderr.write(f"daemon: {text}\n")


def _with_absolute_file(network: Network) -> Network:
    """The network with the absolute path of its file: later commands may run in another directory."""
    return replace(network, file=os.path.abspath(network.file))  # noqa: PTH100 (Path.absolute keeps `..`)
