# SPDX-License-Identifier: Apache-2.0
"""Experiments run by `import atoll`: the examples, events in their order, cancellation."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import atoll
from tests.support.sandbox import QUICK
from tests.support.virtual_runs import HANGS_S

pytestmark = pytest.mark.virtual


def example(project: Path, name: str, *words: str | Path) -> str:
    """What an example prints."""
    command = [sys.executable, project / "examples/scripts" / name, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_compares_congestion_controls(project: Path, tmp_path: Path) -> None:
    printed = example(project, "compare_controls.py", tmp_path, "8 s")
    assert [line.split(":")[0] for line in printed.splitlines()[:2]] == ["cubic", "bbr"]
    controls = [atoll.open_run(path).experiment.tcp.congestion_control for path in sorted((tmp_path / "geo").iterdir())]
    assert controls == ["cubic", "bbr"]


def test_the_example_ends_a_run_whose_queue_was_full(project: Path, tmp_path: Path) -> None:
    assert "the queue of sat has dropped packets" in example(project, "follow_run.py", tmp_path)
    [path] = (tmp_path / "geo").iterdir()
    assert atoll.open_run(path).manifest["outcome"] == "cancelled at step measure"


def test_two_runs_at_once_have_their_own_events_and_results(tmp_path: Path) -> None:
    each = [atoll.start(QUICK, settings={"seed": seed, "duration": "4 s"}, runs=tmp_path) for seed in (1, 2)]
    steps = [[event["step"] for event in running if event["type"] == "step"] for running in each]
    assert steps[0] == steps[1]
    assert (steps[0][0], steps[0][-1]) == ("apply", "analyse")
    runs = [running.result() for running in each]
    assert [run.summary["seed"] for run in runs] == [1, 2]
    assert {run.verdict for run in runs} == {"valid"}


def test_a_cancelled_run_leaves_no_process(tmp_path: Path) -> None:
    with atoll.start(QUICK, settings={"duration": "600 s"}, runs=tmp_path) as running:
        next(event for event in running if event["type"] == "live")
    with pytest.raises(atoll.AtollError, match="the run was cancelled; its data are in"):
        running.result()
    time.sleep(0.2)
    assert not [pid for pid in Path("/proc").iterdir() if pid.name.isdigit() and str(tmp_path) in _command(pid)]


def _command(process: Path) -> str:
    try:
        return os.fsdecode((process / "cmdline").read_bytes())
    except OSError:
        return ""
