# SPDX-License-Identifier: Apache-2.0
"""What `atoll status` says of a lab whose daemon has ended: by `down`, by a failure, or killed."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from atoll_cli.commands.lab_state import print_status
from atoll_core.platforms import LabTarget
from atoll_daemon import lab_daemon as daemons
from atoll_daemon.lab_daemon import LabDaemon

NETWORK: Any = SimpleNamespace(name="island", file="lab.yaml")
TARGET = LabTarget()


async def keep(end: str, *, for_run: bool = False) -> None:
    """Bring a lab up, and end as ``end`` says: by `down`, by a failure, or at once."""
    daemon: Any = LabDaemon(TARGET, for_run=for_run)
    daemon.tasks = SimpleNamespace(end=nothing, idle=SimpleNamespace(wait=nothing))
    await daemon.bring_up(SimpleNamespace(network=NETWORK), None)
    if end == "fails":
        daemon.testbed.failed.set_result("the agent died")
        await daemon.end.wait()
    if end != "killed":
        await daemon.stop()


async def nothing() -> None:
    pass


def _same(given: Any) -> Any:
    return given


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state directory of the test's own, a target without a daemon, and a lab of nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def start(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(failed=asyncio.get_running_loop().create_future(), stop=nothing, network=NETWORK)

    monkeypatch.setattr(daemons, "Testbed", SimpleNamespace(start=start))
    monkeypatch.setattr(daemons, "_with_absolute_file", _same)


def test_a_daemon_that_was_killed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(keep("killed"))
    assert print_status(TARGET, as_json=False) == 1
    why = f"the daemon, process {os.getpid()}, was killed, or the machine went down"
    assert capsys.readouterr().out == f"no lab is up; island failed: {why}\n"
    assert print_status(TARGET, as_json=True) == 1
    assert '"t_ns": null' in capsys.readouterr().out


def test_a_lab_that_was_taken_down_has_not_failed(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(keep("down"))
    assert (print_status(TARGET, as_json=False), capsys.readouterr().out) == (0, "no lab is up\n")


def test_a_lab_that_failed_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(keep("fails"))
    assert print_status(TARGET, as_json=False) == 1
    assert capsys.readouterr().out.endswith(": the agent died\n")


def test_a_run_tells_its_user_itself(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(keep("killed", for_run=True))
    assert (print_status(TARGET, as_json=False), capsys.readouterr().out) == (0, "no lab is up\n")
