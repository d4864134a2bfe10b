# SPDX-License-Identifier: Apache-2.0
"""A worker refuses to make an attempt that the sweep did not ask for, and leaves nothing."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import atoll_studies.live_attempt
import atoll_studies.worker
from atoll_core.errors import LabError
from atoll_studies.points import make_points
from atoll_studies.study import load_study
from atoll_studies.study_directory import Provenance, StudyDirectory
from tests.support.sandbox import QUICK


def work(directory: Path, point: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "atoll_studies.worker", str(directory), point]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_an_atoll_that_was_changed_during_the_sweep_makes_no_attempt(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(f"name: s\nexperiment: {QUICK}\nplatform: mininet\n")
    study, directory = load_study(file), StudyDirectory(tmp_path / "s")
    (point,) = make_points(study)
    directory.write(study, [point], Provenance("another", "mininet", "6.1.0"))
    done = work(directory.path, point.id)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "changed during the sweep, from atoll another on mininet, Linux 6.1.0 to atoll " in line
    assert directory.attempts(point.id) == []
    assert not directory.working.exists()


def test_a_run_that_does_not_begin_has_an_exit_code_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object, wait: bool) -> None:
        raise LabError("another run is in progress")

    monkeypatch.setattr(atoll_studies.live_attempt, "lab_in_use", refused)
    file = tmp_path / "study.yaml"
    file.write_text(f"name: s\nexperiment: {QUICK}\nplatform: mininet\n")
    study, directory = load_study(file), StudyDirectory(tmp_path / "s")
    (point,) = make_points(study)
    directory.write(study, [point])
    assert asyncio.run(atoll_studies.worker._main(directory.path, point.id)) == 75
    assert capsys.readouterr().err == "another run is in progress\n"
    assert directory.attempts(point.id) == []


def test_a_point_that_there_is_not_is_one_line(tmp_path: Path) -> None:
    done = work(tmp_path, "0123456789abcdef")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
