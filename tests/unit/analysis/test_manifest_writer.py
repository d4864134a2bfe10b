# SPDX-License-Identifier: Apache-2.0
"""A run's manifest, written a key at a time while the daemon goes on."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis.run_directory import RunDir, directory
from atoll_analysis.run_directory.atomic_files import replace_text, write_error
from atoll_analysis.run_directory.directory import ManifestWriter
from atoll_core.description.loader import load_experiment
from atoll_core.errors import RunError
from atoll_core.events.event_bus import EventBus
from atoll_testbed.run.run_recorder import RunRecorder

NOON_NS = 1_767_268_800_000_000_000
LIMIT_S = 20.0
"""Far more than a step takes on a busy machine."""
CHANGES: list[dict[str, Any]] = [
    {"plan": {"flows": [{"why": "w1 → island"}], "jobs": [], "hosts": {}}},
    {"seed": 7, "revision": None},
    {"plan": [1.5, "two\nlines", True]},
    {"outcome": "completed"},
]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path, "geo", NOON_NS)


def replacing_by(monkeypatch: pytest.MonkeyPatch, work: Callable[[], None]) -> None:
    """Let this happen before the manifest is replaced."""

    def replace(path: Path, text: str) -> None:
        work()
        replace_text(path, text)

    monkeypatch.setattr(directory, "replace_text", replace)


async def test_it_is_as_if_it_were_written_whole(run: RunDir, tmp_path: Path) -> None:
    whole = RunDir.create(tmp_path, "whole", NOON_NS)
    manifest = ManifestWriter(run)
    for changed in CHANGES:
        await manifest.update(changed)
        whole.update_manifest(changed)
        assert (run.path / "manifest.json").read_bytes() == (whole.path / "manifest.json").read_bytes()


async def test_the_loop_goes_on_while_a_run_writes_its_manifest(
    run: RunDir, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a thousand hosts takes a second."""
    begun, on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert on.wait(LIMIT_S)

    recording = RunRecorder(run, *load_experiment(project / "examples" / "geo.yaml"), EventBus())
    replacing_by(monkeypatch, wait)
    settings = asyncio.create_task(recording.manifest.update({"tcp_sysctls": {"w1": []}}))
    assert await asyncio.to_thread(begun.wait, LIMIT_S)
    assert not settings.done()
    on.set()
    await settings
    recording.close()
    assert run.manifest()["tcp_sysctls"] == {"w1": []}


async def test_a_cancelled_update_takes_nothing_from_the_next(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is cancelled while it records its plan goes on to record that it was cancelled."""
    begun, on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert on.wait(LIMIT_S)

    manifest = ManifestWriter(run)
    replacing_by(monkeypatch, wait)
    plan = asyncio.create_task(manifest.update({"plan": {}}))
    assert await asyncio.to_thread(begun.wait, LIMIT_S)
    plan.cancel()
    with pytest.raises(asyncio.CancelledError):
        await plan
    outcome = asyncio.create_task(manifest.update({"outcome": "cancelled at step apply"}))
    on.set()
    await outcome
    assert run.manifest()["plan"] == {}
    assert run.manifest()["outcome"] == "cancelled at step apply"


async def test_what_did_not_fit_on_the_disk_does_not_keep_out_what_does(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = ManifestWriter(run)
    with monkeypatch.context() as full:

        def fail() -> None:
            raise write_error(run.path, OSError(28, ""))

        replacing_by(full, fail)
        with pytest.raises(RunError, match="disk full"):
            await manifest.update({"plan": {}})
    await manifest.update({"outcome": "failed at step apply: disk full"})
    assert run.manifest()["outcome"] == "failed at step apply: disk full"
    assert "plan" not in run.manifest()
