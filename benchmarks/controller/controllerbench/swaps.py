# SPDX-License-Identifier: Apache-2.0
"""Duration of swaps on a lab that is up: the chain is changed back and forth, and every stage is timed.

No peer does this: they change entries, and packets under way meet whatever is there at the moment.
"""

import asyncio
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from atoll_core.description.loader import load_experiment
from atoll_core.events.events import SwapEvent
from atoll_core.experiment.experiment import Experiment, LinkDirection
from atoll_core.units import Duration
from atoll_testbed.testbed import Testbed

_GEO = Path(__file__).parents[3] / "examples" / "geo.yaml"
_AROUND = ("tap-w", "pep-w", "sat", "pep-i", "tap-i")  # two routed boxes more than the demo's chain
_UNDELAYED_MS = 10  # the shorter of the two propagation delays; the other one is the demo's

STAGES = ("install", "probe", "shift", "drain", "collect")


def measure(repeats: int) -> list[dict[str, Any]]:
    """A result for each propagation delay: seconds of whole swaps, of their stages, and beyond the drain."""
    return [asyncio.run(_measured(delay_ms, repeats)) for delay_ms in (_UNDELAYED_MS, 250)]


async def _measured(delay_ms: int, repeats: int) -> dict[str, Any]:
    network, geo = load_experiment(_GEO)
    one = _with_delay(replace(geo, latency=()), delay_ms)
    other = replace(one, chain=replace(one.chain, hops=_AROUND))
    result: dict[str, Any] = {"swap": "two routed boxes into a chain, and out", "delay_ms": delay_ms}
    times: defaultdict[str, list[float]] = defaultdict(list)
    testbed = await Testbed.start(network)
    try:
        await testbed.apply(one)
        for wanted in (other, one) * repeats:
            await _swap(testbed, wanted, times)
    finally:
        await testbed.stop()
    return {**result, **times}


async def _swap(testbed: Testbed, wanted: Experiment, times: defaultdict[str, list[float]]) -> None:
    spent: defaultdict[str, float] = defaultdict(float)
    end: dict[str, Any] = {}

    def take(event: SwapEvent) -> None:
        if event.state == "stage":
            spent[str(event.details["stage"])] += event.details["duration_ns"] / 1e9
        elif event.state == "end":
            end.update(event.details)

    began = time.perf_counter()
    with testbed.events.subscribe(take, SwapEvent):
        await testbed.apply(wanted)
    times["whole_s"].append(time.perf_counter() - began)
    times["beyond_drain_s"].append(end["beyond_drain_ns"] / 1e9)
    for stage in STAGES:
        times[f"{stage}_s"].append(spent[stage])


def _with_delay(experiment: Experiment, delay_ms: int) -> Experiment:
    def delayed(way: LinkDirection) -> LinkDirection:
        return replace(way, delay=Duration(delay_ms * 1_000_000))

    links = (
        replace(link, to_island=delayed(link.to_island), to_world=delayed(link.to_world)) for link in experiment.links
    )
    return replace(experiment, links=tuple(links))
