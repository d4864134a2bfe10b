# SPDX-License-Identifier: Apache-2.0
"""A study with ``stop``: which points a sweep takes after each look, and what its results say."""

import json
from pathlib import Path

import polars as pl
import pytest

from atoll_analysis.run_directory import RunDir
from atoll_cli.commands.report import View, report_study
from atoll_cli.commands.sweep import SweepProgress
from atoll_core.description.raw_study import MAX_SEED
from atoll_core.errors import DescriptionError
from atoll_studies.points import make_points
from atoll_studies.results.result_tables import figures_table, runs_table, units_of
from atoll_studies.results.results import read_results
from atoll_studies.statistics.stopping import Reason
from atoll_studies.study import StudyDescription, load_study
from atoll_studies.study_directory import StudyDirectory
from atoll_studies.sweeping.sweep import State, Sweep
from tests.support.sandbox import QUICK
from tests.support.study_runs import HERE, record
from tests.unit.studies.test_warm_up import run as series

TEXT = (
    f"name: s\nexperiment: {QUICK}\nfigures: [goodput]\nfactors: {{traffic.channels: [5, 50]}}\n"
    "stop: {figure: goodput, half_width: 5 %, max: 12}\n"
)


def study(folder: Path, text: str = TEXT) -> StudyDescription:
    (folder / "study.yaml").write_text(text)
    return load_study(folder / "study.yaml")


def made(study: StudyDescription, directory: StudyDirectory, repetitions: int) -> Sweep:
    """A sweep whose first repetitions are recorded: narrow with 5 channels, wide with 50."""
    points = make_points(study)
    directory.write(study, points)
    for point in points:
        if point.repetition < repetitions and not directory.attempts(point.id):
            spread = 0.1 if point.levels["traffic.channels"] == "5" else 5
            record(directory, point.id, "valid", HERE, 10 + spread * (-1) ** point.repetition)
    found = Sweep(study, directory)
    found.origin = HERE
    found.read(resume=True, mix=False)
    return found


def waiting(sweep: Sweep, channels: str) -> list[int]:
    """The repetitions that a configuration waits for."""
    points = (each for each in sweep.points.values() if each.state is State.WAITING)
    return sorted(each.point.repetition for each in points if each.point.levels["traffic.channels"] == channels)


def test_only_combinations_that_are_not_known_well_enough_get_more_repetitions(tmp_path: Path) -> None:
    described, directory = study(tmp_path), StudyDirectory(tmp_path / "s")
    begun = made(described, directory, 0)
    assert (waiting(begun, "5"), waiting(begun, "50")) == ([*range(6)], [*range(6)])
    assert (begun.predict(1).runs, begun.predict(1, at_most=True).runs, begun.needed_runs) == (12, 24, 12)
    first = made(described, directory, 6)  # at 6 of 12 no interval has its level yet
    assert (waiting(first, "5"), waiting(first, "50")) == ([6, 7], [6, 7])
    second = made(described, directory, 8)
    assert (waiting(second, "5"), waiting(second, "50")) == ([], [8, 9])
    assert second.counts()[State.OPTIONAL] == 4 + 2


def test_results_say_why_a_combination_has_its_repetitions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = StudyDirectory(tmp_path / "s")
    made(study(tmp_path), directory, 8)
    assert [each.reason for each in read_results(directory).stops.values()] == [Reason.REACHED, Reason.OPEN]
    assert read_results(directory).missing == 2
    made(study(tmp_path), directory, 12)
    results = read_results(directory)
    assert [(each.repetitions, each.reason) for each in results.stops.values()] == [
        (8, Reason.REACHED),
        (12, Reason.MOST),
    ]
    assert [len(results.values(number, "goodput")) for number in (0, 1)] == [8, 12]
    assert results.missing == 0
    report_study(directory.path, View())
    said = " ".join(capsys.readouterr().out.split())
    assert "repetitions until the half width of goodput is at most 5 %" in said
    assert "A 5 half width reached 8 1.0 %" in said
    assert "B 50 most repetitions made 12 50.0 %" in said
    report_study(directory.path, View(as_json=True))
    answer = json.loads(capsys.readouterr().out)
    assert [each["reason"] for each in answer["stop"]] == ["half width reached", "most repetitions made"]
    assert [row["stopped"] for row in answer["figures"] if row["figure"] == "goodput"] == [
        "half width reached",
        "most repetitions made",
    ]


def test_tables_have_the_control_of_each_run_and_why_a_mean_is_not_corrected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    described, directory = study(tmp_path, f"{TEXT}control: {{flows: 5}}\n"), StudyDirectory(tmp_path / "s")
    made(described, directory, 12)
    results = read_results(directory)
    assert described.control is not None
    known = [
        described.control.of_run(described.configurations[run.configuration].experiment.traffic, run.seed)
        for run in results.runs
    ]
    assert [run.first_flows_bytes for run in results.runs] == known
    table = runs_table(results)
    assert sorted(table["first_flows_mean_bytes"]) == sorted(known)
    assert units_of(table, results.figure_names)["unit:first_flows_mean_bytes"] == "bytes"
    rows = figures_table(results).filter(pl.col("figure") == "goodput")
    assert rows["controlled"].to_list() == [None, None]
    assert all(abs(each) <= 1 for each in rows["control_correlation"])
    report_study(directory.path, View())
    said = capsys.readouterr().out
    assert "means with control variate" in said
    assert "fewer than 20 runs" in said


def test_progress_counts_the_runs_that_are_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = made(study(tmp_path), StudyDirectory(tmp_path / "s"), 8)
    SweepProgress(sweep, 1)
    sweep.on_change(next(iter(sweep.points.values())))
    assert "16 of 18 runs done, 6 more if needed" in capsys.readouterr().err


def test_mistakes_of_stop_warm_up_and_control_have_their_lines(tmp_path: Path) -> None:
    head = f"name: s\nexperiment: {QUICK}\n"
    with pytest.raises(DescriptionError) as refused:
        study(
            tmp_path,
            f"{head}repetitions: 6\nwarm_up: mser\ncontrol: {{flows: 0}}\n"
            "stop:\n  figure: gootput\n  half_width: 5\n  min: 9\n  max: 8\n",
        )
    assert [each.line for each in refused.value.mistakes] == [4, 5, 8]
    with pytest.raises(DescriptionError) as refused:
        study(
            tmp_path,
            f"{head}repetitions: 6\nstop:\n  figure: gootput\n  half_width: 5 %\n  min: 9\n  max: 8\n",
        )
    found = {each.line: each.message for each in refused.value.mistakes}
    assert sorted(found) == [3, 5, 7]
    assert "did you mean 'goodput'" in found[5]
    for warm_up in ("2 s", "1.96 s"):  # that are counted in windows of 100 ms
        with pytest.raises(DescriptionError, match=rf"study.yaml:3: {warm_up} leaves less than 100 ms of the duration"):
            study(tmp_path, f"{head}warm_up: {warm_up}\n")
    quick = QUICK.read_text().replace("../../emulation", str(QUICK.parents[2] / "emulation"))
    (tmp_path / "last.yaml").write_text(f"{quick}seed: {MAX_SEED}\n")
    with pytest.raises(DescriptionError, match=r"study.yaml:5: seeds from .* write a smaller max"):
        study(tmp_path, "name: s\nexperiment: last.yaml\nstop:\n  {figure: goodput, half_width: 5 %,\n  max: 8}\n")


def with_tables(directory: StudyDirectory, point: str, goodput: list[int], outcome: str = "valid") -> None:
    """Record an attempt whose tables have this payload in each 100 ms."""
    record(directory, point, outcome, HERE, 1.0)
    path = directory.attempts(point)[-1].path
    summary = RunDir(path).summary()
    series(path, goodput)
    RunDir(path).write_summary({**summary, **RunDir(path).summary()})


def test_an_invalid_run_that_is_shorter_than_the_warm_up_fails_no_report(tmp_path: Path) -> None:
    described = study(tmp_path, f"name: s\nexperiment: {QUICK}\nwarm_up: 1 s\nseeds: [1, 2, 3]\n")
    directory, points = StudyDirectory(tmp_path / "s"), make_points(described)
    directory.write(described, points)
    with_tables(directory, points[0].id, [1000] * 20)
    with_tables(directory, points[1].id, [1000] * 5, "invalid")
    record(directory, points[2].id, "failed", HERE, 1.0)  # with a summary, without tables
    bare = directory.attempts(points[2].id)[0].path
    RunDir(bare).write_manifest(RunDir(directory.attempts(points[0].id)[0].path).manifest())
    results = read_results(directory)
    assert [run.figures["goodput"] for run in results.all_runs] == [pytest.approx(0.08), None, None]
    assert results.missing == 1  # in virtual time the invalid run would be the same


def test_no_look_takes_place_before_all_runs_that_decide_on_the_warm_up(tmp_path: Path) -> None:
    """After an interruption with six runs of A and none of B, A is looked at with the warm-up of both."""
    text = TEXT.replace("max: 12", "max: 6") + "warm_up: mser-5\n"
    described, directory = study(tmp_path, text), StudyDirectory(tmp_path / "s")
    points = make_points(described)
    directory.write(described, points)
    for point in (each for each in points if each.levels["traffic.channels"] == "5"):
        with_tables(directory, point.id, [1000] * 200)
    assert [each.reason for each in read_results(directory).stops.values()] == [Reason.OPEN] * 2
    for point in (each for each in points if each.levels["traffic.channels"] == "50"):
        with_tables(directory, point.id, [500] * 50 + [1000] * 150)
    results = read_results(directory)
    assert results.warm_up.seconds == 5
    assert [each.reason for each in results.stops.values()] == [Reason.REACHED] * 2


def test_results_take_no_look_that_the_sweep_does_not_take(tmp_path: Path) -> None:
    """A failed run is made again, so a look after it waits, though later runs of the same block are there."""
    described, directory = study(tmp_path), StudyDirectory(tmp_path / "s")
    points = [each for each in make_points(described) if each.levels["traffic.channels"] == "5"]
    directory.write(described, make_points(described))
    for point in points[:8]:
        record(
            directory,
            point.id,
            "failed" if point.repetition == 6 else "valid",
            HERE,
            10 + 0.1 * (-1) ** point.repetition,
        )
    for tries in (1, 2, 3):
        sweep = Sweep(described, directory)
        sweep.origin = HERE
        sweep.read(resume=True, mix=False)
        decision = read_results(directory).stops[0]
        open_ = tries < 3
        assert (sweep.points[points[6].id].state is State.WAITING) == open_
        assert (decision.estimate is not None and decision.estimate.runs == 7) == (not open_)
        record(directory, points[6].id, "failed")
