# SPDX-License-Identifier: Apache-2.0
"""`atoll run --on virtual`: run an experiment in virtual time, or twice to verify that the run repeats."""

import asyncio
import time
from pathlib import Path
from typing import Any

from atoll_analysis.reproducibility import RepeatComparison, compare_runs
from atoll_analysis.run_directory import RunDir
from atoll_cli.commands.selection import require_writable
from atoll_cli.terminal.diagnostics import warn
from atoll_cli.terminal.progress import (
    EXIT_INVALID,
    FailedRunError,
    LiveLine,
    ParallelRuns,
    estimate_text,
    print_result,
    recorded_data_text,
)
from atoll_cli.terminal.signals import unless_interrupted
from atoll_controller.planner.change_schedule import plan_schedule
from atoll_controller.planner.description_warnings import description_warnings, memory_warnings
from atoll_controller.planner.planner import make_plan
from atoll_controller.planner.virtual_cost import memory, wall_time
from atoll_core.errors import AtollError, Diagnostic, InterruptedByUserError, MachineError
from atoll_core.events.events import Note, StepBegun
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend
from atoll_core.platforms import VIRTUAL
from atoll_core.units import Duration, Size
from atoll_emulation.this_machine.box_programs import require_programs
from atoll_emulation.this_machine.congestion_controls import offered_by_virtual_kernel, require_controls
from atoll_emulation.this_machine.core_pinning import claimed_core, usable_cores
from atoll_emulation.this_machine.host_requirements import free_memory, require_virtual_machine
from atoll_emulation.uml.kernel import UmlKernel
from atoll_testbed.run.postprocess import compress_and_analyse
from atoll_testbed.run.run_request import create_run
from atoll_testbed.virtual.virtual_run import measure_in_kernel


def run_in_virtual_time(
    described: tuple[Network, Experiment],
    runs: Path,
    backend: Backend,
    *,
    analyse: bool,
    metrics: bool,
    full_matrix: bool,
    twice: bool,
    strict: bool,
    as_json: bool,
) -> int:
    """`atoll run --on virtual`; returns the exit code."""
    network, experiment = described
    require_writable(runs)
    needed = memory(network, experiment)
    memory_doubt = require_memory(experiment, Size(needed.bytes * min(2 if twice else 1, usable_cores())))
    warnings = warn((*description_warnings(network, experiment, backend, VIRTUAL), *memory_doubt), strict=strict)
    require_controls(experiment, offered_by_virtual_kernel())
    require_programs(network, experiment)
    make_plan(network, experiment, backend)  # raises for settings that this backend cannot emulate,
    plan_schedule(network, experiment)  # and for changes that cannot be carried out
    kernel = require_virtual_machine()
    now_ns = time.time_ns()
    runs = runs.resolve()
    run_dirs = [
        create_run(runs, network, experiment, backend, VIRTUAL, now_ns, metrics=metrics, full_matrix=full_matrix)
        for _ in range(2 if twice else 1)
    ]
    estimate = wall_time(network, experiment, backend)
    command = _VirtualRunCommand(run_dirs, kernel, experiment.duration.s, (estimate, needed), warnings, analyse=analyse)
    return asyncio.run(command.execute(as_json=as_json))


def require_memory(experiment: Experiment, needed: Size) -> tuple[Diagnostic, ...]:
    """Warnings if the memory needed is not free. Raises MachineError if less than half of it is."""
    free = free_memory()
    doubt = memory_warnings(experiment, needed, free)
    if needed.bytes > 2 * free.bytes:
        raise MachineError("\n".join(map(str, doubt)))
    return doubt


class _VirtualRunCommand:
    def __init__(
        self,
        run_dirs: list[RunDir],
        kernel: UmlKernel,
        duration_s: float,
        estimates: tuple[Duration, Size],  # wall time and memory of a run
        warnings: list[dict[str, Any]],
        *,
        analyse: bool,
    ) -> None:
        self._run_dirs = run_dirs
        self._kernel = kernel
        self._duration_s = duration_s
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
        try:
            summary, comparison = await unless_interrupted(self._execute())
        except asyncio.CancelledError:
            where = recorded_data_text(*(run_dir.path for run_dir in self._run_dirs))
            raise InterruptedByUserError(f"cancelled; {where}") from None
        except AtollError as error:
            raise FailedRunError(error, *(run_dir.path for run_dir in self._run_dirs)) from error
        finally:
            self._show.close()
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
                await measure_in_kernel(run_dir, self._kernel, core, lambda line: self._turns.take(number, line))
        summary = None
        if self._analyse:
            self._turns.take(number, StepBegun("analyse").to_line())
            summary = await compress_and_analyse(run_dir)
        self._turns.over(number)
        return summary

    def _print(
        self, summary: dict[str, Any] | None, comparison: RepeatComparison | None, wall_s: float, *, as_json: bool
    ) -> int:
        factor = self._duration_s / wall_s
        extra: dict[str, Any] = {"wall_s": round(wall_s, 3), "factor": round(factor, 3), "warnings": self._warnings}
        wall, needed = self._estimates
        extra |= {"estimated_wall_s": round(wall.s, 1), "estimated_memory_bytes": needed.bytes}
        if comparison is not None:
            extra["repeat"] = comparison.to_json()
        code = print_result(summary, self._run_dirs[0].path, as_json=as_json, extra=extra)
        if not as_json:
            times = f" ({len(self._run_dirs)} runs)" if comparison else ""
            print(f"{self._duration_s:g} s of virtual time in {wall_s:.1f} s{times}: {factor:.3g} x real time")
            if comparison is not None:
                print(comparison)
        return EXIT_INVALID if comparison is not None and not comparison.identical else code
