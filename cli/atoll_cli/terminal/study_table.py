# SPDX-License-Identifier: Apache-2.0
"""A study at the terminal: the table that fills in during a sweep, and its results."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from atoll_cli.terminal.study_notes import control_tables, design_sentences, estimate_texts
from atoll_core.plural import counted, listed
from atoll_studies.results import ConfigurationFigure, Results
from atoll_studies.statistics import LEVEL, least_runs
from atoll_studies.sweep import PointState, State, Sweep

if TYPE_CHECKING:
    from rich.console import RenderableType

_MARKS = {
    State.WAITING: ("·", "dim"),
    State.RUNNING: ("▸", "cyan"),
    State.DONE: ("✓", "green"),
    State.INVALID: ("✗", "red"),
    State.FAILED: ("!", "red"),
    State.OPTIONAL: ("", ""),
}
_REFRESH_HZ = 2
_MOST_MARKS = 40  # seeds of one configuration that are shown one by one


class SweepProgress:
    """The progress of a sweep on standard error: a table that is redrawn on a terminal, elsewhere a line for each run.

    A context manager.
    """

    def __init__(self, sweep: Sweep, jobs: int) -> None:
        self._sweep = sweep
        self._jobs = jobs
        self._points: list[list[PointState]] = [[] for _ in sweep.study.configurations]
        for each in sweep.points.values():  # of one configuration in the order of their repetitions
            self._points[each.point.configuration].append(each)
        self._console = Console(stderr=True, markup=False)
        self._live = (
            Live(get_renderable=self._drawn, console=self._console, refresh_per_second=_REFRESH_HZ, transient=True)
            if self._console.is_terminal
            else None
        )
        sweep.on_change = self._changed

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def _changed(self, each: PointState) -> None:
        if self._live is not None or each.state is State.RUNNING:
            return
        outcomes = [f"{made.outcome} ({made.message})" if made.message else made.outcome for made in each.attempts]
        outcome = outcomes[-1] if outcomes and not each.loss else f"no attempt: {each.loss}"
        print(f"{each.point.label}: {outcome}; {self._footer()}", file=sys.stderr, flush=True)

    def _footer(self) -> str:
        counts = self._sweep.counts()
        text = f"{counts[State.DONE]} of {counted(self._sweep.taken, 'run')} done"
        text += f", {counts[State.OPTIONAL]} more if needed" if counts[State.OPTIONAL] else ""
        for state, words in ((State.RUNNING, "running"), (State.INVALID, "invalid"), (State.FAILED, "failed")):
            text += f", {counts[state]} {words}" if counts[state] else ""
        left_s = self._sweep.time_left_s(self._jobs)
        return f"{text}, about {duration_text(left_s)} to go" if left_s else text

    def _drawn(self) -> "RenderableType":
        study = self._sweep.study
        table = Table(box=None, pad_edge=False, header_style="bold")
        for factor in study.factors:
            table.add_column(factor.name, overflow="fold")
        table.add_column("runs")
        table.add_column("median wall time", justify="right")
        room = max(1, self._console.height - 4)
        rows = list(self._rows())
        for row in rows[:room]:
            table.add_row(*row)
        hidden = (
            [Text(f"and {counted(len(rows) - room, 'configuration')} more", style="dim")] if len(rows) > room else []
        )
        return Group(table, *hidden, Text(self._footer()))

    def _rows(self) -> "Iterator[tuple[RenderableType, ...]]":
        for configuration, points in zip(self._sweep.study.configurations, self._points, strict=True):
            took = sorted(each.usable.wall_s for each in points if each.usable)
            marks = Text()
            if len(points) <= _MOST_MARKS:
                for each in points:
                    marks.append(*_MARKS[each.state])
            else:
                marks.append(f"{len(took)} of {len(points)}")
            wall = duration_text(took[len(took) // 2]) if took else ""
            yield (*configuration.levels, marks, wall)


def duration_text(seconds: float) -> str:
    """A wall time, roughly: ``40 s``, ``7 min``, ``2.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def print_results(results: Results) -> None:
    """Print the shown figures of a study: a row for each configuration, and what does not count."""
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 120)
    for figure in results.shown:
        found = [(number, results.of(number, figure)) for number in range(len(results.configurations))]
        measured = [(number, each) for number, each in found if each is not None]
        if measured:
            console.print(_figure_table(results, figure, measured))
            console.print()
    for table in control_tables(results):
        console.print(table)
        console.print()
    for sentence in (*_sentences(results), *design_sentences(results)):
        console.print(sentence, style="dim", soft_wrap=True)
    for label, attempt in results.invalid:
        console.print(f"{attempt.outcome}: {label}: {attempt.message} ({attempt.path})", soft_wrap=True)


def _figure_table(results: Results, figure: str, measured: list[tuple[int, ConfigurationFigure]]) -> Table:
    unit = measured[0][1].unit
    table = Table(
        box=None,
        pad_edge=False,
        title=f"{figure}, {unit}" if unit else figure,
        title_justify="left",
        title_style="bold",
    )
    for factor in results.factors:
        table.add_column(factor, overflow="fold")
    for heading in ("runs", "median", "interval", "level"):
        table.add_column(heading, justify="right", no_wrap=True)
    if any(each.difference for _, each in measured):
        for heading in ("difference", "interval", "level", "pairs"):
            table.add_column(heading, justify="right", no_wrap=True)
    for number, each in measured:
        row = [*results.configurations[number].values(), str(each.median.runs), *estimate_texts(each.median)]
        if each.difference is not None:
            pair = each.difference
            row += [*estimate_texts(pair.median, sign="+"), f"{pair.median.runs}, {pair.higher} up {pair.lower} down"]
        table.add_row(*row)
    return table


def _measured(results: Results, figure: str) -> Iterator[tuple[int, int]]:
    """Of each configuration that measured a figure: the number of runs that did, and of its usable runs."""
    for number in range(len(results.configurations)):
        measured = len(results.values(number, figure))
        if measured:
            yield measured, sum(run.configuration == number for run in results.runs)


def _sentences(results: Results) -> Iterator[str]:
    if any(each.difference for each in results.figures):
        yield "difference: from the baseline with the same seeds, the median of the pairs"
    partly = [name for name in results.shown if any(measured < made for measured, made in _measured(results, name))]
    if partly:
        yield (
            f"{listed(partly)}: not measured in every run (a transfer that does not end has no time); "
            "estimates are of the others"
        )
    short = [each.median for each in results.figures if 0 < each.median.level < LEVEL]
    if short:
        yield f"an interval of 95 % takes at least {least_runs()} runs; the level shown is that of fewer"
    if results.missing:
        yield f"{counted(results.missing, 'run')} of the study missing; `atoll sweep STUDY --resume` makes them"
    origins = {run.attempt.provenance for run in results.runs}
    if len(origins) > 1:
        yield f"runs of different provenance are mixed: {'; '.join(sorted(map(str, origins)))}"
