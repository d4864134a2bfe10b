# SPDX-License-Identifier: Apache-2.0
"""What somebody who waits for a run is shown: one live line on standard error, and how it ended on standard output."""

import contextlib
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status

from atoll_analysis.run_directory import RunDir
from atoll_analysis.verdict.findings import Verdict
from atoll_controller.planner.virtual_cost import rough
from atoll_core.errors import AtollError
from atoll_core.plural import bit_rate
from atoll_core.units import Duration, Size

EXIT_INVALID = 3
_STEPS = {
    "daemon": "starting the process that holds the lab",
    "namespaces": "making the lab's own, so that nothing of it can be left behind",
    "controller and agent": "starting both inside the lab",
    "virtual kernel": "starting it; its clock stands still while anything computes",
    "apply": "bringing switches, hosts and boxes to the plan",
    "check": "pinging along paths of every host, then filling the links for a moment",
    "settings": "pinning TCP on the hosts",
    "captures": "starting them, the island's side first",
    "servers": "starting what sends",
    "clients": "starting the load",
    "measure": "the load runs",
    "stop": "ending the load",
    "drain": "waiting until the links are empty",
    "record": "reading flow tables and their counters",
    "analyse": "making tables, verdict and report",
    "down": "taking the lab away",
}
_LIVE_EVERY = 0.1  # of the duration, between lines where there is no terminal to rewrite one on


class LiveLine:
    """One line that is rewritten on a terminal; plain lines, fewer of them, elsewhere. Always standard error."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._status: Status | None = None
        self._told = 0  # tenths of the duration
        self._queue_max_bytes = 0  # since a line was shown
        self._whose = ""
        if self._console.is_terminal:
            self._status = self._console.status("starting")
            self._status.start()

    def turn_to(self, whose: str) -> None:
        """From here on every line begins with whose it is; with nothing if that is empty."""
        self._whose = f"{whose}: " if whose else ""
        self._told = 0
        self._queue_max_bytes = 0

    def take(self, line: dict[str, Any]) -> None:
        """Show one line of what a run says of itself, if it is for people."""
        match line["type"]:
            case "progress":
                self.step(line["text"])
            case "step":
                self.step(line["step"])
            case "live":
                self._live(line)
            case "note":
                self._console.print(self._whose + line["message"], markup=False, highlight=False, soft_wrap=True)
            case _:
                pass

    def step(self, text: str) -> None:
        """Show what is being done."""
        text = self._whose + step_text(text)
        if self._status is not None:
            self._status.update(text)
        else:
            print(text, file=sys.stderr, flush=True)

    def _live(self, line: dict[str, Any]) -> None:
        if "queue_max_bytes" in line:
            self._queue_max_bytes = max(self._queue_max_bytes, line["queue_max_bytes"])
            line = {**line, "queue_max_bytes": self._queue_max_bytes}
        if self._status is not None:
            self._status.update(self._whose + (_virtual_live_text(line) if "wall_s" in line else _live_text(line)))
        elif (tenths := int(line["elapsed_s"] / line["duration_s"] / _LIVE_EVERY)) > self._told:
            self._told = tenths
            print(self._whose + _plain_live_text(line), file=sys.stderr, flush=True)
        else:
            return
        self._queue_max_bytes = 0

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._status is not None:
            with contextlib.suppress(Exception):
                self._status.stop()


class ParallelRuns:
    """Runs that are made together, shown one after another: always the first that is not over, and which it is."""

    def __init__(self, show: LiveLine, count: int) -> None:
        self._show = show
        self._latest: list[dict[str, Any] | None] = [None] * count  # what each said last
        self._over = [False] * count
        self._shown = 0
        self._name(0)

    def take(self, run: int, line: dict[str, Any]) -> None:
        """Show a line of one of the runs (from 0) if it is the one to be watched."""
        self._latest[run] = line
        if run == self._shown:
            self._show.take(line)

    def over(self, run: int) -> None:
        """Say of one of several that it is done; what the next of those that go on is doing is shown at once."""
        self._over[run] = True
        if len(self._over) == 1:
            return
        self._name(run)
        self._show.step("done")
        if all(self._over):
            self._show.turn_to("")
            return
        turned = self._shown != self._over.index(False)
        self._shown = self._over.index(False)
        self._name(self._shown)
        if turned and (latest := self._latest[self._shown]) is not None:
            self._show.take(latest)

    def _name(self, run: int) -> None:
        count = len(self._over)
        self._show.turn_to(f"run {run + 1} of {count}" if count > 1 else "")


class FailedRunError(AtollError):
    """What ended a run, and where that run's directory is; with the exit code of what ended it."""

    def __init__(self, error: AtollError, *run_dirs: Path) -> None:
        super().__init__(f"{error}\n{where_measured(*run_dirs)}")
        self.exit_code = error.exit_code


def where_measured(*run_dirs: Path) -> str:
    """Where the raw data of runs that did not complete is, and how to read it if there is anything to read."""
    places = " and ".join(str(path) for path in run_dirs)
    if not any(_is_planned(path) for path in run_dirs):
        return f"nothing was measured yet; what was recorded is in {places}"
    verbs = " and ".join(f"`atoll report {shlex.quote(str(path))}`" for path in run_dirs)
    return f"what was measured is in {places}; {verbs} {'reads' if len(run_dirs) == 1 else 'read'} it"


def _is_planned(path: Path) -> bool:
    """Whether a run came to its plan, without which it cannot be analysed."""
    try:
        return "plan" in RunDir.open(path).manifest()
    except AtollError:
        return False


def step_text(step: str) -> str:
    """A step of a run or of a lab's start as somebody at a terminal reads it; what is no step stays as it is."""
    return f"{step}: {_STEPS[step]}" if step in _STEPS else step


def estimated(wall_time: Duration, memory: Size) -> str:
    """The estimates that precede a run in virtual time."""
    seconds = wall_time.s
    length = (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
    return f"estimated wall time in virtual time: {length}, to a factor of two; memory: {rough(memory)}"


def _live_text(line: dict[str, Any]) -> str:
    text = f"{line['elapsed_s']:5.1f} / {line['duration_s']:g} s"
    if "rate_mbit_s" in line:
        text += f"   {bit_rate(1e6 * line['rate_mbit_s']):>11}   queue up to {line['queue_max_bytes'] / 1e3:6.1f} kB"
        text += f"   dropped {line['dropped_packets']}"
    return text


def _virtual_live_text(line: dict[str, Any]) -> str:
    """The same with two clocks and how much faster the lab's is, in fewer words: 80 columns hold it."""
    text = f"{line['elapsed_s']:.1f}/{line['duration_s']:g} s in {line['wall_s']:.0f} s"
    if "factor" in line:
        text += f" ({line['factor']:.2g}x, {line['left_s']:.0f} s left)"
    if "rate_mbit_s" in line:
        text += f"  {bit_rate(1e6 * line['rate_mbit_s'])}  queue {line['queue_max_bytes'] / 1e3:.0f} kB"
        text += f"  dropped {line['dropped_packets']}"
    return text


def _plain_live_text(line: dict[str, Any]) -> str:
    """The same as a sentence, for a log."""
    elapsed_s, duration_s = line["elapsed_s"], line["duration_s"]
    text = f"measured {elapsed_s:.1f} s of {duration_s:g} s ({elapsed_s / duration_s:.0%})"
    if "rate_mbit_s" in line:
        text += f": {bit_rate(1e6 * line['rate_mbit_s'])}, queue up to {line['queue_max_bytes'] / 1e3:.0f} kB, "
        text += f"{line['dropped_packets']} packets dropped"
    if "wall_s" in line:
        text += f"; wall time {line['wall_s']:.0f} s"
        text += f", about {line['left_s']:.0f} s to the end of the load" if "left_s" in line else ""
    return text


def follow_work(
    summary: dict[str, Any] | None, run_dir: Path, *, as_json: bool, extra: dict[str, Any], grafana: str | None = None
) -> int:
    """Print how a run ended on standard output; returns its exit code.

    ``summary`` None: it was measured only. ``extra``: what the summary does not know, for JSON. ``grafana``: the link
    to its points, where a database has them.
    """
    if grafana is not None:
        extra = {**extra, "grafana": grafana}
    if summary is None:
        if as_json:
            print(json.dumps({"run_dir": str(run_dir), "outcome": "completed", **extra}))
        else:
            print(f"measured, not analysed: `atoll report {run_dir}` does it")
            tell_link(grafana)
        return 0
    report = str(run_dir / "report.html")
    if as_json:
        print(json.dumps({**summary, **extra, "report": report}))
    else:
        from atoll_dashboards.report.terminal_summary import print_summary

        print_summary(summary)
        print(f"report: {report}")
        tell_link(grafana)
    return EXIT_INVALID if summary["verdict"] == Verdict.INVALID else 0


def tell_link(grafana: str | None, before: str = "") -> None:
    """Print the link to where points lie, if there is one."""
    if grafana is not None:
        print(f"{before}in Grafana: {grafana}")


def swap_in_words(event: dict[str, Any]) -> str | None:
    """An event of a swap for people (docs/contracts.md); None: nothing to say."""
    match event["state"]:
        case "stage":
            return event["text"]
        case "end":
            took, beyond = event["duration_ns"] / 1e6, event["beyond_drain_ns"] / 1e6
            return f"swapped in {took:.0f} ms ({took - beyond:.0f} ms of it draining)"
        case "connections":
            return _connections_text(event)
        case _:
            return None


def _connections_text(event: dict[str, Any]) -> str:
    if event["how"] == "failed":
        return f"connections of boxes that traffic moved from could not be ended and will time out: {event['reason']}"
    boxes = ", ".join(f"{box} ({count})" if count else box for box, count in event["boxes"].items())
    return {
        "reset": f"connections reset in {boxes}",
        "restart": f"connections ended, by restarting the program, in {boxes}",
        "limit": f"the limit has passed with connections left in {boxes}",
        "time-out": f"connections through {boxes} are not ours to end: they will time out",
    }[event["how"]]
