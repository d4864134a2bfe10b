# SPDX-License-Identifier: Apache-2.0
"""A run in real time through the daemon: on the lab that is up, else on one of its own."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from atoll_core.description.loader import DescriptionFile
from atoll_core.platforms import LabTarget
from atoll_daemon.client import Description, lab_in_use


async def run_on_daemon(
    target: LabTarget, point: dict[str, Any], runs: Path, on_run: Callable[[Path], None]
) -> dict[str, Any]:
    """Run a point; returns the summary. ``on_run`` takes the run directory once there is one.

    A lab of its own is taken down afterwards; it also ends with this process. Raises AtollError.
    """
    started_ns = time.time_ns()
    description = Description(Path(point["description"]["file"]), tuple(point["description"]["settings"]))

    def take(line: dict[str, Any]) -> None:
        if line["type"] == "run":
            on_run(Path(line["run_dir"]))

    lab = Description(DescriptionFile.read(description.path, description.settings).lab_path())
    async with lab_in_use(target, lab, take, wait=True) as daemon:
        backend = point["request"]["options"]["backend"]
        done = await daemon.stream(
            "/v1/runs", description, take, runs=str(runs), backend=backend, started_ns=str(started_ns)
        )
    summary: dict[str, Any] = done["summary"]
    return summary
