# SPDX-License-Identifier: Apache-2.0
"""`atoll run` on mininet or hardware: run an experiment from description to report, with a live line."""

import asyncio
import time
from pathlib import Path
from typing import Any

from atoll_cli.commands.lab import UpRequest, listen_on, require_listen
from atoll_cli.commands.selection import require_backend, require_writable
from atoll_cli.terminal.diagnostics import warn
from atoll_cli.terminal.progress import FailedRunError, LiveLine, print_result, recorded_data_text
from atoll_cli.terminal.signals import unless_interrupted
from atoll_controller.planner.change_schedule import plan_schedule
from atoll_controller.planner.description_warnings import description_warnings
from atoll_core.errors import AtollError, InterruptedByUserError, LabError, PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend
from atoll_core.plan.switch_features import Runtime
from atoll_core.platforms import MININET
from atoll_daemon.client import DaemonClient, Description, OwnDaemon, connected
from atoll_daemon.socket_lock import inventory_path
from atoll_dashboards.grafana.grafana_links import grafana_address
from atoll_dashboards.influx.influx_agreement import settings_mark
from atoll_emulation.mininet_lab.namespaces import hidden_in_lab
from atoll_emulation.this_machine.box_programs import require_programs
from atoll_emulation.this_machine.congestion_controls import offered_by_virtual_kernel, offered_here, require_controls
from atoll_emulation.this_machine.host_requirements import require_machine


def run_experiment(
    described: tuple[Network, Experiment],
    description: Description,
    runs: Path,
    backend: Backend,
    runtime: Runtime | None,
    listen: str | None,
    *,
    keep: bool,
    analyse: bool,
    metrics: bool,
    full_matrix: bool,
    strict: bool,
    as_json: bool,
) -> int:
    """`atoll run` on mininet or hardware; returns the exit code. ``description``: the source of ``described``."""
    started_ns = time.time_ns()
    network, experiment = described
    require_listen(listen)
    grafana = grafana_address()
    require_writable(runs)
    warnings = warn(description_warnings(network, experiment, backend, MININET), strict=strict)
    plan_schedule(network, experiment)  # raises for changes that cannot be carried out, before anything is started
    if inventory_path() is None:
        _require_visible(runs)
        require_controls(experiment, offered_here(), offered_by_virtual_kernel())
        require_programs(network, experiment)
        require_machine()
        require_backend(network, experiment, backend)
    request = UpRequest(description.path, network, experiment, backend, runtime, listen, settings=description.settings)
    command = _RunCommand(
        request,
        description,
        experiment,
        runs,
        started_ns,
        warnings,
        grafana=grafana,
        analyse=analyse,
        metrics=metrics,
        full_matrix=full_matrix,
        as_json=as_json,
    )
    return asyncio.run(command.execute(keep=keep))


def _require_visible(runs: Path) -> None:
    if hidden_in_lab(runs):
        msg = (
            f"--runs {runs}: the lab has a /run of its own, so captures cannot be written there; name another directory"
        )
        raise PlanError(msg)


class _RunCommand:
    def __init__(
        self,
        request: UpRequest,
        description: Description,
        experiment: Experiment,
        runs: Path,
        started_ns: int,
        warnings: list[dict[str, Any]],
        *,
        grafana: str,
        analyse: bool,
        metrics: bool,
        full_matrix: bool,
        as_json: bool,
    ) -> None:
        self._request = request
        self._description = description
        self._experiment = experiment
        self._runs = runs
        self._started_ns = started_ns
        self._warnings = warnings
        self._grafana = grafana
        self._analyse = analyse
        self._metrics = metrics
        self._full_matrix = full_matrix
        self._as_json = as_json
        self._show = LiveLine()
        self._run_dir: str | None = None
        self._link: str | None = None

    async def execute(self, *, keep: bool) -> int:
        try:
            summary = await unless_interrupted(self._execute(keep=keep))
        except asyncio.CancelledError:
            where = f"; {recorded_data_text(Path(self._run_dir))}" if self._run_dir else ""
            raise InterruptedByUserError(f"cancelled{where}") from None
        except AtollError as error:
            if self._run_dir is None:
                raise
            raise FailedRunError(error, Path(self._run_dir)) from error
        finally:
            self._show.close()
        return self._print(summary)

    async def _execute(self, *, keep: bool) -> dict[str, Any] | None:
        own: OwnDaemon | None = None
        if not await lab_is_up():
            self._show.step("daemon")
            own = await OwnDaemon.start(for_run=not keep)
        try:
            async with connected() as daemon:
                if daemon is None:
                    msg = "the daemon ended before the run started"
                    raise LabError(msg)
                return await self._run_on(daemon, bring_up=own is not None)
        finally:
            if own is not None and not keep:
                self._show.step("down")
                await asyncio.shield(own.release())

    async def _run_on(self, daemon: DaemonClient, *, bring_up: bool) -> dict[str, Any] | None:
        await listen_on(daemon, self._request.listen)
        if bring_up:
            await daemon.stream("/v1/lab", self._request.lab, self._take, runtime=self._request.runtime)
        done = await daemon.stream(
            "/v1/runs",
            self._description,
            self._take,
            runs=str(self._runs.resolve()),
            backend=self._request.backend,
            runtime=self._request.runtime,
            started_ns=str(self._started_ns),
            analyse=str(self._analyse).lower(),
            metrics=str(self._metrics).lower(),
            full_matrix=str(self._full_matrix).lower(),
            influx=None if bring_up else settings_mark(),
        )
        if (link := done.get("grafana")) is not None:
            self._link = f"{self._grafana}{link}"
        summary: dict[str, Any] | None = done["summary"]
        return summary

    def _take(self, line: dict[str, Any]) -> None:
        if line["type"] == "run":
            self._run_dir = line["run_dir"]
        self._show.take(line)

    def _print(self, summary: dict[str, Any] | None) -> int:
        overhead_s = (time.time_ns() - self._started_ns) / 1e9 - self._experiment.duration.s
        run_dir = Path(self._run_dir or "")
        extra = {"overhead_s": round(overhead_s, 3), "warnings": self._warnings}
        return print_result(summary, run_dir, as_json=self._as_json, extra=extra, grafana=self._link)


async def lab_is_up() -> bool:
    """Whether a daemon with a lab for common use is running. Raises LabError if the lab belongs to another run."""
    async with connected() as daemon:
        if daemon is None:
            return False
        status = await daemon.status()
    if status["for_run"]:
        busy: dict[str, Any] = status["busy"] or {}
        which = f"{busy.get('about', 'ending')}, daemon process {status['pid']}"
        msg = f"another run is in progress ({which}); only one at a time is possible on a machine"
        raise LabError(msg)
    return True
