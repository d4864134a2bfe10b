# SPDX-License-Identifier: Apache-2.0
"""One process that plans: the first plan of each kind, then the same again; prints seconds as JSON.

Everything is planned as the daemon plans it: in a thread, while an event loop goes on.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from atoll_controller.fabric.swap_plan import plan_swap
from atoll_controller.planner.planner import make_plan
from atoll_core.experiment.experiment import Experiment
from atoll_core.garbage_collection import relax_garbage_collection
from planningbench.laboratory import branched, laboratory, without

_TICK_S = 0.002


async def measure(servers: int, clients: int, repeats: int) -> dict[str, Any]:
    """Seconds of each kind of plan, the first one first, by the clock and of the processor.

    ``held_s``: the longest that the event loop had to wait.
    """
    network, whole = laboratory(servers, clients)
    without_peps, with_branches = without(whole, "pep-w", "pep-i"), branched(network, whole)
    old_layout = make_plan(*laboratory(2, 2)).layout  # whatever planning loads is loaded now

    def swapped(old: Experiment, new: Experiment) -> None:
        make_plan(network, new, layout=plan_swap(network, old, old_layout, new).layout)

    kinds: dict[str, Callable[[], object]] = {
        "plan": lambda: make_plan(network, whole),
        "swap": lambda: swapped(whole, without_peps),
        "branches_plan": lambda: make_plan(network, with_branches),
        "branches_swap": lambda: swapped(whole, with_branches),
    }
    loop_delays_s: list[float] = []
    ticking = asyncio.create_task(_tick(loop_delays_s))
    figures: dict[str, Any] = {}
    for name, plan in kinds.items():
        loop_delays_s.clear()
        seconds: list[float] = []
        processor_s: list[float] = []
        for _ in range(repeats + 1):
            began = time.perf_counter()
            processor_s.append(await asyncio.to_thread(_processor_s, plan))
            seconds.append(time.perf_counter() - began)
        figures[name] = {"seconds": seconds, "processor_s": processor_s, "held_s": max(loop_delays_s)}
    ticking.cancel()
    return figures | {"entries": len(make_plan(network, whole).flows)}


def _processor_s(plan: Callable[[], object]) -> float:
    began = time.thread_time()
    plan()
    return time.thread_time() - began


async def _tick(loop_delays_s: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(_TICK_S)
        loop_delays_s.append(time.perf_counter() - began - _TICK_S)


if __name__ == "__main__":
    relax_garbage_collection()  # as the daemon does
    print(json.dumps(asyncio.run(measure(*map(int, sys.argv[1:])))))
