# SPDX-License-Identifier: Apache-2.0
"""`atoll link calibrate`: a table of configured and measured figures of every link."""

import asyncio
import json
from pathlib import Path
from typing import Any

from rich.table import Table

from atoll_cli.commands.lab import print_progress
from atoll_cli.terminal.output import results_console
from atoll_cli.terminal.progress import unless_interrupted
from atoll_core.description.loader import DescriptionFile
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.plan.plan import Backend
from atoll_core.platforms import LabTarget
from atoll_daemon.client import Description, lab_in_use
from atoll_testbed.calibration.calibration_checks import CheckState
from atoll_testbed.preflight.requirements import require_applicable, require_machine_for


def calibrate_links(
    target: LabTarget, path: Path, directions: list[str], seconds: float, backend: Backend, *, as_json: bool
) -> int:
    """`atoll link calibrate`; returns the exit code."""
    file = DescriptionFile.read(path)
    network, experiment = file.network_and_experiment()
    if not experiment.links:
        raise PlanError(f"{path}: no link in this experiment's chain; nothing to calibrate")
    require_applicable(network, experiment, target.platform, backend)
    require_machine_for(target.platform, backend)

    async def calibrate() -> dict[str, Any]:
        async with lab_in_use(target, Description(file.lab_path()), print_progress) as daemon:
            answer = await daemon.stream(
                "/v1/calibrations",
                Description(file.path),
                print_progress,
                backend=backend,
                directions=directions,
                seconds=str(seconds),
            )
        return answer["calibration"]

    calibration = asyncio.run(unless_interrupted(calibrate()))
    within_bounds = all(row["state"] != CheckState.OFF for row in calibration["rows"])
    if as_json:
        print(json.dumps({"experiment": experiment.name, "lab": network.name, "ok": within_bounds, **calibration}))
    else:
        _print(experiment, calibration)
    return 0 if within_bounds else 1


def _print(experiment: Experiment, calibration: dict[str, Any]) -> None:
    table = Table(title=f"{experiment.name}: configured and measured", title_justify="left")
    for name in ("link", "direction", "figure"):
        table.add_column(name)
    for name in ("configured", "measured", "allowed"):
        table.add_column(name, justify="right")
    table.add_column("")
    for row in calibration["rows"]:
        measured = "" if row["measured"] is None else f"{row['measured']:.5g} {row['unit']}"
        allowed = "" if row["low"] is None else f"{row['low']:.5g} to {row['high']:.5g}"
        figure = (row["box"], row["direction"], row["name"], f"{row['configured']:.5g} {row['unit']}")
        table.add_row(*figure, measured, allowed, row["state"])
    with results_console() as console:
        console.print(table)
    for row in calibration["rows"]:
        if row["why"]:
            print(f"{row['box']} {row['direction']} {row['name']}: {row['why']}")
    base_ms, lab_ms = calibration["base_rtt_ns"] / 1e6, calibration["lab_rtt_ns"] / 1e6
    processing = f"{lab_ms:.2f} ms of this are processing in the lab, not configured delays"
    print(f"minimum RTT of the idle path {base_ms:.2f} ms; {processing}")
