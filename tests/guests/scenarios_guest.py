# SPDX-License-Identifier: Apache-2.0
"""The configuration test of the full laboratory at base scenarios: ``python -m tests.guests.scenarios_guest NAME...``.

Runs in the kernel for virtual time. The lab is brought up once; prints what became of each scenario as one JSON object.
"""

import asyncio
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from atoll_analysis.run_directory import RunDir
from atoll_controller.planner.path_checks import pinging_ns
from atoll_core.description.loader import load_experiment
from atoll_core.errors import RunError
from atoll_core.experiment.experiment import Experiment
from atoll_core.plan.plan import Backend
from atoll_core.plan.tc_settings import VIRTUAL_SLACK
from atoll_core.units import Duration, Rate, Size
from atoll_testbed.preflight.preflight import check_links, check_paths
from atoll_testbed.testbed import Testbed

ROOT = Path(__file__).parents[2]
_GEO, _MEO = Duration(250_000_000), Duration(62_500_000)
SCENARIOS = {  # delay, Mbit/s to the island, kB of queue; to the world a quarter of the rate
    "geo-8": (_GEO, 8, 100),
    "geo-16": (_GEO, 16, 120),
    "geo-32": (_GEO, 32, 250),
    "geo-64": (_GEO, 64, 600),
    "meo-32": (_MEO, 32, 200),
    "meo-64": (_MEO, 64, 400),
    "meo-160": (_MEO, 160, 1000),
    "meo-320": (_MEO, 320, 2000),
}


def at(experiment: Experiment, name: str) -> Experiment:
    """The experiment with the link of a base scenario."""
    delay, mbit_s, queue_kb = SCENARIOS[name]
    (link,) = experiment.links

    def way(share: int) -> dict[str, Any]:
        return {"rate": Rate(mbit_s * 10**6 // share), "delay": delay, "queue": Size(queue_kb * 1000)}

    changed = replace(link, to_island=replace(link.to_island, **way(1)), to_world=replace(link.to_world, **way(4)))
    return replace(experiment, name=name, links=(changed,))


async def test(testbed: Testbed, experiment: Experiment) -> dict[str, Any]:
    """Both parts of the configuration test; what they found, how long they took."""
    plan, _ = await testbed.apply(experiment, Backend.TC, at_once=True)
    run_dir = RunDir.create(Path("/out"), experiment.name, time.time_ns())
    began_ns = time.monotonic_ns()
    found: dict[str, Any] = {"paths": len(plan.checks), "planned_s": pinging_ns(plan) / 1e9, "off": ""}
    try:
        found["base_rtt_ns"] = await check_paths(testbed, plan, run_dir)
        found["paths_s"] = (time.monotonic_ns() - began_ns) / 1e9
        await check_links(testbed, experiment, found["base_rtt_ns"], run_dir, lambda: asyncio.sleep(2))
        found["whole_s"] = (time.monotonic_ns() - began_ns) / 1e9
    except RunError as error:
        found["off"] = str(error)
    events = list(run_dir.events())
    found["attempts"] = len({event["attempt"] for event in events if event["type"] == "check_off"}) + 1
    found["beyond_ns"] = max(
        (event["rtt_min_ns"] - event["expected_ns"] for event in events if event["type"] == "check"), default=None
    )
    found["terrestrial"] = {
        event["server"]: (event["configured_ns"], event["measured_ns"])
        for event in events
        if event["type"] == "terrestrial"
    }
    return found


async def main() -> None:
    """Print what was found."""
    network, experiment = load_experiment(ROOT / "examples/laboratory.yaml")
    testbed = await Testbed.start(network, slack=VIRTUAL_SLACK)
    try:
        print(json.dumps({name: await test(testbed, at(experiment, name)) for name in sys.argv[1:]}))
    finally:
        await testbed.stop()


if __name__ == "__main__":
    asyncio.run(main())
