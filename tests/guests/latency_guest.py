# SPDX-License-Identifier: Apache-2.0
"""A server's latency changed under traffic, up and down: ``python -m tests.guests.latency_guest``, in virtual time.

Prints, for each change, what its stages did and when, and the pings and UDP packets about it, as one JSON object.
"""

import asyncio
import json
from dataclasses import replace
from typing import Any

from atoll_core.description.loader import load_experiment
from atoll_core.events.events import SwapEvent
from atoll_core.experiment.experiment import Experiment, LinkDirection
from atoll_core.plan.plan import Backend
from atoll_core.plan.tc_settings import VIRTUAL_SLACK
from atoll_core.units import Duration, Rate
from atoll_hosts.job import Job
from atoll_testbed.testbed import Testbed
from tests.guests.swap_guest import DATA

PING_EVERY_NS = 10_000_000


class Trial:
    """Pings from the island and UDP to it, while w1's class changes."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        self._lines: dict[str, list[dict[str, Any]]] = {"ping": [], "udp": []}

    async def run(self, experiment: Experiment) -> dict[str, Any]:
        """The changes, each with its stages; what the jobs said."""
        await self._testbed.apply(classed(experiment, "rtt-20"), Backend.TC)
        listen = {"role": "receive", "listen": "10.20.0.1:5301", "each": True}
        receiver = await self._start("udp", "i1", "udp", listen)
        ping = {
            "targets": [{"name": "w1", "address": "10.10.0.1"}],
            "interval_ns": PING_EVERY_NS,
            "count": None,
            "timeout_ns": 3_000_000_000,
            "size_bytes": 56,
            "identifier": 7,
            "payload": "latency",
            "start_at_ns": 0,
        }
        pings = await self._start("ping", "i1", "ping", ping)
        send = {"role": "send", "connect": "10.20.0.1:5301", "rate_bit_s": 4_000_000, "payload_bytes": 600}
        sender = await self._start("send", "w1", "udp", send | {"start_at_ns": 0, "duration_ns": 0})
        changes: list[dict[str, Any]] = []
        for name in ("rtt-80", "rtt-20"):
            await asyncio.sleep(1.0)
            changes.append(await self._change(experiment, name))
        await asyncio.sleep(1.0)
        sent = await self._end(sender)
        await asyncio.sleep(0.5)
        pinged, received = await self._end(pings), await self._end(receiver)
        return {"changes": changes, "sent": sent, "pinged": pinged, "received": received, "lines": self._lines}

    async def _change(self, experiment: Experiment, name: str) -> dict[str, Any]:
        stages: list[dict[str, Any]] = []

        def take(event: SwapEvent) -> None:
            if event.state == "stage":
                stages.append(event.to_json())

        with self._testbed.events.subscribe(take, SwapEvent):
            _, changes = await self._testbed.apply(classed(experiment, name), Backend.TC)
        return {"to": name, "stages": stages, "changes": [str(change) for change in changes]}

    async def _start(self, name: str, machine: str, tool: str, config: dict[str, Any]) -> Job:
        take = self._lines.get(name, []).append
        job = await self._testbed.machine(machine).start_job(name, ["atoll-host", tool], config=config, on_line=take)
        await job.ready(10)
        return job

    async def _end(self, job: Job) -> dict[str, Any]:
        await job.stop(5)
        await job.wait()
        return job.last or {}


def classed(experiment: Experiment, name: str) -> Experiment:
    """The experiment with w1 in this latency class."""
    return replace(experiment, latency=(("w1", name),))


async def main() -> None:
    """Print what was found."""
    network, experiment = load_experiment(DATA / "experiment.yaml")

    def near(way: LinkDirection) -> LinkDirection:
        return replace(way, delay=Duration.parse("10 ms"), rate=Rate.parse("100 Mbit/s"))

    (link,) = experiment.links
    links = (replace(link, to_island=near(link.to_island), to_world=near(link.to_world)),)
    testbed = await Testbed.start(network, slack=VIRTUAL_SLACK)
    print(json.dumps(await Trial(testbed).run(replace(experiment, links=links))))


if __name__ == "__main__":
    asyncio.run(main())
