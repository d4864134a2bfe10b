# SPDX-License-Identifier: Apache-2.0
"""atoll's way, as a run takes it: reach all machines, compare clocks, agree on an instant, start the jobs, which wait.

A process of its own, so that its beginning counts. First it starts the program from nothing, then, connections being
up, the given number of times. Prints a line of JSON for each.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from atoll_core.description.loader import load_lab
from atoll_core.description.resolve_inventory import load_inventory
from atoll_core.events.event_bus import EventBus
from atoll_testbed.platforms.hardware import HardwarePlatform
from atoll_testbed.run.run_clock import start_lead_ns
from hostsbench.fleet import Fleet

_READY_TIMEOUT_S = 60.0


async def main(fleet: Fleet, times: int) -> None:
    """Start on all, from nothing and ``times`` times more."""
    lab = load_lab(fleet.lab)
    place = await HardwarePlatform.connect(lab, load_inventory(fleet.inventory, lab), EventBus())
    try:
        _say(await _start(place, fleet, 0))
        for turn in range(1, times + 1):
            asked_ns = time.time_ns()
            _say({"asked_ns": asked_ns, **await _start(place, fleet, turn)})
    finally:
        await place.stop()


async def _start(place: HardwarePlatform, fleet: Fleet, turn: int) -> dict[str, Any]:
    """The start stamp of each job, and the uncertainty of their clocks."""
    clocks = await place.compare_clocks()
    begin_ns = time.time_ns() + start_lead_ns(fleet.size)
    stamps: dict[str, int] = {}

    async def start(name: str) -> None:
        def take(line: dict[str, Any]) -> None:
            if line.get("type") == "started":
                stamps[name] = line["t_ns"]

        machine = place.machine(name)
        config = fleet.load(name, begin_ns + machine.clock_offset_ns)
        job = await machine.start_job(f"load-{name}-{turn}", ["atoll-host", "load"], config=config, on_line=take)
        await job.ready(_READY_TIMEOUT_S)
        await job.wait()

    await asyncio.gather(*(start(name) for name in fleet.addresses))
    return {"begin_ns": begin_ns, "clocks_ns": max(clock.bound_ns for clock in clocks.values()), "stamps": stamps}


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    folder, size, binary, times = sys.argv[1:]
    asyncio.run(main(Fleet(Path(folder), int(size), Path(binary)), int(times)))
