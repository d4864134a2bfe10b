# SPDX-License-Identifier: Apache-2.0
"""Run by test_virtual_trace in the kernel for virtual time: an experiment measured twice on one lab.

``python -m tests.guests.jump_guest EXPERIMENT DIRECTORY`` leaves two run directories there and prints their names.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from atoll_core.description.loader import load_experiment
from atoll_core.plan.tc_settings import VIRTUAL_SLACK
from atoll_core.platforms import VIRTUAL
from atoll_testbed.run.live_run import LiveRun
from atoll_testbed.run.run_request import RunRequest, create_run, plan_run
from atoll_testbed.testbed import Testbed


async def main(path: Path, runs: Path) -> None:
    """The lab is the kernel's and ends with it."""
    network, experiment = load_experiment(path)
    testbed = await Testbed.start(network, slack=VIRTUAL_SLACK)
    request = RunRequest(network, experiment, VIRTUAL)
    made: list[str] = []
    for _ in range(2):
        run_dir = create_run(runs, request, time.time_ns())
        await LiveRun(testbed, plan_run(request), run_dir).measure(time.time_ns())
        made.append(str(run_dir.path.relative_to(runs)))
    print(json.dumps({"runs": made}))


asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
