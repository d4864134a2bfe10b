# SPDX-License-Identifier: Apache-2.0
"""A run inside a virtual kernel: ``python -m atoll_testbed.virtual.guest_main DIRECTORY``.

Testbed and steps are the same as on other platforms, but without a daemon: everything ends with the kernel. The request
is in the run directory's manifest. Progress is written to a file there, line by line; the last line is ``done`` or
``error``. The analysis is made outside.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.atomic_files import Appender
from atoll_analysis.run_directory.directory import PROGRESS_FILE
from atoll_core.errors import AtollError
from atoll_core.events.event_bus import EventBus, with_error_report
from atoll_core.events.events import STREAMED, StepBegun
from atoll_core.plan.tc_settings import timer_slack
from atoll_emulation.this_machine.congestion_controls import allow_all_controls
from atoll_testbed.platforms.base import EmulatedPlatform
from atoll_testbed.run.live_run import LiveRun
from atoll_testbed.run.run_request import plan_run, read_request
from atoll_testbed.testbed import Testbed

_READ_INTERVAL_S = 1.0
"""While nothing but the load goes on, jobs' lines are read together: being woken for each of thirty a second costs
more than they do. Where changes are carried out, their steps wait for lines."""


async def measure(directory: Path) -> int:
    """Bring the lab up and record the raw data of the run; returns the exit code, whose reason is in the last line.

    The lab is not taken down: the process outside ends the kernel.
    """
    run_dir = RunDir.open(directory, in_guest=True)
    progress = Appender(directory / PROGRESS_FILE)

    def write(line: dict[str, Any]) -> None:
        progress.append(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def set_read_interval(event: StepBegun) -> None:
        if isinstance(testbed.platform, EmulatedPlatform) and len(request.experiment.versions) == 1:
            testbed.platform.set_read_interval(_READ_INTERVAL_S if event.step == "measure" else 0)

    events = EventBus()
    events.subscribe(with_error_report(lambda event: write(event.to_line()), _report), *STREAMED)
    events.subscribe(with_error_report(set_read_interval, _report), StepBegun)
    try:
        started_ns = time.time_ns()
        allow_all_controls()
        request = read_request(run_dir)
        planned = plan_run(request)
        testbed = await Testbed.start(request.network, events, slack=timer_slack(request.platform))
        await LiveRun(testbed, planned, run_dir).measure(started_ns)
    except AtollError as error:
        write({"type": "error", "message": str(error), "exit_code": error.exit_code})
        return error.exit_code
    write({"type": "done"})
    return 0


def _report(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(asyncio.run(measure(Path(sys.argv[1]))))
