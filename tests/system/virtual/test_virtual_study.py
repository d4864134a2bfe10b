# SPDX-License-Identifier: Apache-2.0
"""A small sweep in virtual time: killed in the middle and resumed, it has the runs of one that nobody disturbed."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.killed_sweeps import STUDY, captures, kill_at_random, left_after_death
from tests.support.sandbox import ATOLL, ROOT
from tests.support.virtual_runs import HANGS_S, atoll

pytestmark = pytest.mark.virtual


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a sweep of four runs."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "study.yaml").write_text(STUDY)
    done = atoll(folder, "sweep", "study.yaml", "whole", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["missing"], answer["points"]["done"]) == (0, 4)
    assert all(run["verdict"] != "invalid" for run in answer["runs"])
    return folder / "whole"


def started(folder: Path) -> subprocess.Popen[bytes]:
    """A sweep whose first run is complete and whose next ones are being made."""
    (folder / "study.yaml").write_text(STUDY)
    sweep = subprocess.Popen(
        [ATOLL, "sweep", "study.yaml", "s", "--jobs", "2"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + HANGS_S
    while not (list(folder.glob("s/points/*/*/attempt.json")) and list(folder.glob("s/working/*/*/*/link.jsonl"))):
        assert sweep.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    return sweep


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_sweep_that_is_ended_is_resumed_with_the_same_runs(
    tmp_path: Path, undisturbed: Path, how: signal.Signals
) -> None:
    sweep = started(tmp_path)
    os.kill(sweep.pid, how)
    assert sweep.wait(60) == (130 if how is signal.SIGINT else -how)
    assert left_after_death(tmp_path / "s") == []
    assert (how is signal.SIGKILL) == (tmp_path / "s/working").exists()
    kept = sorted((tmp_path / "s").glob("points/*/*/attempt.json"))
    assert 0 < len(kept) < 4
    times = [path.stat().st_mtime_ns for path in kept]

    refused = atoll(tmp_path, "sweep", "study.yaml", "s")
    assert (refused.returncode, "--resume" in refused.stderr) == (2, True)
    resumed = atoll(tmp_path, "sweep", "study.yaml", "s", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert not (tmp_path / "s/working").exists()
    assert [path.stat().st_mtime_ns for path in kept] == times
    assert captures(tmp_path / "s") == captures(undisturbed)
    assert len(captures(undisturbed)) == 4 * 3


def test_sweeps_that_are_killed_at_random_instants_have_the_same_runs(tmp_path: Path, undisturbed: Path) -> None:
    """Three of them; benchmarks/studies kills twenty."""
    for directory in kill_at_random(tmp_path, 3, 15, random.Random(1)):
        assert captures(directory) == captures(undisturbed)


def test_a_sweep_with_nothing_left_to_do_makes_no_run_and_its_report_is_the_same(undisturbed: Path) -> None:
    before = sorted(undisturbed.glob("points/*/*"))
    tables = {path.name: path.read_bytes() for path in undisturbed.glob("*.csv")}
    done = atoll(undisturbed.parent, "sweep", "study.yaml", undisturbed, "--resume")
    assert done.returncode == 0, done.stderr
    assert sorted(undisturbed.glob("points/*/*")) == before
    plot = undisturbed.parent / "goodput.pdf"
    report = atoll(undisturbed.parent, "report", undisturbed, "--figure", "goodput", "--out", plot)
    assert report.returncode == 0, report.stderr
    assert plot.read_bytes().startswith(b"%PDF")
    assert tables == {path.name: path.read_bytes() for path in undisturbed.glob("*.csv")}
    assert {"runs.csv", "figures.csv"} == set(tables)


@pytest.mark.parametrize("study", sorted((ROOT / "examples/studies").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_dry_run_of_a_study_to_copy_from_lists_its_runs_and_makes_none(tmp_path: Path, study: Path) -> None:
    done = atoll(tmp_path, "sweep", study, "s", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert len(answer["order"]) == answer["runs"] == answer["points"]["waiting"] > 0
    assert list(tmp_path.iterdir()) == []
