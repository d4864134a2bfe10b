# SPDX-License-Identifier: Apache-2.0
"""`atoll sweep`: make the runs of a study that are missing."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from atoll_analysis.figures.run_figures import FIGURES
from atoll_cli.commands.selection import lab_target, refuse
from atoll_cli.terminal.output import warn
from atoll_cli.terminal.progress import EXIT_INVALID
from atoll_cli.terminal.results_text import print_results
from atoll_cli.terminal.signals import unless_interrupted
from atoll_cli.terminal.study_table import SweepProgress, duration_text
from atoll_controller.planner.description_warnings import description_warnings
from atoll_controller.planner.virtual_cost import rough
from atoll_core.errors import InterruptedByUserError, RunError
from atoll_core.plural import counted
from atoll_studies.results.result_tables import columns, results_json, write_tables
from atoll_studies.results.results import read_results
from atoll_studies.study import load_study
from atoll_studies.study_directory import StudyDirectory
from atoll_studies.sweeping.sweep import State, Sweep

DEFAULT_PARENT = Path("runs/studies")


def sweep_study(
    file: Path,
    directory: Path | None,
    inventory: Path | None,
    jobs: int | None,
    scheduler: str | None,
    *,
    resume: bool,
    mix: bool,
    dry_run: bool,
    strict: bool,
    as_json: bool,
) -> int:
    """`atoll sweep`; returns the exit code."""
    study = load_study(file, tuple(FIGURES), columns())
    target = lab_target(inventory, study.platform)
    warnings = warn(
        dict.fromkeys(
            each
            for configuration in study.configurations
            for each in description_warnings(
                configuration.network, configuration.experiment, study.backend, study.platform
            )
        ),
        strict=strict,
    )
    place = StudyDirectory((directory or DEFAULT_PARENT / study.name).resolve())
    refuse(bool(scheduler and jobs), "--jobs: a cluster makes one run for each thread of its workers; leave it out")
    sweep = Sweep(study, place, target.inventory, scheduler)
    sweep.require_machine()
    jobs = sweep.jobs(jobs)
    sweep.read(resume=resume or dry_run, mix=mix or dry_run)
    if sweep.unused:
        why = "belong to no point of the study as it is now; they are kept, and not used"
        print(f"{place.path}: {counted(sweep.unused, 'run')} {why}", file=sys.stderr)
    if dry_run:
        _print_prediction(sweep, jobs, as_json=as_json)
        return 0
    with place.locked():
        sweep.read(resume=resume, mix=mix)  # again: another sweep may have added runs since
        interrupted = _run(sweep, jobs)
        results = read_results(place)
        written = write_tables(results, place.path)
    counts = sweep.counts()
    if as_json:
        about = {"directory": str(place.path), "points": dict(counts), "warnings": warnings}
        print(json.dumps({**results_json(results), **about, "written": list(map(str, written))}))
    elif not interrupted:
        print_results(results)
        for each in sweep.points.values():
            if each.state is State.FAILED and each.loss:
                print(f"failed: {each.point.label}: {each.loss}")
        for path in written:
            print(f"written: {path}")
    if interrupted:
        raise InterruptedByUserError(
            f"cancelled; {counts[State.DONE]} of {counted(sweep.taken, 'run')} are in {place.path}; --resume makes the "
            "missing ones"
        )
    if counts[State.FAILED]:
        return RunError.exit_code
    return EXIT_INVALID if counts[State.INVALID] else 0


def _run(sweep: Sweep, jobs: int) -> bool:
    """Make the runs; returns whether that was interrupted."""

    async def execute() -> bool:
        try:
            await unless_interrupted(sweep.run(jobs))
        except asyncio.CancelledError:
            return True
        return False

    with SweepProgress(sweep, jobs):
        return asyncio.run(execute())


def _print_prediction(sweep: Sweep, jobs: int, *, as_json: bool) -> None:
    predicted, most = sweep.predict(jobs), sweep.predict(jobs, at_most=True)
    counts = sweep.counts()
    if as_json:
        about: dict[str, Any] = {
            "directory": str(sweep.directory.path),
            "points": dict(counts),
            "runs": predicted.runs,
            "jobs": predicted.jobs,
            "estimated_wall_s": round(predicted.wall.s, 1),
            "estimated_disk_bytes": predicted.disk.bytes,
            "most": {
                "runs": most.runs,
                "estimated_wall_s": round(most.wall.s, 1),
                "estimated_disk_bytes": most.disk.bytes,
            },
            "order": [
                {"point": each.point.id, "levels": dict(each.point.levels), "seed": each.point.seed}
                for each in sweep.left()
            ],
        }
        print(json.dumps(about))
        return
    for each in sweep.left():
        print(f"{each.point.id}  {each.point.label}")
    done = f"; {counts[State.DONE]} are done" if counts[State.DONE] else ""
    runs, wall = counted(predicted.runs, "run"), duration_text(predicted.wall.s)
    space = rough(predicted.disk)
    if most.runs > predicted.runs:  # of a study with `stop`
        runs = f"{predicted.runs} to {counted(most.runs, 'run')}"
        wall, space = f"{wall} to {duration_text(most.wall.s)}", f"{space} to {rough(most.disk)}"
    print(
        f"{runs}, {predicted.jobs} at a time, in {sweep.directory.path}{done}: "
        f"about {wall} of wall time and {space} of disk (estimates, correct within a factor of two on an idle machine)"
    )
