# SPDX-License-Identifier: Apache-2.0
"""What a sweep sends to a cluster, and what it takes back."""

import asyncio
import hashlib
import io
import json
import tarfile
import threading
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from atoll_core.errors import RunError, UsageError
from atoll_studies.points import make_points
from atoll_studies.study import load_study
from atoll_studies.study_directory import Provenance, StudyDirectory
from atoll_studies.sweeping.cluster import _run_to_the_end, require_address
from atoll_studies.sweeping.remote_attempt import AttemptResult, _pack, make_attempt, read_inputs, unpack
from atoll_studies.sweeping.sweep import Sweep
from tests.support.sandbox import QUICK


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:8786", "tcp://localhost:1", "tcp://[::1]:8786", "tls://far:8786"])
def test_an_address_of_this_machine_or_with_tls_is_taken(address: str) -> None:
    require_address(address)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("tcp://far:8786", "TLS is required; write tls://"),
        ("tcp://10.0.0.1:8786", "TLS is required"),
        ("tcp://127.0.0.1.example:8786", "TLS is required"),
        ("127.0.0.1:8786", "not an address; write tls://HOST:PORT"),
        ("http://127.0.0.1:8786", "not an address"),
        ("tls://far", "not an address"),
        ("tls://far:port", "not an address"),
    ],
)
def test_another_address_is_refused(address: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        require_address(address)


def test_work_in_a_thread_ends_before_its_cancellation_does() -> None:
    """Ctrl-C while an attempt is added: the directory in which it is unpacked is not removed meanwhile."""
    begun, may_end, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert may_end.wait(60)
        done.set()

    async def cancelled() -> None:
        task = asyncio.create_task(_run_to_the_end(work))
        await asyncio.to_thread(begun.wait, 60)
        for _ in range(2):  # a second Ctrl-C, too
            task.cancel()
            finished, _ = await asyncio.wait({task}, timeout=0.05)
            assert not finished
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done.is_set()

    asyncio.run(cancelled())


ATTEMPT = {"outcome": "valid", "message": "", "wall_s": 1.0, "provenance": asdict(Provenance("a", "mininet", "6.1.0"))}


def swept(tmp_path: Path, platform: str) -> tuple[StudyDirectory, str]:
    """The directory of a study of one point, and the point's id."""
    file = tmp_path / "study.yaml"
    file.write_text(f"name: s\nexperiment: {QUICK}\nplatform: {platform}\n")
    study, directory = load_study(file), StudyDirectory(tmp_path / "s")
    (point,) = make_points(study)
    directory.write(study, [point], Provenance("another", platform, "6.1.0"))
    return directory, point.id


def test_only_virtual_runs_are_made_elsewhere(tmp_path: Path) -> None:
    directory, _ = swept(tmp_path, "mininet")
    study = load_study(tmp_path / "study.yaml")
    with pytest.raises(UsageError, match="runs on mininet are made on this machine"):
        Sweep(study, directory, scheduler="tcp://127.0.0.1:1")


def test_a_worker_with_another_atoll_makes_no_attempt_and_leaves_nothing(tmp_path: Path) -> None:
    own = tmp_path / "worker"
    own.mkdir()
    result = make_attempt(read_inputs(*swept(tmp_path, "mininet")), own)
    assert (result.archive, result.exit_code) == (b"", 1)
    assert "changed during the sweep, from atoll another on mininet" in result.message
    assert list(own.iterdir()) == []


def test_an_attempt_that_was_added_comes_back_though_its_process_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of setpriv and the process that it starts: a script that adds an attempt, and is killed."""
    made = '"$6/points/$7/20260102T030405Z-1"'
    script = tmp_path / "bin/setpriv"
    script.parent.mkdir()
    script.write_text(
        f"#!/bin/sh\nmkdir {made}\nprintf '%s' '{json.dumps(ATTEMPT)}' > {made}/attempt.json\nkill -9 $$\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent), prepend=":")
    result = make_attempt(read_inputs(*swept(tmp_path, "mininet")), tmp_path)
    assert result.exit_code == 0
    assert json.loads((unpack(result, tmp_path / "there") / "attempt.json").read_text()) == ATTEMPT


def test_an_archive_that_was_damaged_is_refused(tmp_path: Path) -> None:
    made = tmp_path / "20260102T030405Z-1"
    made.mkdir()
    (made / "attempt.json").write_text("{}")
    archive = _pack(made)
    whole = AttemptResult(archive, hashlib.sha256(archive).hexdigest(), 0, "")
    assert (unpack(whole, tmp_path / "there") / "attempt.json").read_text() == "{}"
    with pytest.raises(RunError, match="its SHA-256 differs"):
        unpack(replace(whole, archive=archive[:-1] + b"x"), tmp_path / "other")


@pytest.mark.parametrize("name", ["../outside", "/outside"])
def test_an_archive_that_leads_out_of_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    content = packed.getvalue()
    with pytest.raises(RunError, match="outside the run"):
        unpack(AttemptResult(content, hashlib.sha256(content).hexdigest(), 0, ""), tmp_path / "there")
    assert not (tmp_path / "outside").exists()
