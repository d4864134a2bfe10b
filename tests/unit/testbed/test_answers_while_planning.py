# SPDX-License-Identifier: Apache-2.0
"""The daemon answers while a plan is made, however long that takes."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from atoll_controller.fabric.swap_plan import StageKind, plan_swap
from atoll_core.errors import LabError
from atoll_core.plan.switch_features import Runtime
from atoll_testbed import testbed as planning
from atoll_testbed.testbed import Testbed
from atoll_testbed.verification import path_verification, swap_verification
from tests.support.labs import experiment
from tests.unit.controller.test_reconciler import Lab
from tests.unit.daemon.test_api_strangers import daemon_at

ANSWER_S = 5.0
"""Far more than an answer takes on a busy machine; a loop that waits for the plan never answers."""


def held(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> tuple[threading.Event, threading.Event]:
    """Have a planning function wait; set when it has begun, and to let it go on."""
    begun, on = threading.Event(), threading.Event()
    plan: Callable[..., Any] = getattr(where, name)

    def wait(*args: Any, **options: Any) -> Any:
        begun.set()
        assert on.wait(2 * ANSWER_S)
        return plan(*args, **options)

    monkeypatch.setattr(where, name, wait)
    return begun, on


@pytest.mark.parametrize("step", ["make_plan", "plan_swap", "cover", "_way"])
async def test_status_is_answered_while_a_plan_is_made(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first plan, a swap, the choice of probes, and the ways of a swap's probes."""
    lab = Lab()
    place = SimpleNamespace(network=lab.network, failed=asyncio.get_running_loop().create_future(), name="memory")
    testbed = Testbed(place, lab.controller, Runtime.OS_KEN)  # type: ignore[arg-type]
    first, second = (experiment(lab.network, hops) for hops in (("b0", "b1", "t0"), ("b0", "b1", "b2", "t0")))
    if step == "plan_swap":
        testbed.plan, testbed.experiment = lab.plan, first
    begun, on = held(monkeypatch, {"cover": path_verification, "_way": swap_verification}.get(step, planning), step)
    if step == "cover":
        work = asyncio.create_task(path_verification.verify_paths(testbed, lab.plan, first))
    elif step == "_way":
        stages = plan_swap(lab.network, first, lab.plan.layout, second).stages
        probes = next(stage.probes for stage in stages if stage.kind is StageKind.PROBE)
        work = asyncio.create_task(swap_verification.verify_entries(testbed, probes, second))  # type: ignore[assignment]
    else:
        work = asyncio.create_task(testbed.apply(second, dry_run=True))  # type: ignore[assignment]
    unix = tmp_path / "daemon"
    async with (
        daemon_at(unix),
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(unix))) as session,
    ):
        assert await asyncio.to_thread(begun.wait, ANSWER_S)
        async with asyncio.timeout(ANSWER_S), session.get("http://daemon/v1/status") as response:
            assert response.status == 200
        assert not work.done()
    on.set()
    if step in ("cover", "_way"):
        work.cancel()
    await asyncio.wait([work])
    if step not in ("cover", "_way"):
        assert isinstance(work.exception(), LabError | None)
    for watcher in testbed._watchers:
        watcher.cancel()
