# SPDX-License-Identifier: Apache-2.0
"""A run asked for over the API is checked and planned before it has a directory."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from atoll_core.description.loader import load_experiment
from atoll_core.description.yaml_document import read_document
from atoll_core.errors import PlanError
from atoll_core.plan.plan import Backend, Phase
from atoll_core.platforms import HARDWARE, LabTarget
from atoll_daemon.http import write_handlers
from atoll_daemon.http.experiment_bodies import DescribedExperiment, described_by_file
from atoll_daemon.http.http_errors import RequestError
from atoll_daemon.lab_daemon import LabDaemon
from atoll_daemon.task_runner import Busy
from atoll_testbed.run.run_request import RunOptions


@pytest.fixture
async def daemon(project: Path) -> LabDaemon:
    """The daemon of a rack that is up, whose machines are not asked for anything."""
    network, _ = load_experiment(project / "examples/geo.yaml")
    testbed = SimpleNamespace(
        network=network, platform=SimpleNamespace(name=HARDWARE), failed=asyncio.get_running_loop().create_future()
    )
    made: Any = LabDaemon(LabTarget(HARDWARE, project / "examples/rack/inventory.yaml"), for_run=False)
    made._running = SimpleNamespace(testbed=testbed, lab=None, network=network)
    return made


def described(project: Path, *settings: str) -> DescribedExperiment:
    path = project / "examples/geo.yaml"
    return described_by_file(read_document(path), path, settings, Backend.TC)[1]


async def test_it_is_planned_with_its_settings_and_has_no_directory_yet(
    daemon: LabDaemon, project: Path, tmp_path: Path
) -> None:
    asked = described(project, "seed=5", "duration=77 s")
    planned = await daemon.plan_run(asked, RunOptions(Backend.TC, metrics=False), tmp_path)
    assert planned.plan.seed == 5
    loads = [job for job in planned.plan.jobs if job.phase is Phase.CLIENT]
    assert loads
    assert {job.config["duration_ns"] for job in loads if job.config} == {77 * 10**9}
    assert list(tmp_path.iterdir()) == []


async def test_what_cannot_be_carried_out_is_refused(daemon: LabDaemon, project: Path, tmp_path: Path) -> None:
    asked = described(project, "links.sat.to_island.queue_packets=100")
    with pytest.raises(PlanError, match="not possible with the tc backend"):
        await daemon.plan_run(asked, RunOptions(Backend.TC), tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_a_busy_lab_refuses_a_run_before_it_is_read(daemon: LabDaemon) -> None:
    """Also one without a body, which is an error of another kind."""
    daemon.tasks.busy = Busy("apply", "geo", 0)
    with pytest.raises(RequestError, match="the lab is busy with `apply geo`") as refused:
        await write_handlers.post_run(daemon, make_mocked_request("POST", "/v1/runs"))
    assert refused.value.status == 409
