# SPDX-License-Identifier: Apache-2.0
"""Published figures are compared with the distribution of the runs: quantile, central range, agreement."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atoll_core.errors import DescriptionError
from atoll_studies.points import make_points
from atoll_studies.results.agreement import Comparison, PublishedAgreement, comparisons
from atoll_studies.results.result_tables import results_json
from atoll_studies.results.results import read_results
from atoll_studies.study import load_study
from atoll_studies.study_directory import StudyDirectory
from atoll_studies.views.tables import tables
from tests.support.sandbox import QUICK
from tests.support.study_runs import record

RUNS = 100
STUDY = f"""\
name: published
experiment: {QUICK}
repetitions: {RUNS}
factors:
  links.sat.to_island.queue: [100 kB, 200 kB]
published:
"""
SMALL = "of: {links.sat.to_island.queue: 100 kB}"
LARGE = "of: {links.sat.to_island.queue: 200 kB}, relative_to: {links.sat.to_island.queue: 100 kB}"


def compared(folder: Path, *published: str, unfinished: int = 0, runs: int = RUNS) -> list[Comparison]:
    """Comparisons with transfers of 1 s to 100 s at 100 kB, half as long at 200 kB; the longest ones do not finish."""
    folder.mkdir(exist_ok=True)
    file = folder / "study.yaml"
    file.write_text(STUDY + "".join(f"  - {{figure: transfer time, {each}, source: a paper}}\n" for each in published))
    study = load_study(file)
    directory = StudyDirectory(folder / "s")
    points = make_points(study)
    directory.write(study, points)
    for point in points:
        if point.seed > runs:
            continue
        finished = point.seed <= RUNS - unfinished
        seconds = point.seed / (1 if point.levels["links.sat.to_island.queue"] == "100 kB" else 2)
        figures: dict[str, Any] = {"transfer_complete": finished, "transfer_s": seconds if finished else None}
        record(directory, point.id, "valid", transfer_bytes=10**6, transfer_room_s=150.0, **figures)
    results = read_results(directory)
    [shown] = [table for table in tables(results) if table.title == "published figures"]
    found = list(comparisons(results))
    assert len(shown.rows) == len(found) == len(results_json(results)["published"])
    return found


def test_a_value_inside_the_central_range_agrees(tmp_path: Path) -> None:
    values = ("30 s", "97.5 s", "above 90 s", "above 99 s", "below 50 s")
    found = compared(tmp_path, *(f"value: {value}, {SMALL}" for value in values))
    # Of five figures each may be outside with 2 %: at 1 s and 100 s alone of 100 runs.
    assert [(each.quantile, each.agreement) for each in found] == [
        (0.295, PublishedAgreement.AGREES),
        (0.97, PublishedAgreement.AGREES),
        (0.895, PublishedAgreement.AGREES),
        (0.985, PublishedAgreement.DIFFERS),
        (0.495, PublishedAgreement.AGREES),
    ]
    assert {(each.configuration, each.runs) for each in found} == {(0, RUNS)}


def test_one_figure_alone_may_be_outside_with_a_tenth(tmp_path: Path) -> None:
    [one] = compared(tmp_path, f"value: 97.5 s, {SMALL}")
    assert one.agreement is PublishedAgreement.DIFFERS
    assert (one.low, one.median, one.high) == ((6, 6), (51, 51), (95, 95))


def test_a_ratio_of_equal_seeds_may_agree_in_direction_alone(tmp_path: Path) -> None:
    half, third, twice = compared(tmp_path, *(f"value: {value}, {LARGE}" for value in ("0.5", "0.33", "2")))
    assert (half.agreement, half.median, half.configuration) == (PublishedAgreement.AGREES, (0.5, 0.5), 1)
    [alone] = compared(tmp_path / "alone", f"value: 0.5, {LARGE.partition(', ')[2]}")
    assert alone.configuration == 1  # the other one is what it is relative to
    assert (third.agreement, twice.agreement) == (PublishedAgreement.DIRECTION_ONLY, PublishedAgreement.DIFFERS)


def test_what_unfinished_transfers_hide_cannot_be_known(tmp_path: Path) -> None:
    """Those take longer than 150 s: a published value below that has its quantile, one above has none."""
    below, above = compared(tmp_path, f"value: 60 s, {SMALL}", f"value: 200 s, {SMALL}", unfinished=20)
    assert (below.quantile, below.agreement) == (0.595, PublishedAgreement.AGREES)
    assert (above.quantile, above.agreement) == (None, PublishedAgreement.UNKNOWN)


def test_a_ratio_to_a_configuration_without_runs_cannot_be_known(tmp_path: Path) -> None:
    compared(tmp_path, f"value: 0.5, {LARGE}")
    results = read_results(StudyDirectory(tmp_path / "s"))
    other = {"links.sat.to_island.queue": "50 kB"}
    [one] = comparisons(replace(results, configurations=(other, *results.configurations[1:])))
    assert (one.runs, one.agreement) == (0, PublishedAgreement.UNKNOWN)


def test_a_screening_design_has_no_published_ratios(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    published = f"  - {{figure: transfer time, value: 0.5, {LARGE}, source: a paper}}\n"
    file.write_text(f"{STUDY}{published}design: screening\n")
    with pytest.raises(DescriptionError, match=r"study.yaml:7: a screening design does not have the runs of both"):
        load_study(file)


def test_few_runs_know_nothing(tmp_path: Path) -> None:
    [one] = compared(tmp_path, f"value: 500 s, {SMALL}", runs=19)
    assert (one.runs, one.agreement) == (19, PublishedAgreement.UNKNOWN)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "figure: transfer, value: 41 s",
            "unknown figure 'transfer'; did you mean 'transfer received', 'transfer time'",
        ),
        ("figure: transfer time, value: 41", "'41' is no value of transfer time; write 41 s, or above 41 s"),
        ("figure: transfer time, value: 41 ms", "'41 ms' is no value of transfer time; write 41 s, or above 41 s"),
        (f"figure: transfer time, {LARGE}, value: 41 s", "'41 s' is no ratio of transfer time; write 41"),
        ("figure: transfer time, value: 41 s, of: {queue: 1 kB}", "unknown factor 'queue'"),
        ("figure: transfer time, value: 41 s, of: {links.sat.to_island.queue: 1 kB}", "unknown level '1 kB'"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, row: str, message: str) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(f"{STUDY}  - {{{row}, source: a paper}}\n")
    with pytest.raises(DescriptionError) as refused:
        load_study(file)
    [mistake] = refused.value.mistakes
    assert mistake.line == 7
    assert message in mistake.message
