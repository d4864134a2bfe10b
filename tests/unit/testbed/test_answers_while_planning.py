# SPDX-License-Identifier: Apache-2.0
"""The daemon answers while a plan is made: a large laboratory is planned without holding the event loop up.

Times are those of the processor, which a busy machine does not change.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable
from types import SimpleNamespace

import pytest

from atoll_controller.fabric.flow_installer import apply_flows
from atoll_controller.planner.planner import make_plan
from atoll_core.errors import LabError
from atoll_core.plan.switch_features import Runtime
from atoll_testbed.testbed import Testbed
from atoll_testbed.verification.path_verification import verify_paths
from planningbench.laboratory import laboratory, without
from tests.unit.controller.test_reconciler import Controllers

SHARE = 0.5
"""The loop's part of the work at one go: nearly all, if it does the work itself."""

LEAST_S = 0.05
"""Time that the work takes at least: far more than the loop's other work."""

TRIES = 3
"""Something else may take the loop's time once, such as a collection of garbage; its own work does so each time."""


async def times_of(work: Awaitable[object]) -> tuple[float, float]:
    """Do some work; the time that all threads needed, and the longest that the event loop needed at one go."""
    task = asyncio.ensure_future(work)
    began, last, longest = time.process_time(), time.thread_time(), 0.0
    while not task.done():
        await asyncio.wait([task], timeout=0.001)
        now = time.thread_time()
        last, longest = now, max(longest, now - last)
    with contextlib.suppress(LabError, AttributeError):  # the laboratory has no machines to send probes from
        task.result()
    return time.process_time() - began, longest


@pytest.mark.parametrize("work", ["plan", "swap", "paths of probes"])
async def test_the_event_loop_goes_on_while_a_plan_is_made(work: str) -> None:
    network, first = laboratory(300, 1200)
    second = without(first, "pep-w", "pep-i")
    controller = Controllers(network, [switch.dpid for switch in network.switches])
    place = SimpleNamespace(network=network, failed=asyncio.get_running_loop().create_future(), name="memory")
    testbed = Testbed(place, controller, Runtime.OS_KEN)  # type: ignore[arg-type]
    plan = make_plan(network, first)
    if work != "plan":
        await apply_flows(controller, network, plan)
        testbed.plan, testbed.experiment = plan, first
    probing = work == "paths of probes"
    shares = []
    for _ in range(TRIES):
        doing = verify_paths(testbed, plan, first) if probing else testbed.apply(second, dry_run=True)
        took_s, longest_s = await times_of(doing)
        assert took_s > LEAST_S
        shares.append(longest_s / took_s)
        if shares[-1] < SHARE:
            break
    assert min(shares) < SHARE
