# SPDX-License-Identifier: Apache-2.0
"""A run in virtual time has no daemon: who watches it follows its directory, while it is made and afterwards."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from atoll_analysis.run_directory.metrics_spool import SPOOL, read_spool
from atoll_core.metrics.line_protocol import MetricPoint
from atoll_core.platforms import LabTarget
from atoll_daemon.http.tcp_listener import ListenAddress
from atoll_daemon.replays.replay_index import Replays
from atoll_daemon.replays.watch_server import serving_page
from atoll_emulation.uml.boot import VirtualClock
from tests.support.sandbox import ATOLL, QUICK

pytestmark = pytest.mark.virtual

TOKEN = "correct-horse-battery-staple"


async def test_a_run_in_virtual_time_is_followed_from_its_first_second_to_its_last(tmp_path: Path) -> None:
    """Its points come while it is made, all of them, at instants of its own clock; then it is over."""
    words = ["run", QUICK, "--on", "virtual", "--duration", "20 s", "--no-analysis"]
    run = await asyncio.create_subprocess_exec(ATOLL, *words, cwd=tmp_path, stdout=sys.stderr)
    async with (
        serving_page(LabTarget(), ListenAddress.parse("0"), TOKEN, Replays(tmp_path / "runs")) as url,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session,
    ):
        api = url.replace("/watch/", "/v1/replays")

        async def ask(path: str) -> Any:
            async with session.get(api + path) as response:
                assert response.status == 200
                return await response.json()

        while not (listed := (await ask(""))["replays"]):
            assert run.returncode is None
        assert (listed[0]["place"], listed[0]["finished"]) == ("virtual", False)
        messages: list[dict[str, Any]] = []
        async with session.get(f"{api}/{listed[0]['id']}/points?follow=true") as response:
            messages.append(json.loads(await response.content.readline()))
            assert run.returncode is None, "the first points came when the run was over"
            messages += [json.loads(line) async for line in response.content]
        assert await asyncio.wait_for(run.wait(), 60) == 0
        whole = await ask(f"/{listed[0]['id']}")
    points = [point for message in messages for point in message["points"]]
    spool = next((tmp_path / "runs" / "quick").iterdir()) / SPOOL
    assert [(point[0], point[3]) for point in points] == [
        (point.measurement, point.t_ns) for point in map(MetricPoint.parse, read_spool(spool))
    ]
    begin_ns = VirtualClock(1).start_ns
    assert all(begin_ns < point[3] < begin_ns + 100 * 10**9 for point in points)
    assert len(messages) > 20
    assert whole["finished"]
    assert whole["window"]["end_ns"] - whole["window"]["start_ns"] == 20 * 10**9
    assert whole["from_ns"] <= whole["window"]["start_ns"] < whole["window"]["end_ns"] <= whole["to_ns"]
