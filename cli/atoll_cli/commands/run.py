# SPDX-License-Identifier: Apache-2.0
"""`atoll run`: run an experiment from description to report, with a live line; in virtual time also twice.

Two runs verify that the run repeats.
"""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atoll_analysis.reproducibility import RepeatComparison, compare_runs
from atoll_analysis.run_directory import RunDir
from atoll_cli.commands.lab import listen_on, require_listen
from atoll_cli.terminal.output import warn
from atoll_cli.terminal.progress import (
    EXIT_INVALID,
    LiveLine,
    ParallelRuns,
    estimate_text,
    print_result,
    recorded_runs,
    unless_interrupted,
)
from atoll_controller.planner.description_warnings import description_warnings
from atoll_controller.planner.virtual_cost import memory, wall_time
from atoll_core.description.loader import DescriptionFile
from atoll_core.events.events import Note, StepBegun
from atoll_core.plan.switch_features import Runtime
from atoll_core.platforms import MININET, VIRTUAL, LabTarget
from atoll_core.units import Size
from atoll_daemon.client import Description, lab_in_use
from atoll_dashboards.grafana.grafana_links import grafana_address
from atoll_dashboards.influx.influx_settings import settings_digest
from atoll_emulation.this_machine.core_pinning import claimed_core, usable_cores
from atoll_emulation.this_machine.host_requirements import require_virtual_machine
from atoll_testbed.preflight.requirements import require_machine_for, require_memory, require_runnable
from atoll_testbed.run.postprocess import compress_and_analyse
from atoll_testbed.run.run_request import RunOptions, RunRequest, create_run
from atoll_testbed.virtual.virtual_run import measure_in_kernel


@dataclass(frozen=True, slots=True)
class RunCommand:
    """A run, and what the command does with it.

    ``runs``: the parent of its directory.
    ``keep``: leave the lab up. ``twice``: run it twice and compare the runs.
    """

    experiment: DescriptionFile
    target: LabTarget
    options: RunOptions
    runs: Path
    runtime: Runtime | None
    listen: str | None
    keep: bool
    analyse: bool
    twice: bool
    strict: bool
    as_json: bool


def run_experiment(command: RunCommand) -> int:
    """`atoll run`; returns the exit code."""
    started_ns = time.time_ns()
    request = RunRequest(*command.experiment.network_and_experiment(), command.target.platform, command.options)
    if request.platform == VIRTUAL:
        return _run_in_virtual_time(command, request)
    return _run_in_real_time(command, request, started_ns)


def _run_in_real_time(command: RunCommand, request: RunRequest, started_ns: int) -> int:
    """A run on the lab that is up, or on one of its own."""
    network, experiment, backend = request.network, request.experiment, request.options.backend
    require_listen(command.listen)
    grafana = grafana_address()
    warnings = warn(description_warnings(network, experiment, backend, MININET), strict=command.strict)
    require_runnable(request, command.runs)
    require_machine_for(request.platform, backend)
    file, live_line = command.experiment, LiveLine()
    run_dirs: list[Path] = []  # at most one, once the daemon has made it

    def on_line(line: dict[str, Any]) -> None:
        if line["type"] == "run":
            run_dirs.append(Path(line["run_dir"]))
        live_line.take(line)

    async def run() -> dict[str, Any]:
        async with lab_in_use(
            command.target,
            Description(file.lab_path(), file.lab_settings),
            on_line,
            prepare=lambda daemon: listen_on(daemon, command.listen),
            runtime=command.runtime,
            keep=command.keep,
        ) as daemon:
            return await daemon.run(
                Description(file.path, file.settings),
                on_line,
                command.runs,
                command.options,
                started_ns,
                runtime=command.runtime,
                analyse=command.analyse,
                influx=settings_digest(),
            )

    with recorded_runs(live_line, run_dirs):
        result = asyncio.run(unless_interrupted(run()))
    overhead_s = (time.time_ns() - started_ns) / 1e9 - experiment.duration.s
    extra: dict[str, Any] = {"overhead_s": round(overhead_s, 3), "warnings": warnings}
    link = None if result.get("grafana") is None else f"{grafana}{result['grafana']}"
    return print_result(result["summary"], run_dirs[0], as_json=command.as_json, extra=extra, grafana=link)


def _run_in_virtual_time(command: RunCommand, request: RunRequest) -> int:
    network, experiment, backend = request.network, request.experiment, request.options.backend
    run_count = 2 if command.twice else 1
    memory_size = memory(network, experiment)
    memory_warnings = require_memory(experiment, Size(memory_size.bytes * min(run_count, usable_cores())))
    diagnostics = (*description_warnings(network, experiment, backend, VIRTUAL), *memory_warnings)
    warnings = warn(diagnostics, strict=command.strict)
    require_runnable(request, command.runs)
    kernel = require_virtual_machine()
    now_ns = time.time_ns()
    run_dirs = [create_run(command.runs.resolve(), request, now_ns) for _ in range(run_count)]
    estimate = wall_time(network, experiment, backend)
    live_line = LiveLine()
    runs = ParallelRuns(live_line, run_count)
    # Two kernels on one core are no faster in parallel than one after the other.
    cores = asyncio.Semaphore(usable_cores())

    async def run(index: int, run_dir: RunDir) -> dict[str, Any] | None:
        async with cores:
            with claimed_core() as core:
                await measure_in_kernel(run_dir, request, kernel, core, lambda line: runs.take(index, line))
        summary = None
        if command.analyse:
            runs.take(index, StepBegun("analyse").to_line())
            summary = await compress_and_analyse(run_dir)
        runs.end_run(index)
        return summary

    async def run_all() -> tuple[dict[str, Any] | None, RepeatComparison | None]:
        tasks = [asyncio.create_task(run(index, run_dir)) for index, run_dir in enumerate(run_dirs)]
        try:
            summary, *_ = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if run_count == 1:
            return summary, None
        live_line.show_step("comparing the runs")
        return summary, await asyncio.to_thread(compare_runs, *run_dirs)

    start_s = time.monotonic()
    live_line.take(Note(estimate_text(estimate, memory_size)).to_line())
    with recorded_runs(live_line, [run_dir.path for run_dir in run_dirs]):
        summary, comparison = asyncio.run(unless_interrupted(run_all()))
    wall_s, duration_s = time.monotonic() - start_s, experiment.duration.s
    factor = duration_s / wall_s
    extra: dict[str, Any] = {"wall_s": round(wall_s, 3), "factor": round(factor, 3), "warnings": warnings}
    extra |= {"estimated_wall_s": round(estimate.s, 1), "estimated_memory_bytes": memory_size.bytes}
    if comparison is not None:
        extra["repeat"] = comparison.to_json()
    code = print_result(summary, run_dirs[0].path, as_json=command.as_json, extra=extra)
    if not command.as_json:
        runs_text = f" ({run_count} runs)" if comparison else ""
        print(f"{duration_s:g} s of virtual time in {wall_s:.1f} s{runs_text}: {factor:.3g} x real time")
        if comparison is not None:
            print(comparison)
    return EXIT_INVALID if comparison is not None and not comparison.identical else code
