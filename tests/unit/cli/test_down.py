# SPDX-License-Identifier: Apache-2.0
"""`atoll down`: settings of real machines that were not undone are an error."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from atoll_cli.commands import lab_state
from atoll_core.errors import LabError
from atoll_core.platforms import LabTarget
from atoll_daemon.lab_daemon import LabDaemon
from atoll_daemon.last_failure import last_failure, remember_failure

LEFT = "sat: link-sat did not end as it should: settings are not undone: qdisc netem (busy) (exit status 1)"


@pytest.mark.parametrize("left", [(), (LEFT,)])
def test_settings_that_are_not_undone_are_named(
    left: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = LabTarget()

    async def down(*, force: bool) -> None:
        del force
        if left:
            remember_failure(target, "rack", "; ".join(left), 1, left)

    @contextlib.asynccontextmanager
    async def connected(_: LabTarget) -> AsyncGenerator[SimpleNamespace]:
        yield SimpleNamespace(down=down)

    monkeypatch.setattr("atoll_daemon.last_failure.state_directory", lambda: tmp_path)
    monkeypatch.setattr(lab_state, "connected", connected)
    if left:
        with pytest.raises(LabError, match="not everything is undone:\nsat: link-sat did not end as it should: "):
            lab_state.take_down(target, force=False, as_json=False)
    else:
        lab_state.take_down(target, force=False, as_json=False)
        assert capsys.readouterr().out == "the lab is down\n"
    assert last_failure(target) is None


@pytest.mark.parametrize("failed", [False, True])
async def test_the_daemon_keeps_lines_about_settings_that_are_not_undone(
    failed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stop() -> tuple[str, ...]:
        return (LEFT,)

    monkeypatch.setattr("atoll_daemon.last_failure.state_directory", lambda: tmp_path)
    target, ended = LabTarget(), asyncio.get_running_loop().create_future()
    if failed:
        ended.set_result("sat died")
    daemon: Any = LabDaemon(target, for_run=False)
    daemon._running = SimpleNamespace(
        testbed=SimpleNamespace(network=SimpleNamespace(name="rack"), failed=ended, stop=stop)
    )
    await daemon.stop()
    kept = last_failure(target)
    assert kept is not None
    assert (kept["lab"], kept["left"]) == ("rack", [LEFT])
