# SPDX-License-Identifier: Apache-2.0
"""A worker refuses to make an attempt that the sweep did not ask for, and leaves nothing."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import atoll_studies.sweeping.live_attempt
import atoll_studies.sweeping.worker
from atoll_core.errors import LabError, RunError
from atoll_studies.points import make_points
from atoll_studies.study import load_study
from atoll_studies.study_directory import Provenance, StudyDirectory
from tests.support.sandbox import QUICK, ROOT


def work(directory: Path, point: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "atoll_studies.sweeping.worker", str(directory), point]
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


def test_a_program_that_was_changed_during_the_sweep_makes_no_attempt(tmp_path: Path) -> None:
    lab = (ROOT / "emulation/labs/island.yaml").read_text()
    relay = "  relay:\n    kind: program\n    forwarding: routed\n    world: sw-c/30\n    island: sw-c/31\n"
    relay += "    program: {start: [python3, relay.py]}\n\ndelay_boxes:"
    (tmp_path / "island.yaml").write_text(lab.replace("delay_boxes:", relay))
    (tmp_path / "relay.py").write_text("print(1)\n")
    (tmp_path / "quick.yaml").write_text(QUICK.read_text().replace("../../emulation/labs/", ""))
    file = tmp_path / "study.yaml"
    file.write_text("name: s\nexperiment: quick.yaml\nplatform: mininet\n")
    study, directory = load_study(file), StudyDirectory(tmp_path / "s")
    (point,) = make_points(study)
    directory.write(study, [point])
    (tmp_path / "relay.py").write_text("print(2)\n")
    done = work(directory.path, point.id)
    assert done.returncode == 1
    assert done.stderr == (f"{tmp_path}/relay.py: changed during the sweep; --resume continues with the changed file\n")
    assert directory.attempts(point.id) == []


def test_an_inventory_is_part_of_the_provenance(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text("1")
    before = atoll_studies.sweeping.worker.provenance("hardware", None, inventory)
    assert atoll_studies.sweeping.worker.provenance("hardware", None, inventory) == before
    inventory.write_text("2")
    after = atoll_studies.sweeping.worker.provenance("hardware", None, inventory)
    assert after != before
    assert f"inventory {after.inventory}" in str(after)
    with pytest.raises(RunError, match="cannot be read: No such file"):
        atoll_studies.sweeping.worker.provenance("hardware", None, tmp_path / "none")


def test_a_run_that_does_not_begin_has_an_exit_code_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object, wait: bool) -> None:
        raise LabError("another run is in progress")

    monkeypatch.setattr(atoll_studies.sweeping.live_attempt, "lab_in_use", refused)
    file = tmp_path / "study.yaml"
    file.write_text(f"name: s\nexperiment: {QUICK}\nplatform: mininet\n")
    study, directory = load_study(file), StudyDirectory(tmp_path / "s")
    (point,) = make_points(study)
    directory.write(study, [point])
    assert asyncio.run(atoll_studies.sweeping.worker._main(directory.path, point.id)) == 75
    assert capsys.readouterr().err == "another run is in progress\n"
    assert directory.attempts(point.id) == []


def test_a_point_that_there_is_not_is_one_line(tmp_path: Path) -> None:
    done = work(tmp_path, "0123456789abcdef")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_provenance_tells_two_builds_of_atoll_host_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: set[str | None] = set()
    for content in ("one", "two", "one"):
        (tmp_path / "atoll-host").write_text(content)
        (tmp_path / "atoll-host").chmod(0o755)
        monkeypatch.setenv("ATOLL_HOST", str(tmp_path / "atoll-host"))
        found.add(atoll_studies.sweeping.worker.provenance("mininet", None).host_program)
    assert len(found) == 2
    assert None not in found
