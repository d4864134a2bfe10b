# SPDX-License-Identifier: Apache-2.0
"""Run by test_virtual_backlog in the kernel for virtual time: an experiment whose kernel has no room for its packets.

``python -m tests.guests.backlog_guest EXPERIMENT DIRECTORY LIMIT`` sets netdev_max_backlog to LIMIT packets when
the measurement begins, which is this kernel's alone, and prints the name of the run directory that it leaves there, and
how many packets the loopback interface of the laboratory's own namespace has lost.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from atoll_core.description.loader import load_experiment
from atoll_core.events.events import StepBegun
from atoll_core.plan.tc_settings import VIRTUAL_SLACK
from atoll_core.platforms import VIRTUAL
from atoll_testbed.run.live_run import LiveRun
from atoll_testbed.run.run_request import RunRequest, create_run, plan_run
from atoll_testbed.testbed import Testbed

LIMIT = Path("/proc/sys/net/core/netdev_max_backlog")


async def main(path: Path, runs: Path, limit: str) -> None:
    """The lab is the kernel's and ends with it."""
    network, experiment = load_experiment(path)
    ample = LIMIT.read_text()

    def set_limit(event: StepBegun) -> None:
        LIMIT.write_text(limit if event.step == "measure" else ample)

    testbed = await Testbed.start(network, slack=VIRTUAL_SLACK)
    testbed.events.subscribe(set_limit, StepBegun)
    request = RunRequest(network, experiment, VIRTUAL)
    run_dir = create_run(runs, request, time.time_ns())
    await LiveRun(testbed, plan_run(request), run_dir).measure(time.time_ns())
    # What is lost on the laboratory's own loopback interface, which carries its control channels, is lost on no cable.
    own = await testbed.machine(network.hosts[0].name).agent.read(None, interfaces=["lo"])
    loopback = own["counters"]["lo"]["rx_dropped"]
    print(json.dumps({"run": str(run_dir.path.relative_to(runs)), "loopback_dropped": loopback}))


asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
