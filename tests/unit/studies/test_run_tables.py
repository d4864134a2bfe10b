# SPDX-License-Identifier: Apache-2.0
"""Results of a study from tables of its runs are those of its directory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis.summary import GroupFigures
from atoll_core.errors import DescriptionError, UsageError
from atoll_studies.points import make_points
from atoll_studies.results.result_tables import figures_table, results_json, runs_table
from atoll_studies.results.results import Results, read_results
from atoll_studies.results.run_tables import results_of_tables
from atoll_studies.study import StudyDescription, load_study
from atoll_studies.study_directory import StudyDirectory
from atoll_studies.views.documents import markdown
from atoll_studies.views.tables import tables
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


def changed(row: str, old: str, new: str) -> str:
    assert old in row
    return row.replace(old, new)


@pytest.mark.parametrize(
    ("rows", "answer"),
    [
        (lambda row: [changed(row, ",1.0,", ",nan,")], "2: transfer_time_s 'nan': write a number, or nothing"),
        (lambda row: [changed(row, ",1.0,", ",-inf,")], "2: transfer_time_s '-inf': write a number, or nothing"),
        (lambda row: [changed(row, ",10.0,", ",soon,")], "2: wall_s 'soon': write a number, or nothing"),
        (lambda row: [changed(row, ",1.0,", ",1,0,")], "2: more than "),
        (lambda row: [changed(row, ",valid,", ',"valid,')], "2: no CSV: "),
        (lambda _: [], "1: no rows; name a table with at least one run of the study"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_read_is_refused_with_its_line(
    study: StudyDescription, of_directory: Results, tmp_path: Path, rows: Callable[[str], list[str]], answer: str
) -> None:
    header, first, *_ = written(tmp_path, of_directory)
    (tmp_path / "bad.csv").write_text("\n".join([header, *rows(first), ""]))
    with pytest.raises(DescriptionError) as error:
        results_of_tables(study, [tmp_path / "bad.csv"])
    (mistake,) = error.value.mistakes
    assert str(mistake).startswith(f"{tmp_path / 'bad.csv'}:{answer}")


def test_a_table_has_no_more_than_it_says(study: StudyDescription, tmp_path: Path) -> None:
    """A byte order mark, as spreadsheets write it, is no part of a name; what has no column is not invented."""
    table = tmp_path / "least.csv"
    table.write_text("\ufefflinks.sat.to_island.queue,seed,verdict,transfer_time_s\r\n100 kB,1,valid,3.5\r\n")
    results = results_of_tables(study, [table])
    (row,) = runs_table(results).to_dicts()
    assert (row["transfer_time_s"], row["seed"]) == (3.5, 1)
    assert not any(row[name] for name in ("run", "platform", "kernel", "revision", "wall_s"))
    assert results_json(results)["runs"][0]["run_dir"] is None
    assert "no row for 59 runs of the study" in markdown(results)


PARTS = f"""\
name: parts
experiment: {QUICK}
repetitions: 3
set:
  traffic.groups: {{near: {{clients: [i1]}}}}
  transfers: {{coded: {{size: 1 MB, start: 1 s}}}}
"""


def test_figures_of_groups_and_named_transfers_and_their_limits_are_read(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(PARTS)
    study = load_study(tmp_path / "study.yaml")
    directory, points = StudyDirectory(tmp_path / "s"), make_points(study)
    directory.write(study, points)
    for point in points:
        finished = point.seed < 3
        transfer: dict[str, Any] = dict.fromkeys(("received_bytes", "seconds", "mbit_s"), 2.0 if finished else None)
        transfer |= {"complete": finished, "bytes": 10**6, "room_s": 60.0}
        group = dict.fromkeys(GroupFigures.__annotations__) | {"channels": 2, "flows_completed": point.seed}
        record(directory, point.id, "valid", transfers={"coded": transfer}, groups={"near": group})
    expected = read_results(directory)
    written(tmp_path, expected)
    results = results_of_tables(study, [tmp_path / "whole.csv"])
    assert figures_table(results).equals(figures_table(expected))
    time = results.figure_of(0, "transfer time of coded")
    assert time is not None
    assert [limits.sign for limits in time.values] == ["=", "=", ">"]
    assert [run.path for run in results.runs] == [path for _, path in expected.directories]
    assert results.directories == []
    assert "transfer time of coded" in results.shown
    assert "flows completed of group near" not in results.shown

    def groups_of(results: Results) -> list[str]:
        return [
            name for each in tables(results) if each.title == "medians by group of clients" for name, _ in each.sections
        ]

    assert groups_of(results) == groups_of(expected) == ["flows completed"]
    assert groups_of(results_of_tables(study, [tmp_path / "whole.csv"], figures=["goodput"])) == []


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
