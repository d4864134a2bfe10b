# SPDX-License-Identifier: Apache-2.0
"""Results of a study from tables of its runs are those of its directory."""

from pathlib import Path
from typing import Any

import pytest

from atoll_core.errors import DescriptionError, UsageError
from atoll_studies.points import make_points
from atoll_studies.results.result_tables import figures_table, results_json, runs_table
from atoll_studies.results.results import Results, read_results
from atoll_studies.results.run_tables import results_of_tables
from atoll_studies.study import StudyDescription, load_study
from atoll_studies.study_directory import StudyDirectory
from atoll_studies.views.documents import markdown
from tests.support.sandbox import QUICK
from tests.support.study_runs import record

RUNS = 30
STUDY = f"""\
name: tables
experiment: {QUICK}
repetitions: {RUNS}
factors:
  links.sat.to_island.queue: [100 kB, 200 kB]
figures: [transfer time, goodput]
published:
  - figure: transfer time
    value: 12 s
    of: {{links.sat.to_island.queue: 100 kB}}
    source: a paper
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyDescription:
    file = tmp_path_factory.mktemp("study") / "study.yaml"
    file.write_text(STUDY)
    return load_study(file)


@pytest.fixture(scope="module")
def of_directory(study: StudyDescription, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Of runs whose longest transfers do not finish."""
    directory = StudyDirectory(tmp_path_factory.mktemp("directory") / "s")
    points = make_points(study)
    directory.write(study, points)
    for point in points:
        finished = point.seed <= 0.9 * RUNS
        seconds = point.seed / (1 if point.levels["links.sat.to_island.queue"] == "100 kB" else 2)
        figures: dict[str, Any] = {"transfer_complete": finished, "transfer_s": seconds if finished else None}
        record(directory, point.id, "valid", transfer_bytes=10**6, transfer_room_s=150.0, **figures)
    return read_results(directory)


def written(folder: Path, results: Results) -> list[str]:
    """The lines of the table of the runs."""
    runs_table(results).write_csv(folder / "whole.csv")
    return (folder / "whole.csv").read_text().splitlines()


def test_two_parts_of_a_table_give_the_results_of_the_directory(
    study: StudyDescription, of_directory: Results, tmp_path: Path
) -> None:
    header, *rows = written(tmp_path, of_directory)
    parts = [tmp_path / "first.csv", tmp_path / "second.csv"]
    for part, lines in zip(parts, (rows[::2], rows[1::2]), strict=True):
        part.write_text("\n".join([header, *lines, ""]))
    results = results_of_tables(study, parts)
    assert figures_table(results).equals(figures_table(of_directory))
    assert runs_table(results).equals(runs_table(of_directory))
    published, expected = results_json(results)["published"], results_json(of_directory)["published"]
    assert published == expected
    assert expected[0]["runs"] == RUNS
    assert results.missing == 0


def test_a_part_alone_says_how_many_runs_are_missing(
    study: StudyDescription, of_directory: Results, tmp_path: Path
) -> None:
    part = tmp_path / "part.csv"
    part.write_text("\n".join([*written(tmp_path, of_directory)[:11], ""]))
    results = results_of_tables(study, [part])
    assert (len(results.runs), results.missing) == (10, 2 * RUNS - 10)


def test_every_row_that_is_no_run_of_the_study_is_named(
    study: StudyDescription, of_directory: Results, tmp_path: Path
) -> None:
    header, first, *_ = written(tmp_path, of_directory)
    table = tmp_path / "bad.csv"
    rows = [
        first,
        first,
        first.replace("100 kB,1,", "300 kB,1,"),
        first.replace("100 kB,1,", "100 kB,77,"),
        first.replace("valid", "invalid"),
        first.replace("100 kB,1,", "200 kB,1,").replace(",1.0,", ",soon,"),
    ]
    table.write_text("\n".join([header, *rows, ""]))
    with pytest.raises(DescriptionError) as error:
        results_of_tables(study, [table])
    assert [str(each).removeprefix(f"{table}:") for each in error.value.mistakes] == [
        "3: seed 1: a second run of this configuration",
        "4: links.sat.to_island.queue 300 kB: no configuration of study tables",
        "5: seed 77: not of study tables",
        "6: verdict 'invalid': such a run does not count",
        "7: transfer_time_s 'soon': write a number, or nothing",
    ]


def test_a_table_without_the_columns_of_the_study_is_refused(study: StudyDescription, tmp_path: Path) -> None:
    table = tmp_path / "other.csv"
    table.write_text("seed,verdict\n1,valid\n")
    with pytest.raises(DescriptionError, match=r"other.csv:1: no column links.sat.to_island.queue; write the table"):
        results_of_tables(study, [table])
    with pytest.raises(DescriptionError, match=r"none.csv: cannot be read: No such file"):
        results_of_tables(study, [tmp_path / "none.csv"])


def test_repetitions_that_depend_on_runs_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(STUDY.replace(f"repetitions: {RUNS}", "stop: {figure: goodput, half_width: 10 %, max: 30}"))
    with pytest.raises(UsageError, match="'stop' or 'search'"):
        results_of_tables(load_study(file), [tmp_path / "runs.csv"])


def test_the_committed_runs_of_a_published_set_up_are_reported(project: Path) -> None:
    study = load_study(project / "examples/studies/published/transfer-alone.yaml")
    results = results_of_tables(study, [project / "docs/data/transfer-alone.csv"])
    assert results.missing == 0
    assert "transfer time" in markdown(results)
    assert min(each.values[0].least for each in results.figures if each.figure == "transfer time") < 36
