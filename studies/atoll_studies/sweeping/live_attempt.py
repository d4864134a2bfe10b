# SPDX-License-Identifier: Apache-2.0
"""A run in real time through the daemon: on the lab that is up, else on one of its own."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from atoll_core.description.loader import DescriptionFile
from atoll_core.platforms import LabTarget
from atoll_daemon.client import Description, lab_in_use
from atoll_testbed.run.run_request import RunOptions


async def run_on_daemon(
    target: LabTarget, file: DescriptionFile, options: RunOptions, runs: Path, on_line: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Run an experiment; returns the summary. ``on_line`` takes the lines of progress; type ``run`` has the directory.

    A lab of its own is taken down afterwards; it also ends with this process. Raises AtollError.
    """
    started_ns = time.time_ns()
    async with lab_in_use(target, Description(file.lab_path(), file.lab_settings), on_line, wait=True) as daemon:
        answer = await daemon.run(Description(file.path, file.settings), on_line, runs, options, started_ns)
    summary: dict[str, Any] = answer["summary"]
    return summary
