# SPDX-License-Identifier: Apache-2.0
"""Differences and equivalences of configurations: corrected for the number of tests, the primary figure by itself."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll_core.errors import DescriptionError
from atoll_studies.points import make_points
from atoll_studies.results.conclusions import Conclusion, compared_figures, rests_on_others
from atoll_studies.results.result_tables import results_json
from atoll_studies.results.results import Results, read_results
from atoll_studies.statistics.bisection import QueueSearch
from atoll_studies.statistics.estimates import Limits, paired_differences
from atoll_studies.statistics.sign_tests import difference_p, equivalence_p
from atoll_studies.statistics.stopping import Stop
from atoll_studies.study import load_study
from atoll_studies.study_directory import StudyDirectory
from atoll_studies.views.tables import tables
from tests.support.sandbox import QUICK
from tests.support.study_runs import record

QUEUES = ("30 kB", "60 kB", "90 kB")
PRIMARY = "primary: {figure: goodput, margin: 5 %}\n"


def study_file(folder: Path, keys: str, runs: int) -> Path:
    file = folder / "study.yaml"
    file.write_text(
        f"name: made-up\nexperiment: {QUICK}\nrepetitions: {runs}\nfigures: [goodput, transfer time]\n{keys}"
        f"factors:\n  links.sat.to_island.queue: [{', '.join(QUEUES)}]\n"
    )
    return file


def made_up(folder: Path, keys: str = "", runs: int = 10, **shares: float) -> StudyDirectory:
    """A study whose goodput and transfer times at 60 kB are the baseline's by these factors; at 90 kB noise differs."""
    study = load_study(study_file(folder, keys, runs))
    points, directory = make_points(study), StudyDirectory(folder / "s")
    directory.write(study, points)
    for point in points:
        queue = QUEUES.index(point.levels["links.sat.to_island.queue"])
        noise = 0.01 * (-1) ** point.seed if queue == 2 else 0
        goodput, seconds = (
            (point.seed + 10) * (shares.get(name, 1.0) if queue == 1 else 1 + noise) for name in ("goodput", "transfer")
        )
        figures: dict[str, Any] = {"transfer_complete": True, "transfer_bytes": 10**6, "transfer_room_s": 500.0}
        record(directory, point.id, "valid", goodput=goodput, transfer_s=seconds, **figures)
    return directory


def conclusions(results: Results) -> dict[tuple[str, int], Conclusion]:
    return {(each.figure, each.configuration): each.conclusion for each in compared_figures(results)}


def notes(results: Results) -> str:
    [table] = [table for table in tables(results) if table.title == "conclusions"]
    return "\n".join(table.notes)


def test_a_primary_figure_differs_or_is_equivalent(tmp_path: Path) -> None:
    results = read_results(made_up(tmp_path, PRIMARY, goodput=1.2))
    assert conclusions(results) == {
        ("goodput", 1): Conclusion.DIFFERENT,
        ("goodput", 2): Conclusion.EQUIVALENT,
        ("transfer time", 1): Conclusion.OPEN,
        ("transfer time", 2): Conclusion.OPEN,  # no margin is known for it
    }
    # of ten pairs, all higher: 2 / 2^10, twice for two comparisons
    assert compared_figures(results)[0].difference_p == pytest.approx(4 / 2**10)
    assert "the median deviation from the baseline is below 5 %" in notes(results)
    assert "exploratory" not in notes(results)
    json = results_json(results)
    assert json["primary"] == {"figure": "goodput", "margin": 0.05, "runs_before": 0}
    assert json["conclusions"][0]["conclusion"] == "different"


def test_a_difference_within_the_margin_is_both(tmp_path: Path) -> None:
    assert conclusions(read_results(made_up(tmp_path, PRIMARY, goodput=1.02)))["goodput", 1] is Conclusion.SMALL


def test_results_say_that_conclusions_rest_on_other_figures(tmp_path: Path) -> None:
    results = read_results(made_up(tmp_path, "primary: {figure: goodput}\n", transfer=2))
    assert rests_on_others(compared_figures(results)) == ["transfer time"]
    assert "conclusions rest on transfer time, and are exploratory" in notes(results)


def test_conclusions_rest_on_a_primary_figure_that_is_equivalent(tmp_path: Path) -> None:
    results = read_results(made_up(tmp_path, PRIMARY, transfer=2))
    assert conclusions(results)["transfer time", 1] is Conclusion.DIFFERENT
    assert rests_on_others(compared_figures(results)) == []


def test_figures_that_chose_the_runs_are_not_tested(tmp_path: Path) -> None:
    """The figure of ``stop``, and all figures of a search."""
    results = read_results(made_up(tmp_path, transfer=2))
    stopped = replace(results, stop=Stop("goodput", 0.05, 6, 10, 2))
    assert {each.figure for each in compared_figures(stopped)} == {"transfer time"}
    assert "goodput has no test, since it chose the number of runs" in notes(stopped)
    search = QueueSearch("links.sat.to_island.queue", (30_000, 90_000), ("voice",), 10)
    assert compared_figures(replace(results, search=search)) == []


def test_the_primary_figure_is_corrected_among_its_own_comparisons_alone(tmp_path: Path) -> None:
    """Seven runs are enough for two comparisons, 4 / 2^7, and not for the four of a study without primary figure."""
    results = [
        read_results(made_up(folder, keys, runs=7, goodput=1.2)) for folder, keys in _folders(tmp_path, PRIMARY, "")
    ]
    assert [conclusions(each)["goodput", 1] for each in results] == [Conclusion.DIFFERENT, Conclusion.OPEN]


def _folders(parent: Path, *keys: str) -> list[tuple[Path, str]]:
    folders = [parent / str(number) for number in range(len(keys))]
    for folder in folders:
        folder.mkdir()
    return list(zip(folders, keys, strict=True))


def test_figures_of_the_command_line_do_not_shrink_the_family(tmp_path: Path) -> None:
    directory = made_up(tmp_path, runs=7, goodput=1.2)
    assert conclusions(read_results(directory, figures=["goodput"])) == conclusions(read_results(directory))


def test_a_primary_figure_that_is_named_after_runs_is_said_to_be_so(tmp_path: Path) -> None:
    """Sweeps that follow do not change this."""
    directory = made_up(tmp_path)
    study = load_study(study_file(tmp_path, PRIMARY, 10))
    for _ in range(2):
        directory.write(study, make_points(study))
        text = notes(read_results(directory))
        assert "goodput became the primary figure after 30 runs: conclusions from these are exploratory" in text


def test_an_unknown_primary_figure_is_refused(tmp_path: Path) -> None:
    file = study_file(tmp_path, "primary: {figure: goodputs}\n", 3)
    with pytest.raises(DescriptionError, match=r"study.yaml:5: unknown figure 'goodputs'; did you mean 'goodput'"):
        load_study(file)


SEEDED = st.lists(st.tuples(st.floats(1, 100), st.floats(1, 100)), min_size=1, max_size=30)


@given(SEEDED, st.floats(0.01, 0.5))
def test_equivalence_is_shown_with_a_wider_margin_if_with_a_narrow_one(
    values: list[tuple[float, float]], margin: float
) -> None:
    baseline, other = (dict(enumerate(each)) for each in zip(*values, strict=True))
    narrow, wide = equivalence_p(baseline, other, margin), equivalence_p(baseline, other, 2 * margin)
    assert narrow is not None
    assert wide is not None
    assert 0 < wide <= narrow <= 1


@given(SEEDED)
def test_the_p_value_of_a_difference_does_not_depend_on_its_direction(values: list[tuple[float, float]]) -> None:
    baseline, other = (dict(enumerate(each)) for each in zip(*values, strict=True))
    there, back = paired_differences(baseline, other), paired_differences(other, baseline)
    assert there is not None
    assert back is not None
    assert difference_p(there) == difference_p(back)


def test_a_transfer_that_did_not_finish_counts_against_equivalence() -> None:
    known = dict.fromkeys(range(8), 10.0)
    assert equivalence_p(known, known, 0.1) == 1 / 2**8
    censored = {**known, 0: Limits(10.0, math.inf)}
    assert equivalence_p(known, censored, 0.1) == 9 / 2**8


def test_no_shared_seed_is_no_equivalence() -> None:
    assert equivalence_p({1: 1.0}, {2: 1.0}, 0.1) is None
