# SPDX-License-Identifier: Apache-2.0
"""`run`: an experiment from description to report, with one live line."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status

from atoll.cli.load import experiment_with, require_backend, require_controls, require_place
from atoll.keeper.client import KeeperClient, KeeperDiedError, OwnKeeper, connected
from atoll.model.codec import to_json
from atoll.model.errors import LabError, PlanError
from atoll.model.experiment import Experiment
from atoll.model.network import Network
from atoll.model.plan import Backend
from atoll_emulation.machine import require_machine
from atoll_emulation.namespaces import hidden_in_lab

_EXIT_INVALID = 3
_LIVE_EVERY_S = 10.0  # between lines where there is no terminal to rewrite one on


def run_experiment(
    path: Path,
    place: str,
    runs: Path,
    backend: Backend,
    *,
    keep: bool,
    seed: int | None,
    duration: str | None,
    as_json: bool,
) -> int:
    """`atoll run`; returns the exit code."""
    started_ns = time.time_ns()
    require_place(place)
    network, experiment = experiment_with(path, seed, duration)
    _require_visible(runs)
    _require_writable(runs)
    require_machine()
    require_backend(network, experiment, backend)
    require_controls(experiment, place)
    return asyncio.run(_Verb(network, experiment, runs, backend, started_ns, as_json=as_json).execute(keep=keep))


def _require_visible(runs: Path) -> None:
    if hidden_in_lab(runs):
        msg = f"--runs {runs}: the lab has a /run of its own and its captures cannot go there; name another directory"
        raise PlanError(msg)


def _require_writable(runs: Path) -> None:
    """Say so before a lab is brought up for a run that could not be kept."""
    whole = runs.resolve()
    there = next(path for path in (whole, *whole.parents) if os.access(path, os.F_OK))
    if not there.is_dir():
        msg = f"--runs {runs}: {there} is not a directory; name another directory"
        raise PlanError(msg)
    if not os.access(there, os.W_OK | os.X_OK):
        msg = f"--runs {runs}: {there} cannot be written by this user; name another directory"
        raise PlanError(msg)


class _Verb:
    def __init__(
        self,
        network: Network,
        experiment: Experiment,
        runs: Path,
        backend: Backend,
        started_ns: int,
        *,
        as_json: bool,
    ) -> None:
        self._network = network
        self._experiment = experiment
        self._runs = runs
        self._backend = backend
        self._started_ns = started_ns
        self._as_json = as_json
        self._show = _LiveLine()
        self._run_dir: str | None = None

    async def execute(self, *, keep: bool) -> int:
        work = asyncio.create_task(self._execute(keep=keep))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, work.cancel)
        try:
            summary = await work
        except asyncio.CancelledError:
            where = f"; what was measured is in {self._run_dir}" if self._run_dir else ""
            print(f"cancelled{where}", file=sys.stderr)
            return 1
        except KeeperDiedError as error:
            where = f"; what was measured is in {self._run_dir}" if self._run_dir else ""
            msg = f"{error}{where}"
            raise LabError(msg) from None
        finally:
            self._show.close()
        return self._tell(summary)

    async def _execute(self, *, keep: bool) -> dict[str, Any]:
        own: OwnKeeper | None = None
        if not await lab_is_up():
            self._show.step("keeper")
            own = await OwnKeeper.start(for_run=not keep)
        try:
            async with connected() as keeper:
                if keeper is None:
                    msg = "the keeper ended before the run began"
                    raise LabError(msg)
                return await self._run_on(keeper, bring_up=own is not None)
        finally:
            if own is not None and not keep:
                self._show.step("down")
                await asyncio.shield(own.release())

    async def _run_on(self, keeper: KeeperClient, *, bring_up: bool) -> dict[str, Any]:
        network = to_json(self._network)
        if bring_up:
            await keeper.stream("/up", {"network": network}, self._take)
        body = {
            "network": network,
            "experiment": to_json(self._experiment),
            "runs": str(self._runs.resolve()),
            "backend": self._backend,
            "started_ns": self._started_ns,
        }
        done = await keeper.stream("/run", body, self._take)
        summary: dict[str, Any] = done["summary"]
        return summary

    def _take(self, line: dict[str, Any]) -> None:
        match line["type"]:
            case "progress":
                self._show.step(line["text"])
            case "run":
                self._run_dir = line["run_dir"]
            case "step":
                self._show.step(line["step"])
            case "live":
                self._show.live(line)
            case _:
                pass

    def _tell(self, summary: dict[str, Any]) -> int:
        wall_s = (time.time_ns() - self._started_ns) / 1e9
        summary = {**summary, "overhead_s": round(wall_s - self._experiment.duration.s, 3)}
        report = str(Path(summary["run_dir"]) / "report.html")
        if self._as_json:
            print(json.dumps({**summary, "report": report}))
        else:
            from atoll_dashboards.terminal import print_summary

            print_summary(summary)
            print(f"report: {report}")
        return 0 if summary["verdict"] == "valid" else _EXIT_INVALID


async def lab_is_up() -> bool:
    """Whether a keeper holds a lab for us; LabError when it is another run's own."""
    async with connected() as keeper:
        if keeper is None:
            return False
        status = await keeper.status()
    if status["for_run"]:
        busy: dict[str, Any] = status["busy"] or {}
        which = f"{busy.get('experiment', 'ending')}, keeper process {status['pid']}"
        msg = f"another run is in progress ({which}); one at a time on one machine"
        raise LabError(msg)
    return True


class _LiveLine:
    """One line that is rewritten on a terminal; plain lines, fewer of them, elsewhere. Always standard error."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._status: Status | None = None
        self._told_s = 0.0
        if self._console.is_terminal:
            self._status = self._console.status("starting")
            self._status.start()

    def step(self, text: str) -> None:
        if self._status is not None:
            self._status.update(text)
        else:
            print(text, file=sys.stderr, flush=True)

    def live(self, line: dict[str, Any]) -> None:
        text = f"{line['elapsed_s']:5.1f} / {line['duration_s']:g} s"
        if "rate_mbit_s" in line:
            text += f"   {line['rate_mbit_s']:6.2f} Mbit/s   queue up to {line['queue_max_bytes'] / 1e3:6.1f} kB"
            text += f"   dropped {line['dropped_packets']}"
        if self._status is not None:
            self._status.update(text)
        elif line["elapsed_s"] - self._told_s >= _LIVE_EVERY_S:
            self._told_s = line["elapsed_s"]
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._status is not None:
            with contextlib.suppress(Exception):
                self._status.stop()
