# SPDX-License-Identifier: Apache-2.0
"""Run by test_virtual_calibration in the kernel for virtual time: a link calibrated twice against one experiment.

First it is as that says, then it has half the rate, two thirds of the queue and twice the delay. At last it is as that
says again, and the special server has a terrestrial latency of 50 ms.

``python -m tests.guests.narrow_link EXPERIMENT`` prints the rows of all calibrations, and of the brief ones.
"""

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from atoll_core.codec import to_json
from atoll_core.description.loader import load_experiment
from atoll_core.experiment.experiment import Experiment, LinkDirection
from atoll_core.plan.tc_settings import VIRTUAL_SLACK
from atoll_core.units import Duration, Rate, Size
from atoll_testbed.calibration.link_calibration import brief_calibration, calibrate
from atoll_testbed.testbed import Testbed


def narrowed(experiment: Experiment) -> Experiment:
    """The experiment with half the rate, two thirds of the queue and twice the delay."""

    def less(way: LinkDirection) -> LinkDirection:
        return replace(
            way,
            rate=Rate(way.rate.bit_s // 2),
            queue=Size(way.queue.bytes * 2 // 3),
            delay=Duration(2 * way.delay.ns),
        )

    links = tuple(
        replace(link, to_island=less(link.to_island), to_world=less(link.to_world)) for link in experiment.links
    )
    return replace(experiment, links=links)


async def main(path: Path) -> None:
    """Calibrate against the experiment, with the experiment applied and with the narrowed one."""
    network, experiment = load_experiment(path)
    testbed = await Testbed.start(network, slack=VIRTUAL_SLACK)
    said: dict[str, Any] = {}
    delayed = replace(experiment, latency=(*experiment.latency, ("ws", "rtt-50")))
    trials = {
        "as described": (experiment, experiment),
        "narrowed": (narrowed(experiment), experiment),
        "delayed": (delayed, delayed),
    }
    for name, (applied, described) in trials.items():
        await testbed.apply(applied)
        full, base_rtt_ns, _ = await calibrate(testbed, described, ["to_island"], 0.5)
        rows = await brief_calibration(testbed, described, base_rtt_ns)
        said[name] = {"full": to_json(full), "brief": to_json(rows)}
    print(json.dumps(said))


asyncio.run(main(Path(sys.argv[1])))
