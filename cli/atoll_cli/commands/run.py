# SPDX-License-Identifier: Apache-2.0
"""`atoll run` on mininet or hardware: run an experiment from description to report, with a live line."""

import asyncio
import time
from pathlib import Path
from typing import Any

from atoll_cli.commands.lab import listen_on, require_listen
from atoll_cli.commands.run_arguments import RunArguments
from atoll_cli.terminal.output import warn
from atoll_cli.terminal.progress import LiveLine, print_result, recorded_runs
from atoll_cli.terminal.signals import unless_interrupted
from atoll_controller.planner.description_warnings import description_warnings
from atoll_core.platforms import MININET
from atoll_daemon.client import Description, lab_in_use
from atoll_dashboards.grafana.grafana_links import grafana_address
from atoll_dashboards.influx.same_database import settings_mark
from atoll_testbed.preflight.requirements import require_lab, require_runnable


def run_experiment(command: RunArguments) -> int:
    """`atoll run` on mininet or hardware; returns the exit code."""
    started_ns = time.time_ns()
    request = command.request()
    require_listen(command.listen)
    grafana = grafana_address()
    doubts = description_warnings(request.network, request.experiment, request.options.backend, MININET)
    warnings = warn(doubts, strict=command.strict)
    require_runnable(request, command.runs)
    require_lab(request.platform, request.options.backend)
    run = _RunDisplay(command, request.experiment.duration.s, started_ns, warnings, grafana)
    return asyncio.run(run.execute())


class _RunDisplay:
    """A run on the lab that is up, or on one of its own."""

    def __init__(
        self, command: RunArguments, duration_s: float, started_ns: int, warnings: list[dict[str, Any]], grafana: str
    ) -> None:
        self._command = command
        self._duration_s = duration_s
        self._started_ns = started_ns
        self._warnings = warnings
        self._grafana = grafana
        self._show = LiveLine()
        self._run_dirs: list[Path] = []  # at most one, once the daemon has made it
        self._link: str | None = None

    async def execute(self) -> int:
        with recorded_runs(self._show, self._run_dirs):
            summary = await unless_interrupted(self._execute())
        return self._print(summary)

    async def _execute(self) -> dict[str, Any] | None:
        command, experiment = self._command, self._command.experiment
        async with lab_in_use(
            command.target,
            Description(experiment.lab_path(), experiment.lab_settings),
            self._take,
            prepare=lambda daemon: listen_on(daemon, command.listen),
            runtime=command.runtime,
            keep=command.keep,
        ) as daemon:
            done = await daemon.run(
                Description(experiment.path, experiment.settings),
                self._take,
                command.runs,
                command.options,
                self._started_ns,
                runtime=command.runtime,
                analyse=command.analyse,
                influx=settings_mark(),
            )
        if (link := done.get("grafana")) is not None:
            self._link = f"{self._grafana}{link}"
        summary: dict[str, Any] | None = done["summary"]
        return summary

    def _take(self, line: dict[str, Any]) -> None:
        if line["type"] == "run":
            self._run_dirs.append(Path(line["run_dir"]))
        self._show.take(line)

    def _print(self, summary: dict[str, Any] | None) -> int:
        overhead_s = (time.time_ns() - self._started_ns) / 1e9 - self._duration_s
        extra = {"overhead_s": round(overhead_s, 3), "warnings": self._warnings}
        return print_result(summary, self._run_dirs[0], as_json=self._command.as_json, extra=extra, grafana=self._link)
