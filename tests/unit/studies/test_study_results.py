# SPDX-License-Identifier: Apache-2.0
"""The results of a study: tables whose numbers are those of its runs, the printed table, the plot."""

import json
import math
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
import pytest

import atoll
from atoll_analysis.figures.run_figures import FIGURES
from atoll_analysis.run_directory import RunDir
from atoll_cli.commands.report import View, report_study
from atoll_core.errors import RunDirError, UsageError
from atoll_dashboards.report.plot_style import image
from atoll_studies.points import make_points
from atoll_studies.results.result_tables import (
    FIGURE_COLUMNS,
    column_name,
    figures_table,
    reserved_columns,
    runs_table,
    write_tables,
)
from atoll_studies.results.results import Sensitivity, read_results
from atoll_studies.statistics.estimates import Limits, coverage
from atoll_studies.study import load_study
from atoll_studies.study_directory import Attempt, StudyDirectory
from atoll_studies.views.plots import figure_plot
from tests.support.sandbox import ATOLL, QUICK
from tests.support.study_runs import HERE, record

SEEDS = 6
INVALID_SEED = 6


def goodput(channels: int, queue: str, seed: int) -> float:
    """A figure in which a seed counts for more than a setting."""
    return 10 * seed + channels / 10 + (0.5 if queue == "60 kB" else 0)


@pytest.fixture
def directory(tmp_path: Path) -> StudyDirectory:
    """A study of four configurations and six seeds; one run is invalid, one is missing, five have caveats."""
    file = tmp_path / "study.yaml"
    file.write_text(
        f"name: made-up\nexperiment: {QUICK}\nrepetitions: {SEEDS}\nfigures: [goodput]\nfactors:\n"
        "  traffic.channels: [5, 50]\n  links.sat.to_island.queue: [30 kB, 60 kB]\n"
    )
    study = load_study(file)
    points = make_points(study)
    found = StudyDirectory(tmp_path / "s")
    found.write(study, points)
    for point in points:
        channels, queue = int(point.levels["traffic.channels"]), point.levels["links.sat.to_island.queue"]
        if (channels, queue, point.seed) == (50, "60 kB", 1):
            continue
        finished = channels == 50 and point.seed > 2
        figures: dict[str, Any] = {"transfer_s": float(point.seed) if finished else None}
        if channels == 50:
            figures |= {"transfer_bytes": 10**6, "transfer_complete": finished, "transfer_room_s": 58.0}
        outcome = "invalid" if (channels, queue, point.seed) == (5, "30 kB", INVALID_SEED) else "valid"
        if (channels, queue) == (5, "60 kB") and point.seed > 1:
            outcome, figures["caveats"] = "valid with caveats", [f"{point.seed} timers were late"]
        record(found, point.id, outcome, goodput=goodput(channels, queue, point.seed), **figures)
    return found


def test_a_figure_of_a_configuration_is_that_of_its_valid_runs(directory: StudyDirectory) -> None:
    results = read_results(directory)
    assert (len(results.runs), results.missing) == (22, 1)  # in virtual time the invalid one would be the same again
    assert [(run.configuration, run.seed, run.verdict) for run in results.uncounted] == [(0, INVALID_SEED, "invalid")]
    found = results.figure_of(0, "goodput")
    assert found is not None
    assert (found.median.runs, found.median.value, min(found.exact_values), max(found.exact_values)) == (
        5,
        30.5,
        10.5,
        50.5,
    )
    assert (found.median.low, found.median.high, found.median.level) == (10.5, 50.5, 0.9375)
    (row,) = (row for row in figures_table(results).iter_rows(named=True) if row["figure"] == "goodput" and
              row["traffic.channels"] == "5" and row["links.sat.to_island.queue"] == "30 kB")  # fmt: skip
    quartile = [row[f"quartile_1{part}"] for part in ("", "_low", "_high", "_level")]
    assert quartile == [20.5, 10.5, 40.5, pytest.approx(coverage(5, 0.25, 1, 4))]
    assert results.figure_of(0, "transfer time") is None
    transfer = results.figure_of(2, "transfer time")
    assert transfer is not None
    assert (transfer.median.runs, len(transfer.exact_values)) == (6, 4)
    assert transfer.median.limits == ((5.5, 5.5), (3, 3), (58, math.inf))


def test_differences_are_taken_within_seeds_and_from_the_baseline(directory: StudyDirectory) -> None:
    results = read_results(directory)
    other = results.figure_of(2, "goodput")  # 50 channels, 30 kB: compared with 5 channels, 30 kB
    assert other is not None
    assert other.difference is not None
    assert other.baseline == 0
    assert other.difference.median.value == pytest.approx(4.5)
    assert (other.difference.median.runs, other.difference.higher) == (5, 5)
    by_queue = read_results(directory, {"links.sat.to_island.queue": "60 kB"})
    lower = by_queue.figure_of(2, "goodput")
    assert lower is not None
    assert lower.difference is not None
    assert lower.baseline == 3
    assert lower.difference.median.value == pytest.approx(-0.5)
    with pytest.raises(UsageError, match="unknown level"):
        read_results(directory, {"traffic.channels": "7"})
    with pytest.raises(UsageError, match="did you mean 'goodput'"):
        read_results(directory, figures=["gootput"])


def test_medians_are_also_given_as_if_no_run_were_left_out(directory: StudyDirectory) -> None:
    results = read_results(directory)
    found = results.figure_of(0, "goodput")
    assert found is not None
    first_attempts = [goodput(5, "30 kB", seed) for seed in range(1, SEEDS + 1)]
    assert found.sensitivity is not None
    assert (found.sensitivity.without, found.sensitivity.first_attempts) == (
        (30.5, 30.5),
        (median(first_attempts),) * 2,
    )
    others = [each.sensitivity for each in results.figures if each.configuration != 0]
    assert others
    assert not any(others)


def test_a_replaced_run_counts_with_its_second_attempt_and_is_compared(
    directory: StudyDirectory,
) -> None:
    (invalid,) = (each for each in directory.study()["points"] if (each["configuration"], each["seed"]) == (0, 6))
    made = directory.working / invalid["id"]
    shutil.copytree(directory.attempts(invalid["id"])[0].path, made)
    RunDir(made).write_summary({**RunDir(made).summary(), "goodput_mbit_s": 1000.0})
    path = directory.point_path(invalid["id"]) / "20260102T030405Z-2"
    directory.add_attempt(made, invalid["id"], Attempt(path, "valid", "", 9.5, HERE))
    found = read_results(directory).figure_of(0, "goodput")
    assert found is not None
    assert (found.median.runs, found.median.value, max(found.exact_values)) == (6, 35.5, 1000.0)
    assert found.sensitivity == Sensitivity(1, Limits(30.5, 30.5), Limits(35.5, 35.5))


@pytest.mark.parametrize("content", ["{}", '{"request": {}}', '{"request": {"network": 1}}'])
def test_a_point_without_a_request_is_one_line(directory: StudyDirectory, content: str) -> None:
    for file in directory.path.glob("points/*/point.json"):
        file.write_text(content)
    with pytest.raises(RunDirError, match=r"/point\.json: damaged \([^\n]+\); remove /[^\n]+$"):
        read_results(directory)


def test_the_largest_flow_is_said(directory: StudyDirectory) -> None:
    results = read_results(directory)
    assert set(results.flow_bounds) == {0, 1, 2, 3}
    (bound,) = set(results.flow_bounds.values())
    assert 0 < bound.largest_bytes < 10**8
    assert 0 < bound.share_of_flows < bound.share_of_bytes < 1


def test_csv_and_parquet_have_the_same_tables(directory: StudyDirectory) -> None:
    results = read_results(directory)
    written = write_tables(results, directory.path)
    assert [path.name for path in written] == ["runs.csv", "runs.parquet", "figures.csv", "figures.parquet"]
    for name in ("runs", "figures"):
        csv = pl.read_csv(directory.path / f"{name}.csv", schema_overrides=dict.fromkeys(results.factors, pl.String))
        parquet = pl.read_parquet(directory.path / f"{name}.parquet")
        assert csv.columns == parquet.columns
        assert csv.select("links.sat.to_island.queue").equals(parquet.select("links.sat.to_island.queue"))
    units = pl.read_parquet_metadata(directory.path / "runs.parquet")
    assert units["unit:goodput_mbit_s"] == "Mbit/s"
    runs = runs_table(results)
    assert runs.height == 22
    assert runs["goodput_mbit_s"].to_list()[:5] == [10.5, 20.5, 30.5, 40.5, 50.5]
    assert set(runs["revision"]) == {"abc"}


def test_the_columns_are_those_that_no_factor_may_have(directory: StudyDirectory) -> None:
    results = read_results(directory)
    runs, figures = runs_table(results), figures_table(results)
    assert {*runs.columns, *figures.columns} - set(results.factors) <= reserved_columns()
    assert figures.columns == [*results.factors, *FIGURE_COLUMNS]
    nothing = figures_table(replace(results, figures=()))
    assert (nothing.columns, nothing.schema) == (figures.columns, figures.schema)


def test_every_figure_has_a_column_of_its_own() -> None:
    names = [column_name(name, unit) for name, (unit, _, _) in FIGURES.items()]
    assert len(set(names)) == len(names)
    assert column_name("goodput", "Mbit/s") == "goodput_mbit_s"
    assert column_name("utilisation", "%") == "utilisation_percent"


def test_a_study_that_is_opened_has_the_same_frames(directory: StudyDirectory) -> None:
    results, study = read_results(directory), atoll.open_study(directory.path)
    assert study.runs().equals(runs_table(results))
    assert study.figures(["goodput"]).equals(figures_table(results).filter(pl.col("figure") == "goodput"))
    assert list(study.open_runs()) == [str(run.path) for run in results.runs]


def test_equal_results_give_equal_plots(directory: StudyDirectory) -> None:
    results = read_results(directory)
    for form in (".svg", ".pdf"):
        assert image(figure_plot(results, "goodput"), form) == image(figure_plot(results, "goodput"), form)
    with pytest.raises(UsageError, match="no run of study made-up measured"):
        figure_plot(results, "UDP jitter")


def test_a_report_says_levels_pairs_and_what_does_not_count(
    directory: StudyDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    report_study(directory.path, View())
    said = capsys.readouterr().out
    assert "93.8 %" in said
    assert "5 of 5 up" in said
    assert f"invalid: 5, 30 kB, seed {INVALID_SEED}: late" in said
    for seed in (2, 3, 4):
        assert f"valid with caveats: 5, 60 kB, seed {seed}: {seed} timers were late" in said
    assert "valid with caveats: 2 more runs; `atoll report RUN` names the caveats" in said
    assert "1 run of the study missing; `atoll sweep STUDY --resume` makes it" in said
    replaced = said[said.index("medians with and without replaced runs") :]
    assert "A  5, 30 kB         1  30.500         30.500              35.500" in replaced
    assert "largest flow that a run can receive: " in said
    assert "-0.0" not in said
    assert "not measured in every run" not in said
    report_study(directory.path, View(["transfer time"]))
    said = capsys.readouterr().out
    assert "a transfer that did not finish counts as longer than the rest of its run" in said
    assert "3.00 to > 58.00" in said
    report_study(directory.path, View(["goodput"], ["traffic.channels=50"], as_json=True))
    answer = json.loads(capsys.readouterr().out)
    assert answer["missing"] == 1
    assert {row["baseline"] for row in answer["figures"]} == {None, "50, 30 kB", "50, 60 kB"}
    with pytest.raises(UsageError, match="FACTOR=LEVEL"):
        report_study(directory.path, View(baseline=["traffic.channels"]))


def test_a_study_that_is_read_only_is_reported_without_tables(tmp_path: Path) -> None:
    """Mounted read-only: root may write what permissions deny."""
    file = tmp_path / "study.yaml"
    file.write_text(f"name: s\nexperiment: {QUICK}\n")
    study, directory = load_study(file), StudyDirectory(tmp_path / "s")
    directory.path.mkdir()
    directory.write(study, make_points(study))
    mounted = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$2" report "$1" --json'
    command = ["unshare", "-Urm", "sh", "-c", mounted, "sh", str(directory.path), str(ATOLL)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"{directory.path}: this user may not write there; the tables are not written\n"
    assert (json.loads(done.stdout)["missing"], json.loads(done.stdout)["written"]) == (1, [])
