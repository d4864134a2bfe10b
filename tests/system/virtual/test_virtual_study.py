# SPDX-License-Identifier: Apache-2.0
"""A small sweep in virtual time: killed in the middle and resumed, it has the runs of one that nobody disturbed."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from atoll_core.experiment.flow_sizes import published
from atoll_studies.statistics.flow_sample import first_sizes
from atoll_studies.statistics.warm_up import trimmed_figures
from tests.support.killed_sweeps import STUDY, captures, kill_at_random, left_after_death
from tests.support.sandbox import ATOLL, QUICK, ROOT
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


@pytest.mark.parametrize("study", sorted((ROOT / "examples/studies").rglob("*.yaml")), ids=lambda path: path.stem)
def test_a_dry_run_of_a_study_to_copy_from_lists_its_runs_and_makes_none(
    tmp_path: Path, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks for the programs of boxes; PEPsal need not be here."""
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{ROOT / 'tests/guests/as_pepsal'}")
    done = atoll(tmp_path, "sweep", study, "s", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert len(answer["order"]) == answer["runs"] == answer["points"]["waiting"] > 0
    assert list(tmp_path.iterdir()) == []


STOPPED = (
    f"name: known\nexperiment: {QUICK}\nwarm_up: 500 ms\ncontrol: {{flows: 5}}\n"
    "stop: {figure: flows completed, half_width: WIDTH, max: 8}\n"
)


def swept(folder: Path, half_width: str) -> tuple[list[tuple[int, str]], list[Path]]:
    """Sweep until the interval of goodput is narrow; returns repetitions and why they are enough, and the attempts."""
    (folder / "study.yaml").write_text(STOPPED.replace("WIDTH", half_width))
    done = atoll(folder, "sweep", "study.yaml", "s", "--json", "--resume")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["missing"] == 0
    attempts = [path.parent for path in (folder / "s").glob("points/*/*/attempt.json")]
    return [(each["repetitions"], each["reason"]) for each in answer["stop"]], attempts


def test_a_sweep_stops_when_the_interval_is_narrow_and_continues_for_a_narrower_one(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STOPPED.replace("WIDTH", "100 %"))
    predicted = atoll(tmp_path, "sweep", "study.yaml", "s", "--dry-run")
    assert "6 to 8 runs" in predicted.stdout
    stops, attempts = swept(tmp_path, "100 %")
    assert (stops, len(attempts)) == ([(6, "half width reached")], 6)
    stops, attempts = swept(tmp_path, "0.1 %")
    assert (stops, len(attempts)) == ([(8, "most repetitions made")], 8)
    rows = {row["run"]: row for row in pl.read_csv(tmp_path / "s/runs.csv").iter_rows(named=True)}
    for path in attempts:
        figures_are_those_of_the_rest_of_the_run(path, rows[str(path)])
        drawn_sizes_are_those_of_the_run(path)


def figures_are_those_of_the_rest_of_the_run(path: Path, row: dict[str, Any]) -> None:
    """Hold figures without a warm-up against the summary, and the row of the table against those without it."""
    summary = json.loads((path / "summary.json").read_text())
    whole, rest = trimmed_figures(path, 0.0), trimmed_figures(path, 0.5)
    assert whole["goodput"] == pytest.approx(summary["goodput_mbit_s"], rel=0.02)
    assert whole["throughput"] == pytest.approx(summary["throughput_mbit_s"], rel=0.02)
    assert whole["utilisation"] == pytest.approx(100 * summary["utilisation"], rel=0.02)
    assert row["goodput_mbit_s"] == rest["goodput"] != whole["goodput"]


def drawn_sizes_are_those_of_the_run(path: Path) -> None:
    """Hold the sizes behind the control variate against those that the run's channels asked for."""
    summary = json.loads((path / "summary.json").read_text())
    drawn = first_sizes(published(), summary["seed"], summary["channels"], 5)
    began = pl.read_parquet(path / "tables/channel_flows.parquet").filter(pl.col("flow") < 5)
    assert began.height >= summary["channels"]
    for channel, flow, size in began.select("channel", "flow", "size_bytes").iter_rows():
        assert size == pytest.approx(drawn[channel][flow], abs=1)


def test_a_factor_of_the_lab_is_in_effect(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(
        f"name: delays\nexperiment: {QUICK}\nfactors: {{lab.delay_boxes.delay.classes.rtt-200.rtt: [100 ms, 200 ms]}}\n"
    )
    done = atoll(tmp_path, "sweep", "study.yaml", "s")
    assert done.returncode == 0, done.stderr
    summaries = [json.loads(path.read_text()) for path in (tmp_path / "s").glob("points/*/*/summary.json")]
    assert sorted(round(each["terrestrial_rtt_ms"]["w1"]["measured"]) for each in summaries) == [100, 200]


def test_a_search_makes_the_runs_that_decide_and_a_second_sweep_makes_none(
    tmp_path: Path,
) -> None:
    """Two seconds measure little, so that voice decides: at 4 Mbit/s, 195 kB delay it by 390 ms."""
    (tmp_path / "study.yaml").write_text(
        f"name: queues\nexperiment: {QUICK}\nrepetitions: 3\n"
        "set: {links.sat.to_island.rate: 4 Mbit/s, ping.interval: 50 ms}\n"
        "search: {over: links.sat.to_island.queue, from: 2 kB, to: 242 kB, resolution: 80 kB, for: [voice]}\n"
    )
    predicted = json.loads(atoll(tmp_path, "sweep", "study.yaml", "s", "--dry-run", "--json").stdout)
    done = atoll(tmp_path, "sweep", "study.yaml", "s", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    (found,) = answer["searches"]
    assert (found["outcome"], found["best_bytes"]) == ("found", 2_000)
    assert [(step["capacity"], step["repetitions"]) for step in found["steps"]] == [(242_000, 3), (2_000, 3)]
    assert (found["runs"], predicted["runs"]) == (6, 3)
    assert predicted["most"]["runs"] >= 6
    again = atoll(tmp_path, "sweep", "study.yaml", "s", "--json", "--resume")
    assert json.loads(again.stdout)["searches"] == answer["searches"]
    assert len(list((tmp_path / "s").glob("points/*/*/attempt.json"))) == 6
