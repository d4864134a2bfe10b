# SPDX-License-Identifier: Apache-2.0
"""A run inside a virtual kernel: ``python -m atoll.experiment.inside DIRECTORY``.

The same testbed and the same steps as anywhere, without a keeper: the kernel is the lab's owner, and everything ends
with it. The request is in the run directory's manifest; progress goes to a file there, line by line, the last one
being ``done`` or ``error``. The analysis is made outside.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from atoll.experiment.request import read_request
from atoll.experiment.run import Run
from atoll.experiment.testbed import Testbed
from atoll.model.errors import AtollError
from atoll.model.tc import NO_SLACK
from atoll.rundir import RunDir
from atoll.rundir.files import Appender
from atoll_emulation.congestion import permit_everywhere

PROGRESS = "logs/progress.jsonl"
"""In the run directory: what the keeper would stream (docs/contracts.md, "Run directory")."""


async def measure(directory: Path) -> int:
    """Bring the lab up and make the raw data of the run; returns the exit code, for which the last line has a reason.

    Leaves the lab to the kernel, which its starter ends.
    """
    run_dir = RunDir.open(directory)
    progress = Appender(directory / PROGRESS)

    def emit(line: dict[str, Any]) -> None:
        progress.append(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    try:
        started_ns = time.time_ns()
        permit_everywhere()
        network, experiment, backend = read_request(run_dir)
        testbed = await Testbed.start(network, lambda text: emit({"type": "progress", "text": text}), slack=NO_SLACK)
        await Run(testbed, experiment, run_dir, emit, backend).measure(started_ns)
    except AtollError as error:
        emit({"type": "error", "message": str(error), "exit_code": error.exit_code})
        return error.exit_code
    emit({"type": "done"})
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(measure(Path(sys.argv[1]))))
