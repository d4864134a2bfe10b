# SPDX-License-Identifier: Apache-2.0
"""`atoll run --on virtual`: run an experiment in virtual time, or twice to verify that the run repeats."""

import asyncio
import time
from typing import Any

from atoll_analysis.reproducibility import RepeatComparison, compare_runs
from atoll_analysis.run_directory import RunDir
from atoll_cli.commands.run_arguments import RunArguments
from atoll_cli.terminal.output import warn
from atoll_cli.terminal.progress import (
    EXIT_INVALID,
    LiveLine,
    ParallelRuns,
    estimate_text,
    print_result,
    recorded_runs,
)
from atoll_cli.terminal.signals import unless_interrupted
from atoll_controller.planner.description_warnings import description_warnings
from atoll_controller.planner.virtual_cost import memory, wall_time
from atoll_core.events.events import Note, StepBegun
from atoll_core.platforms import VIRTUAL
from atoll_core.units import Duration, Size
from atoll_emulation.this_machine.core_pinning import claimed_core, usable_cores
from atoll_emulation.this_machine.host_requirements import require_virtual_machine
from atoll_emulation.uml.kernel import UmlKernel
from atoll_testbed.preflight.requirements import require_memory, require_runnable
from atoll_testbed.run.postprocess import compress_and_analyse
from atoll_testbed.run.run_request import RunRequest, create_run
from atoll_testbed.virtual.virtual_run import measure_in_kernel


def run_in_virtual_time(command: RunArguments) -> int:
    """`atoll run --on virtual`; returns the exit code."""
    request = command.request()
    network, experiment, backend = request.network, request.experiment, request.options.backend
    number = 2 if command.twice else 1
    needed = memory(network, experiment)
    memory_doubt = require_memory(experiment, Size(needed.bytes * min(number, usable_cores())))
    doubts = (*description_warnings(network, experiment, backend, VIRTUAL), *memory_doubt)
    warnings = warn(doubts, strict=command.strict)
    require_runnable(request, command.runs)
    kernel = require_virtual_machine()
    now_ns = time.time_ns()
    runs = command.runs.resolve()
    run_dirs = [create_run(runs, request, now_ns) for _ in range(number)]
    estimate = wall_time(network, experiment, backend)
    run = _VirtualRun(request, run_dirs, kernel, (estimate, needed), warnings, analyse=command.analyse)
    return asyncio.run(run.execute(as_json=command.as_json))


class _VirtualRun:
    def __init__(
        self,
        request: RunRequest,
        run_dirs: list[RunDir],
        kernel: UmlKernel,
        estimates: tuple[Duration, Size],  # wall time and memory of a run
        warnings: list[dict[str, Any]],
        *,
        analyse: bool,
    ) -> None:
        self._request = request
        self._run_dirs = run_dirs
        self._kernel = kernel
        self._estimates = estimates
        self._warnings = warnings
        self._analyse = analyse
        self._show = LiveLine()
        self._turns = ParallelRuns(self._show, len(run_dirs))
        # Two kernels on one core are no faster in parallel than one after the other.
        self._cores = asyncio.Semaphore(usable_cores())

    async def execute(self, *, as_json: bool) -> int:
        began = time.monotonic()
        self._show.take(Note(estimate_text(*self._estimates)).to_line())
        with recorded_runs(self._show, [run_dir.path for run_dir in self._run_dirs]):
            summary, comparison = await unless_interrupted(self._execute())
        return self._print(summary, comparison, time.monotonic() - began, as_json=as_json)

    async def _execute(self) -> tuple[dict[str, Any] | None, RepeatComparison | None]:
        runs = [asyncio.create_task(self._run(*each)) for each in enumerate(self._run_dirs)]
        try:
            summary, *_ = await asyncio.gather(*runs)
        finally:
            for run in runs:
                run.cancel()
            await asyncio.gather(*runs, return_exceptions=True)
        if len(self._run_dirs) == 1:
            return summary, None
        self._show.step("comparing the runs")
        return summary, await asyncio.to_thread(compare_runs, *self._run_dirs)

    async def _run(self, number: int, run_dir: RunDir) -> dict[str, Any] | None:
        async with self._cores:
            with claimed_core() as core:
                await measure_in_kernel(
                    run_dir, self._request, self._kernel, core, lambda line: self._turns.take(number, line)
                )
        summary = None
        if self._analyse:
            self._turns.take(number, StepBegun("analyse").to_line())
            summary = await compress_and_analyse(run_dir)
        self._turns.over(number)
        return summary

    def _print(
        self, summary: dict[str, Any] | None, comparison: RepeatComparison | None, wall_s: float, *, as_json: bool
    ) -> int:
        duration_s = self._request.experiment.duration.s
        factor = duration_s / wall_s
        extra: dict[str, Any] = {"wall_s": round(wall_s, 3), "factor": round(factor, 3), "warnings": self._warnings}
        wall, needed = self._estimates
        extra |= {"estimated_wall_s": round(wall.s, 1), "estimated_memory_bytes": needed.bytes}
        if comparison is not None:
            extra["repeat"] = comparison.to_json()
        code = print_result(summary, self._run_dirs[0].path, as_json=as_json, extra=extra)
        if not as_json:
            times = f" ({len(self._run_dirs)} runs)" if comparison else ""
            print(f"{duration_s:g} s of virtual time in {wall_s:.1f} s{times}: {factor:.3g} x real time")
            if comparison is not None:
                print(comparison)
        return EXIT_INVALID if comparison is not None and not comparison.identical else code
