# SPDX-License-Identifier: Apache-2.0
"""A run in real time through the daemon: on the lab that is up, else on one of its own."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from atoll_core.description.loader import lab_file
from atoll_core.errors import LabError
from atoll_core.platforms import LabTarget
from atoll_daemon.client import DaemonClient, Description, OwnDaemon, connected, wait_gone
from atoll_daemon.socket_lock import daemon_holder


async def run_on_daemon(
    target: LabTarget, point: dict[str, Any], runs: Path, on_run: Callable[[Path], None]
) -> dict[str, Any]:
    """Run a point; returns the summary. ``on_run`` takes the run directory once there is one.

    A lab of its own is taken down afterwards; it also ends with this process. Raises AtollError.
    """
    description = Description(Path(point["description"]["file"]), tuple(point["description"]["settings"]))
    own = None if await _lab_is_up(target) else await OwnDaemon.start(target, for_run=True)
    try:
        async with connected(target) as daemon:
            if daemon is None:
                raise LabError("the daemon ended before the run started")
            return await _run(
                daemon, description, point["request"]["options"]["backend"], runs, on_run, bring_up=own is not None
            )
    finally:
        if own is not None:
            await asyncio.shield(own.release())


async def _lab_is_up(target: LabTarget) -> bool:
    async with connected(target) as daemon:
        if daemon is None:
            return False
        if not (await daemon.status())["for_run"]:
            return True
    if (holder := daemon_holder(target)) is not None:  # perhaps of the previous point, and about to end
        try:
            await wait_gone(target, holder[0])
        except LabError:
            raise LabError("another run is in progress; only one at a time is possible on a machine") from None
    return False


async def _run(
    daemon: DaemonClient,
    description: Description,
    backend: str,
    runs: Path,
    on_run: Callable[[Path], None],
    *,
    bring_up: bool,
) -> dict[str, Any]:
    started_ns = time.time_ns()

    def take(line: dict[str, Any]) -> None:
        if line["type"] == "run":
            on_run(Path(line["run_dir"]))

    if bring_up:
        lab = Description(lab_file(description.path, description.settings))
        await daemon.stream("/v1/lab", lab, take)
    query = {"runs": str(runs), "backend": backend, "started_ns": str(started_ns)}
    done = await daemon.stream("/v1/runs", description, take, **query)
    summary: dict[str, Any] = done["summary"]
    return summary
