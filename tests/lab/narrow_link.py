# SPDX-License-Identifier: Apache-2.0
"""A lab whose link does not do what the experiment says: holds one against the other and prints the rows.

Run it in a sandbox: ``python narrow_link.py EXPERIMENT``.
"""

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

from atoll.experiment.calibrate import brief, calibrate
from atoll.experiment.testbed import Testbed
from atoll.model.codec import to_json
from atoll.model.experiment import Experiment, LinkDirection
from atoll.model.load import load_experiment
from atoll.model.units import Duration, Rate, Size


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
    """Apply the one, calibrate against the other."""
    network, experiment = load_experiment(path)
    testbed = await Testbed.start(network, lambda _: None)
    try:
        await testbed.apply(narrowed(experiment))
        found = await calibrate(testbed, experiment, ["to_island"], 0.5, lambda _: None)
        rows = await brief(testbed, experiment, found.base_rtt_ns)
    finally:
        await testbed.stop()
    print(json.dumps({"full": to_json(found.rows), "brief": to_json(rows)}))


asyncio.run(main(Path(sys.argv[1])))
