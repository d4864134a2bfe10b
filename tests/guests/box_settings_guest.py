# SPDX-License-Identifier: Apache-2.0
"""Settings of PEPs and links changed under traffic: ``python -m tests.guests.box_settings_guest``, in virtual time.

Prints the pings that were lost, and the fates of connections, as one JSON object.
"""

import asyncio
import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from atoll_core.description.loader import load_experiment
from atoll_core.errors import LabError, PlanError
from atoll_core.events.events import SwapEvent
from atoll_core.experiment.experiment import (
    Bernoulli,
    Codel,
    Counted,
    Experiment,
    GilbertElliott,
    Jitter,
    JitterShape,
    LinkDirection,
    LinkTrace,
    LowPriority,
    Red,
    TraceRow,
)
from atoll_core.plan.plan import Backend
from atoll_core.plan.tc_settings import VIRTUAL_SLACK
from atoll_core.units import Duration, Rate, Size
from atoll_testbed.box_connections import ConnectionPolicy
from atoll_testbed.testbed import Testbed
from tests.guests.connections_guest import Pair

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pep-both.yaml"
WHOLE, WITHOUT = ("tap-w", "pep-w", "sat", "pep-i", "tap-i"), ("tap-w", "sat", "pep-i", "tap-i")
_FIRST: dict[str, Any] = {
    "rate": Rate.parse("12 Mbit/s"),
    "delay": Duration.parse("200 ms"),
    "queue": Size.parse("60 kB"),
    "jitter": Jitter(JitterShape.UNIFORM, Duration.parse("5 ms")),
    "loss": Bernoulli(0.0),
}
_THEN: dict[str, Any] = {
    "rate": Rate.parse("20 Mbit/s"),
    "delay": Duration.parse("280 ms"),
    "queue": Size.parse("200 kB"),
    "jitter": None,
    "loss": GilbertElliott(0.0, 1.0),
}
LINKS: dict[Backend, list[dict[str, Any]]] = {
    Backend.TC: [_FIRST, _THEN],
    Backend.ENGINE: [
        {
            **_FIRST,
            "queue_packets": 50,
            "jitter": Jitter(JitterShape.NORMAL, Duration.parse("5 ms"), correlation=0.5),
            "reorder": True,
            "aqm": Codel(Duration.parse("5 ms"), Duration.parse("600 ms")),
            "trace": LinkTrace("", (TraceRow(Duration(0), delay=Duration.parse("210 ms")),)),
        },
        {
            **_THEN,
            "low_priority": LowPriority(Size.parse("50 kB")),
            "aqm": Red(Size.parse("100 kB"), Size.parse("150 kB"), 0.1, 0.002),
        },
    ],
}
"""Settings of both directions, one version after the other, that lose no packet. Counted bytes change with each."""
_PING_EVERY_NS = 5_000_000


class Trial:
    """The lab with PEPs."""

    def __init__(self, testbed: Testbed, experiment: Experiment) -> None:
        self._testbed = testbed
        self._experiment = experiment

    async def to(self, connections: str = "reset", *, hops: tuple[str, ...] = WHOLE, **changed: Any) -> list[str]:
        """Apply another chain, or other settings of pep-w; returns what was done to connections."""
        experiment = self._experiment
        boxes = tuple(
            replace(each, settings=tuple({**dict(each.settings), **changed}.items())) if each.box == "pep-w" else each
            for each in experiment.boxes
        )
        chain = replace(experiment.chain, hops=hops)
        new = replace(experiment, chain=chain, boxes=boxes, latency=(("w1", "rtt-20"),))
        events: list[SwapEvent] = []
        with self._testbed.events.subscribe(events.append, SwapEvent):
            await self._testbed.apply(new, connections=ConnectionPolicy.parse(connections))
        self._experiment = new
        return [event.details["how"] for event in events if event.state == "connections"]

    async def link_to(self, backend: Backend) -> list[str]:
        """Apply other settings of the link, one after the other, the last ones together with another chain."""
        said: list[str] = []
        for settings in LINKS[backend]:
            sat, limits = self._experiment.links[0], self._experiment.limits
            way = LinkDirection(**settings)
            link = replace(sat, to_island=way, to_world=way)
            if backend is Backend.ENGINE:
                link = replace(link, counts=Counted.IP if sat.counts is Counted.ETHERNET else Counted.ETHERNET)
                limits = replace(limits, stall=Duration(limits.stall.ns + 10**6))
            hops = WITHOUT if settings is LINKS[backend][-1] else self._experiment.chain.hops
            chain = replace(self._experiment.chain, hops=hops)
            new = replace(self._experiment, links=(link,), limits=limits, chain=chain, seed=self._experiment.seed + 1)
            _, changes = await self._testbed.apply(new, backend, dry_run=True)
            said += [str(change) for change in changes if change.kind == "box"]
            await self._testbed.apply(new, backend)
            self._experiment = new
        return said

    async def links(self, backend: Backend) -> dict[str, Any]:
        """Pings while the link changes, what the dry runs say, and how settings for which it would begin again fare."""
        first = self._experiment
        await self._testbed.apply(first, backend, at_once=True)
        said: list[str] = []

        async def work() -> None:
            said.extend(await self.link_to(backend))

        found = {**await self._pinged(work()), "said": said}
        other = Backend.TC if backend is Backend.ENGINE else Backend.ENGINE
        try:
            await self._testbed.apply(first, other)
        except PlanError as error:
            found["refused"] = str(error).splitlines()
        return found

    async def run(self) -> dict[str, Any]:
        """One change after the other."""
        found: dict[str, Any] = {}
        first = self._experiment
        for backend in Backend:
            found[f"link on {backend.value}"] = await self.links(backend)
            self._experiment = first
        await self._testbed.apply(first, at_once=True)
        found["pings"] = await self._pinged(self.to(world_initial_window=30))
        pair = await asyncio.to_thread(Pair, self._testbed)
        times = {"silence": 60, "handshake": 30, "flush": 5, "learned_for": 60}
        limits: dict[str, Any] = {name: seconds * 10**9 for name, seconds in times.items()}
        found["limits"] = await self.to("wait:20 s", **limits, pending_max=100, accept="early")
        try:
            found["it goes on"] = await asyncio.to_thread(pair.echoes)
        except OSError as error:
            found["it goes on"] = str(error)
        pair.close()
        pair = await asyncio.to_thread(Pair, self._testbed)
        began = time.monotonic()
        leaving = asyncio.create_task(self.to("wait:20 s", island_window=10**6))
        await asyncio.sleep(4)
        found["while it waits"] = await asyncio.to_thread(pair.echoes)
        pair.close()
        found["wait"] = await leaving
        found["waited_s"] = time.monotonic() - began
        pair = await asyncio.to_thread(Pair, self._testbed)
        leaving = asyncio.create_task(self.to("wait:20 s", hops=WITHOUT))
        await asyncio.sleep(4)
        other: list[Pair] = []
        thread = threading.Thread(target=lambda: other.append(Pair(self._testbed, port=7001, limit_s=30)))
        thread.start()
        await asyncio.sleep(2)
        found["new one begins"] = bool(other)
        pair.close()
        found["left"] = await leaving
        await asyncio.to_thread(thread.join)
        found["new one"] = await asyncio.to_thread(other[0].echoes)
        other[0].close()
        await self.to()
        try:
            await self.to(world_congestion_control="nonexistent")
        except LabError as error:
            found["refused"] = str(error)
        found["old one again"] = (await asyncio.to_thread(Pair, self._testbed, port=7002)).echoes()
        return found

    async def _pinged(self, work: Any) -> dict[str, Any]:
        config = {
            "targets": [{"name": "w2", "address": "10.10.0.2"}],
            "interval_ns": _PING_EVERY_NS,
            "count": 1800,
            "timeout_ns": 3_000_000_000,
            "size_bytes": 56,
            "identifier": 7,
            "payload": "settings",
            "start_at_ns": 0,
        }
        job = await self._testbed.machine("i1").start_job("ping", ["atoll-host", "ping"], config=config)
        await job.ready(10)
        await asyncio.sleep(1)
        await work
        await job.wait()
        return (job.last or {})["targets"]["w2"]


async def main() -> None:
    """Print what became of them."""
    network, experiment = load_experiment(EXAMPLE)
    testbed = await Testbed.start(network, slack=VIRTUAL_SLACK)
    print(json.dumps(await Trial(testbed, experiment).run()), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
