# SPDX-License-Identifier: Apache-2.0
"""A sweep at the terminal: the table that fills in."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from atoll_core.plural import counted
from atoll_studies.sweeping.sweep import PointState, State, Sweep

if TYPE_CHECKING:
    from rich.console import RenderableType

_MARKS = {
    State.WAITING: ("·", "dim"),
    State.RUNNING: ("▸", "cyan"),
    State.DONE: ("✓", "green"),
    State.INVALID: ("✗", "red"),
    State.FAILED: ("!", "red"),
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
        if self._console.is_terminal:
            text += f", {counts[State.RUNNING]} running" if counts[State.RUNNING] else ""
        for state, words in ((State.INVALID, "invalid"), (State.FAILED, "failed")):
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
            taken = [each for each in points if each.state is not State.OPTIONAL]
            if len(taken) <= _MOST_MARKS:
                for each in taken:
                    marks.append(*_MARKS[each.state])
            else:
                marks.append(f"{len(took)} of {len(taken)}")
            wall = duration_text(took[len(took) // 2]) if took else ""
            yield (*configuration.levels, marks, wall)


def duration_text(seconds: float) -> str:
    """A wall time, roughly: ``40 s``, ``7 min``, ``2.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
