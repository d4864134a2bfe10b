# SPDX-License-Identifier: Apache-2.0
"""`atoll sweep`: make the runs of a study that are missing, with a table that fills in."""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from atoll_cli.commands.selection import lab_target, refuse
from atoll_cli.terminal.output import warn
from atoll_cli.terminal.progress import EXIT_INVALID, duration_text, unless_interrupted
from atoll_cli.terminal.results_text import print_results
from atoll_controller.planner.description_warnings import description_warnings
from atoll_controller.planner.virtual_cost import rough_size
from atoll_core.errors import InterruptedByUserError, RunError
from atoll_core.plural import counted
from atoll_core.units import Size
from atoll_studies.results.result_tables import reserved_columns, results_json, write_tables
from atoll_studies.results.results import read_results
from atoll_studies.study import load_study
from atoll_studies.study_directory import StudyDirectory
from atoll_studies.sweeping.sweep import PointState, Prediction, State, Sweep

DEFAULT_PARENT = Path("runs/studies")

_MARKS = {
    State.WAITING: ("·", "dim"),
    State.RUNNING: ("▸", "cyan"),
    State.DONE: ("✓", "green"),
    State.INVALID: ("✗", "red"),
    State.FAILED: ("!", "red"),
}
_REFRESH_HZ = 2
_MAX_MARKS = 40  # seeds of one configuration that are shown one by one


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
    study = load_study(file, reserved_columns())
    target = lab_target(inventory, study.platform)
    warnings = warn(
        dict.fromkeys(
            warning
            for configuration in study.configurations
            for warning in description_warnings(
                configuration.network, configuration.experiment, study.backend, study.platform
            )
        ),
        strict=strict,
    )
    study_directory = StudyDirectory((directory or DEFAULT_PARENT / study.name).resolve())
    refuse(bool(scheduler and jobs), "--jobs: a cluster makes one run for each thread of its workers; leave it out")
    sweep = Sweep(study, study_directory, target.inventory, scheduler)
    sweep.require_machine()
    jobs = sweep.jobs(jobs)
    sweep.read(resume=resume or dry_run, mix=mix or dry_run)
    if sweep.unused_runs:
        reason = "belong to no point of the study as it is now; they are kept, and not used"
        print(f"{study_directory.path}: {counted(sweep.unused_runs, 'run')} {reason}", file=sys.stderr)
    if dry_run:
        _print_prediction(sweep, jobs, as_json=as_json)
        return 0
    with study_directory.locked():
        sweep.read(resume=resume, mix=mix)  # again: another sweep may have added runs since
        interrupted = _run_sweep(sweep, jobs)
        results = read_results(study_directory)
        written = write_tables(results, study_directory.path)
    counts = sweep.counts()
    if as_json:
        metadata = {"directory": str(study_directory.path), "points": dict(counts), "warnings": warnings}
        print(json.dumps({**results_json(results), **metadata, "written": list(map(str, written))}))
    elif not interrupted:
        print_results(results)
        for state in sweep.points.values():
            if state.state is State.FAILED and state.loss_reason:
                print(f"failed: {state.point.label}: {state.loss_reason}")
        for path in written:
            print(f"written: {path}")
    if interrupted:
        raise InterruptedByUserError(
            f"cancelled; {counts[State.DONE]} of {counted(sweep.needed_runs, 'run')} are in {study_directory.path}; "
            "--resume makes the missing ones"
        )
    if counts[State.FAILED]:
        return RunError.exit_code
    return EXIT_INVALID if counts[State.INVALID] else 0


def _run_sweep(sweep: Sweep, jobs: int) -> bool:
    """Make the runs; returns whether that was interrupted."""
    with SweepProgress(sweep, jobs):
        try:
            asyncio.run(unless_interrupted(sweep.run(jobs)))
        except InterruptedByUserError:
            return True
        return False


class SweepProgress:
    """The progress of a sweep on standard error: a table that is redrawn on a terminal, elsewhere a line for each run.

    A context manager.
    """

    def __init__(self, sweep: Sweep, jobs: int) -> None:
        self._sweep = sweep
        self._jobs = jobs
        self._brackets: dict[tuple[str, ...], str] = {}  # of searches, as they were printed
        self._console = Console(stderr=True, markup=False)
        self._live = (
            Live(get_renderable=self._render, console=self._console, refresh_per_second=_REFRESH_HZ, transient=True)
            if self._console.is_terminal
            else None
        )
        sweep.on_change = self._on_change

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def _on_change(self, state: PointState) -> None:
        if self._live is not None or state.state is State.RUNNING:
            return
        outcome = f"no attempt: {state.loss_reason}"
        if state.attempts and not state.loss_reason:
            attempt = state.attempts[-1]
            outcome = f"{attempt.outcome} ({attempt.message})" if attempt.message else attempt.outcome
        print(f"{state.point.label}: {outcome}; {self._footer()}", file=sys.stderr, flush=True)
        for others, text in self._searches():
            if self._brackets.get(others) != text:
                print(text, file=sys.stderr, flush=True)
            self._brackets[others] = text

    def _searches(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Each search with the capacities that are still possible."""
        for others, path in self._sweep.searches.items():
            if path.steps:
                low, high = (Size(end) for end in (path.steps[-1].low, path.steps[-1].high))
                label = ", ".join(("search", *others))
                yield others, f"{label}: found {low}" if path.best else f"{label}: {low} to {high}"

    def _footer(self) -> str:
        counts = self._sweep.counts()
        text = f"{counts[State.DONE]} of {counted(self._sweep.needed_runs, 'run')} done"
        more = counts[State.OPTIONAL] + self._sweep.most_searched
        text += f", {more} more if needed" if more else ""
        if self._console.is_terminal:
            text += f", {counts[State.RUNNING]} running" if counts[State.RUNNING] else ""
        for state in (State.INVALID, State.FAILED):
            text += f", {counts[state]} {state}" if counts[state] else ""
        remaining_s = self._sweep.time_left_s(self._jobs)
        return f"{text}, about {duration_text(remaining_s)} to go" if remaining_s else text

    def _render(self) -> RenderableType:
        study = self._sweep.study
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in study.factors:
            table.add_column(name, overflow="fold")
        table.add_column("runs")
        table.add_column("median wall time", justify="right")
        searches = [Text(text) for _, text in self._searches()][: self._console.height // 3]
        max_rows = max(1, self._console.height - 4 - len(searches))
        rows = list(self._rows())
        for row in rows[:max_rows]:
            table.add_row(*row)
        hidden = len(rows) - max_rows
        more_text = [Text(f"and {counted(hidden, 'configuration')} more", style="dim")] if hidden > 0 else []
        return Group(table, *more_text, *searches, Text(self._footer()))

    def _rows(self) -> Iterator[tuple[RenderableType, ...]]:
        states = list(self._sweep.points.values())  # of one configuration in the order of their repetitions
        configurations = self._sweep.study.configurations  # read after the points: a search adds both
        points_of: list[list[PointState]] = [[] for _ in configurations]
        for state in states:
            points_of[state.point.configuration].append(state)
        for configuration, points in zip(configurations, points_of, strict=True):
            times_s = sorted(point.chosen.wall_s for point in points if point.chosen)
            taken = [point.state for point in points if point.state is not State.OPTIONAL]
            marks = Text.assemble(*(_MARKS[state] for state in taken))
            if len(taken) > _MAX_MARKS:
                marks = Text(f"{len(times_s)} of {len(taken)}")
            yield (*configuration.levels, marks, duration_text(times_s[len(times_s) // 2]) if times_s else "")


def _prediction_json(total: Prediction) -> dict[str, Any]:
    return {"runs": total.runs, "estimated_wall_s": round(total.wall.s, 1), "estimated_disk_bytes": total.disk.bytes}


def _print_prediction(sweep: Sweep, jobs: int, *, as_json: bool) -> None:
    expected, maximum = sweep.predict(jobs), sweep.predict(jobs, at_most=True)
    counts, missing = sweep.counts(), [state.point for state in sweep.remaining()]
    if as_json:
        metadata: dict[str, Any] = {"directory": str(sweep.directory.path), "points": dict(counts)}
        metadata |= {**_prediction_json(expected), "jobs": expected.jobs, "most": _prediction_json(maximum)}
        order = [{"point": point.id, "levels": dict(point.levels), "seed": point.seed} for point in missing]
        print(json.dumps(metadata | {"order": order}))
        return
    for point in missing:
        print(f"{point.id}  {point.label}")
    done_text = f"; {counts[State.DONE]} are done" if counts[State.DONE] else ""
    runs, wall = counted(expected.runs, "run"), duration_text(expected.wall.s)
    space = rough_size(expected.disk)
    if maximum.runs > expected.runs:  # of a study with `stop` or `search`
        runs = f"{expected.runs} to {counted(maximum.runs, 'run')}"
        wall, space = f"{wall} to {duration_text(maximum.wall.s)}", f"{space} to {rough_size(maximum.disk)}"
    print(
        f"{runs}, {expected.jobs} at a time, in {sweep.directory.path}{done_text}: "
        f"about {wall} of wall time and {space} of disk (estimates, correct within a factor of two on an idle machine)"
    )
