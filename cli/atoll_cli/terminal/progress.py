# SPDX-License-Identifier: Apache-2.0
"""Progress and result of a run at the terminal: one live line on standard error, the result on standard output.

Ctrl-C, SIGTERM and SIGHUP cancel the work of a command.
"""

import asyncio
import contextlib
import json
import shlex
import signal
import sys
from collections.abc import Coroutine, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from atoll_analysis.run_directory import RunDir
from atoll_analysis.verdict.findings import Verdict
from atoll_cli.terminal.output import results_console
from atoll_controller.planner.virtual_cost import rough_size
from atoll_core.errors import AtollError, InterruptedByUserError
from atoll_core.events.event_text import step_text
from atoll_core.plural import bit_rate
from atoll_core.units import Duration, Size

if TYPE_CHECKING:
    from rich.status import Status

EXIT_INVALID = 3
_LIVE_SHARE = 0.1  # of the duration, between lines where there is no terminal to rewrite one on

T = TypeVar("T")


async def unless_interrupted(work: Coroutine[Any, Any, T], remaining_state: str = "") -> T:
    """Await ``work``, and cancel it when a signal asks the process to end; ``work`` cleans up on cancellation.

    Raises InterruptedByUserError in that case, with ``remaining_state``: the state that is left.
    """
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise InterruptedByUserError(f"cancelled; {remaining_state}" if remaining_state else "cancelled") from None


class LiveLine:
    """Progress on standard error: one line, rewritten, on a terminal; elsewhere plain lines at longer intervals."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._status: Status | None = None
        self._printed_tenths = 0  # of the duration
        self._queue_max_bytes = 0  # since the last line
        self._prefix = ""
        if self._console.is_terminal:
            self._status = self._console.status("starting")
            self._status.start()

    def set_run(self, run: str) -> None:
        """Begin every following line with the name of a run; with nothing if it is empty."""
        self._prefix = f"{run}: " if run else ""
        self._printed_tenths = 0
        self._queue_max_bytes = 0

    def take(self, line: dict[str, Any]) -> None:
        """Show an event of a run, if it is one for people."""
        kind = line["type"]
        if kind in ("progress", "step"):
            self.show_step(line["text"])
        elif kind == "live":
            self._live(line)
        elif kind == "note":
            self._console.print(self._prefix + line["text"], markup=False, highlight=False, soft_wrap=True)

    def show_step(self, text: str) -> None:
        """Show the current step: its text, or its name."""
        text = self._prefix + step_text(text)
        if self._status is not None:
            self._status.update(text)
        else:
            print(text, file=sys.stderr, flush=True)

    def _live(self, line: dict[str, Any]) -> None:
        if "queue_max_bytes" in line:
            self._queue_max_bytes = max(self._queue_max_bytes, line["queue_max_bytes"])
            line = {**line, "queue_max_bytes": self._queue_max_bytes}
        if self._status is not None:
            self._status.update(self._prefix + (_virtual_live_text(line) if "wall_s" in line else _live_text(line)))
        elif (tenths := int(line["elapsed_s"] / line["duration_s"] / _LIVE_SHARE)) > self._printed_tenths:
            self._printed_tenths = tenths
            print(self._prefix + _plain_live_text(line), file=sys.stderr, flush=True)
        else:
            return
        self._queue_max_bytes = 0

    def close(self) -> None:
        """Restore the terminal."""
        if self._status is not None:
            with contextlib.suppress(Exception):
                self._status.stop()


class ParallelRuns:
    """Progress of runs that are made in parallel: the live line shows the first run that has not ended."""

    def __init__(self, live_line: LiveLine, count: int) -> None:
        self._live_line = live_line
        self._latest: list[dict[str, Any] | None] = [None] * count  # the last event of each
        self._has_ended = [False] * count
        self._shown_run = 0
        self._show_name(0)

    def take(self, run: int, line: dict[str, Any]) -> None:
        """Take an event of one of the runs (from 0), and show it if that run is the one shown."""
        self._latest[run] = line
        if run == self._shown_run:
            self._live_line.take(line)

    def end_run(self, run: int) -> None:
        """Report the end of one of several runs; show the state of the next one that has not ended."""
        self._has_ended[run] = True
        if len(self._has_ended) == 1:
            return
        self._show_name(run)
        self._live_line.show_step("done")
        if all(self._has_ended):
            self._live_line.set_run("")
            return
        is_another = self._shown_run != self._has_ended.index(False)
        self._shown_run = self._has_ended.index(False)
        self._show_name(self._shown_run)
        if is_another and (latest := self._latest[self._shown_run]) is not None:
            self._live_line.take(latest)

    def _show_name(self, run: int) -> None:
        count = len(self._has_ended)
        self._live_line.set_run(f"run {run + 1} of {count}" if count > 1 else "")


@contextlib.contextmanager
def recorded_runs(live_line: LiveLine, run_dirs: Sequence[Path]) -> Generator[None]:
    """While the block makes runs: end the live line with it, and name their directories in an error of the block.

    ``run_dirs`` may grow within the block.
    """
    try:
        yield
    except AtollError as error:
        if not run_dirs:
            raise
        separator = "; " if isinstance(error, InterruptedByUserError) else "\n"
        failure = AtollError(f"{error}{separator}{_recorded_data_text(run_dirs)}")
        failure.exit_code = error.exit_code
        raise failure from error
    finally:
        live_line.close()


def _recorded_data_text(run_dirs: Sequence[Path]) -> str:
    """The directories of runs that did not complete, and the command that analyses them if they can be analysed."""
    directories = " and ".join(str(path) for path in run_dirs)
    if not any(_is_planned(path) for path in run_dirs):
        return f"nothing was measured; the run's log is in {directories}"
    commands = " and ".join(f"`atoll report {shlex.quote(str(path))}`" for path in run_dirs)
    return f"the measurements so far are in {directories}; analyse them with {commands}"


def _is_planned(path: Path) -> bool:
    """Whether a run has a plan, without which it cannot be analysed."""
    try:
        return "plan" in RunDir.open(path).manifest()
    except AtollError:
        return False


def estimate_text(wall_time: Duration, memory: Size) -> str:
    """The estimates that precede a run in virtual time."""
    accuracy = "within a factor of two on an idle machine"
    length = duration_text(wall_time.s)
    return f"estimated wall time in virtual time: {length} ({accuracy}); memory: {rough_size(memory)}"


def duration_text(seconds: float) -> str:
    """A wall time, roughly: ``40 s``, ``7 min``, ``2.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _live_text(line: dict[str, Any]) -> str:
    text = f"{line['elapsed_s']:5.1f} / {line['duration_s']:g} s"
    if "rate_mbit_s" in line:
        text += f"   {bit_rate(1e6 * line['rate_mbit_s']):>11}   queue up to {line['queue_max_bytes'] / 1e3:6.1f} kB"
        text += f"   dropped {line['dropped_packets']}"
    return text


def _virtual_live_text(line: dict[str, Any]) -> str:
    """The live line of virtual time: both clocks and their ratio, abbreviated to fit 80 columns."""
    text = f"{line['elapsed_s']:.1f}/{line['duration_s']:g} s in {line['wall_s']:.0f} s"
    if "factor" in line:
        text += f" ({line['factor']:.2g}x, {line['left_s']:.0f} s left)"
    if "rate_mbit_s" in line:
        text += f"  {bit_rate(1e6 * line['rate_mbit_s'])}  queue {line['queue_max_bytes'] / 1e3:.0f} kB"
        text += f"  dropped {line['dropped_packets']}"
    return text


def _plain_live_text(line: dict[str, Any]) -> str:
    """The live line as a sentence, for a log."""
    elapsed_s, duration_s = line["elapsed_s"], line["duration_s"]
    text = f"measured {elapsed_s:.1f} s of {duration_s:g} s ({elapsed_s / duration_s:.0%})"
    if "rate_mbit_s" in line:
        text += f": {bit_rate(1e6 * line['rate_mbit_s'])}, queue up to {line['queue_max_bytes'] / 1e3:.0f} kB, "
        text += f"{line['dropped_packets']} packets dropped"
    if "wall_s" in line:
        text += f"; wall time {line['wall_s']:.0f} s"
        text += f", about {line['left_s']:.0f} s to the end of the load" if "left_s" in line else ""
    return text


def print_result(
    summary: dict[str, Any] | None,
    run_dir: Path,
    *,
    as_json: bool,
    extra: dict[str, Any] | None = None,
    grafana: str | None = None,
) -> int:
    """Print the result of a run on standard output; returns its exit code.

    ``summary`` None: the run was not analysed. ``extra``: further keys of the JSON output. ``grafana``: the link to
    the run's points, if a database has them.
    """
    link = {} if grafana is None else {"grafana": grafana}
    if as_json:
        answer = summary or {"run_dir": str(run_dir), "outcome": "completed"}
        report = {"report": str(run_dir / "report.html")} if summary else {}
        print(json.dumps({**answer, **(extra or {}), **link, **report}))
    elif summary:
        from atoll_dashboards.report.terminal_summary import summary_text

        with results_console() as console:
            console.print(summary_text(summary))
        print(f"report: {run_dir / 'report.html'}")
    else:
        print(f"measured, not analysed; analyse it with `atoll report {run_dir}`")
    if grafana is not None and not as_json:
        print(f"in Grafana: {grafana}")
    return EXIT_INVALID if summary and summary["verdict"] == Verdict.INVALID else 0
