# SPDX-License-Identifier: Apache-2.0
"""A command uses the lab that is up, else one of its own: with real daemons, of a rack that has no machines."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from atoll_core.errors import AtollError, LabError
from atoll_core.platforms import HARDWARE, LabTarget
from atoll_daemon.client import DaemonClient, Description, Line, OwnDaemon, connected, lab_in_use
from atoll_daemon.socket_lock import daemon_holder
from tests.support.sandbox import ROOT

pytestmark = pytest.mark.long

LAB = Description(ROOT / "emulation/labs/island.yaml")


@pytest.fixture
def target(tmp_path: Path) -> LabTarget:
    """A lab of this test: its daemons meet no others."""
    return LabTarget(HARDWARE, tmp_path / "rack.yaml")


@contextlib.asynccontextmanager
async def running(target: LabTarget, *, for_run: bool) -> AsyncGenerator[OwnDaemon]:
    daemon = await OwnDaemon.start(target, for_run=for_run)
    try:
        yield daemon
    finally:
        await daemon.end()


async def test_a_daemon_that_runs_is_used_and_stays(target: LabTarget) -> None:
    lines: list[Line] = []
    async with running(target, for_run=False) as started:
        async with lab_in_use(target, LAB, lines.append) as daemon:
            assert (await daemon.status())["pid"] == started.process.pid
        async with connected(target) as daemon:
            assert daemon is not None
    assert lines == []


async def test_a_lab_that_belongs_to_a_run_is_refused_or_waited_for(target: LabTarget) -> None:
    asked = asyncio.Event()

    async def prepare(daemon: DaemonClient) -> None:
        assert not (await daemon.status())["lab"]
        asked.set()

    async def use() -> None:
        async with lab_in_use(target, LAB, lambda _: None, prepare=prepare, wait=True):
            pass

    async with running(target, for_run=True) as other:
        with pytest.raises(
            LabError, match=rf"another run is in progress \(ending, daemon process {other.process.pid}\)"
        ):
            async with lab_in_use(target, LAB, lambda _: None):
                pass
        waiting = asyncio.create_task(use())
        await asyncio.sleep(0.3)
        assert not waiting.done()
        assert not asked.is_set()
        await other.release()
        with pytest.raises(AtollError, match=r"rack\.yaml"):  # there is no such rack
            await waiting
        assert asked.is_set()


@pytest.mark.parametrize("keep", [False, True])
async def test_a_daemon_of_its_own_ends_with_its_work_however_that_ends(target: LabTarget, *, keep: bool) -> None:
    lines: list[Line] = []
    with pytest.raises(AtollError, match=r"rack\.yaml"):
        async with lab_in_use(target, LAB, lines.append, keep=keep):
            pytest.fail("a lab without machines is up")
    names = [line["text"].partition(":")[0] for line in lines]
    assert names[0] == "daemon"
    assert ("down" in names) is not keep
    while daemon_holder(target) is not None:  # noqa: ASYNC110 - one that is kept ends as no lab is up
        await asyncio.sleep(0.05)
