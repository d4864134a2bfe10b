# SPDX-License-Identifier: Apache-2.0
"""Screening designs are of resolution IV, and main effects are ratios of geometric means."""

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from atoll_core.errors import DescriptionError
from atoll_studies.points import make_points
from atoll_studies.results.effects import MainEffect, effects
from atoll_studies.results.result_tables import results_json
from atoll_studies.results.results import read_results
from atoll_studies.results.similarity import Similarity
from atoll_studies.statistics.estimates import Estimate
from atoll_studies.statistics.screening import is_orthogonal, main_effects, resolution_iv_design
from atoll_studies.study import load_study
from atoll_studies.study_directory import StudyDirectory
from atoll_studies.views.plots import effects_plot, plots
from atoll_studies.views.tables import tables
from tests.support.sandbox import QUICK
from tests.support.study_runs import record

STUDY = f"""\
name: screening
experiment: {QUICK}
repetitions: 3
design: screening
figures: [goodput]
factors:
  tcp.initial_window: [4, 10]
  tcp.pacing: [false, true]
  tcp.hystart: [false, true]
  tcp.quick_ack: [false, true]
"""


@pytest.mark.parametrize("factors", range(1, 18))
def test_no_main_effect_is_confounded_with_an_interaction_of_two_factors(factors: int) -> None:
    signs = 2 * np.array(resolution_iv_design(factors)) - 1
    assert factors <= len(signs) / 2 <= max(1, 2 * (factors - 1))
    assert not signs.sum(axis=0).any()
    columns = signs.T
    assert not any(columns[a] @ columns[b] for a, b in itertools.combinations(range(factors), 2))
    assert not any(
        columns[main] @ (columns[a] * columns[b])
        for a, b in itertools.combinations(range(factors), 2)
        for main in range(factors)
    )


def test_a_design_with_one_combination_less_is_not_orthogonal() -> None:
    design = np.array(resolution_iv_design(4))
    assert is_orthogonal(design)
    assert not is_orthogonal(design[:-1])
    assert not is_orthogonal(design[:, [0, 0]])


def test_effects_of_a_product_are_its_factors_whatever_the_interactions_of_two() -> None:
    design = np.array(resolution_iv_design(4))
    signs = 2 * design - 1
    exact = 5 * 2.0 ** (signs[:, 0] / 2) * 0.5 ** (signs[:, 2] / 2) * 3.0 ** (signs[:, 1] * signs[:, 3])
    ratios = main_effects(design, [list(exact)])
    assert [round(ratio.value, 12) for ratio in ratios] == [2, 1, 0.5, 1]
    assert all((ratio.level, ratio.low) == (0, ratio.value) for ratio in ratios)


@pytest.mark.parametrize("value", [0.3, 5.3])
def test_a_figure_that_is_equal_in_all_runs_has_no_effect(value: float) -> None:
    ratios = main_effects(np.array(resolution_iv_design(4)), [[value] * 8] * 3)
    assert {(ratio.low, ratio.value, ratio.high) for ratio in ratios} == {(1, 1, 1)}


def test_intervals_over_seeds_hold_as_often_as_they_say() -> None:
    random = np.random.default_rng(1)
    design = np.array(resolution_iv_design(3))
    held = 0
    for _ in range(400):
        load = random.normal(0, 1, (5, 1))  # each seed has its own load
        logs = load + math.log(1.5) * design[:, 0] + random.normal(0, 0.2, (5, len(design)))
        effect = main_effects(design, np.exp(logs).tolist())[0]
        held += effect.low <= 1.5 <= effect.high
    assert 0.92 <= held / 400 <= 0.98


def sweep(folder: Path, description: str = STUDY, left_out: int | None = None) -> list[MainEffect]:
    """A study whose goodput doubles with pacing, and falls by a fifth with quick_ack; one seed may be missing."""
    file = folder / "study.yaml"
    file.write_text(description)
    study = load_study(file)
    directory = StudyDirectory(folder / "s")
    points = make_points(study)
    directory.write(study, points)
    for point in points:
        if point.seed == left_out and point.levels["tcp.pacing"] == "true":
            continue
        paced, quick = (point.levels[f"tcp.{name}"] == "true" for name in ("pacing", "quick_ack"))
        record(directory, point.id, "valid", goodput=point.seed * (2.0 if paced else 1.0) * (0.8 if quick else 1.0))
    results = read_results(directory)
    computed = effects(results)
    shown = [table for table in tables(results) if table.title == "main effects"]
    assert sum(len(table.rows) for table in shown) == len(computed) == len(results_json(results)["effects"])
    assert any(name == "main-effects" for _, name, _ in plots(results)) == bool(computed)
    return computed


def test_a_screening_study_has_eight_combinations_and_four_effects(tmp_path: Path) -> None:
    measured = sweep(tmp_path)
    assert [(effect.factor, round(effect.ratio.value, 9), effect.is_significant) for effect in measured] == [
        ("tcp.pacing", 2, True),
        ("tcp.quick_ack", 0.8, True),
        *(((name, 1, False)) for name in ("tcp.initial_window", "tcp.hystart")),
    ]
    assert {effect.ratio.runs for effect in measured} == {3}
    assert len(load_study(tmp_path / "study.yaml").configurations) == 8


def test_the_note_on_screening_designs_is_of_studies_alone(tmp_path: Path) -> None:
    """Any runs may be an orthogonal fraction."""
    sweep(tmp_path)
    study = read_results(StudyDirectory(tmp_path / "s"))
    for results, expected in ((study, True), (replace(study, similarity=Similarity((), (), ())), False)):
        [table] = [table for table in tables(results, each_run=False) if table.title == "main effects"]
        assert ("screening" in table.notes[0]) == expected


def test_a_screening_design_has_no_more_runs_than_any_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atoll_studies.study.MOST_POINTS", 23)
    file = tmp_path / "study.yaml"
    file.write_text(STUDY)
    with pytest.raises(DescriptionError, match=r"study.yaml:6: 24 runs are too many; write at most 23"):
        load_study(file)


def test_factors_that_end_alike_have_their_whole_names_in_the_plot() -> None:
    ratio = Estimate(1.0, 1.0, 1.0, 0.95, 3)
    factors = ("links.sat.to_island.rate", "links.sat.to_world.rate", "tcp.pacing")
    plot = effects_plot([MainEffect("goodput", factor, "1", "2", ratio) for factor in factors])
    assert [label.get_text() for label in plot.axes[0].get_yticklabels()] == [
        "links.sat.to_island.rate: 1 to 2",
        "links.sat.to_world.rate: 1 to 2",
        "pacing: 1 to 2",
    ]


def test_a_seed_without_all_combinations_has_no_effect(tmp_path: Path) -> None:
    assert {effect.ratio.runs for effect in sweep(tmp_path, left_out=2)} == {2}


def test_a_factor_with_three_levels_has_no_main_effect(tmp_path: Path) -> None:
    three = STUDY.replace("design: screening\n", "").replace("[4, 10]", "[4, 7, 10]")
    assert sweep(tmp_path, three) == []


def test_a_screening_design_takes_factors_of_two_levels(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(STUDY.replace("[4, 10]", "[4, 7, 10]").replace("hystart: [false, true]", "hystart: [false]"))
    with pytest.raises(DescriptionError) as refused:
        load_study(file)
    assert [(mistake.line, mistake.message) for mistake in refused.value.mistakes] == [
        (7, "3 levels; a screening design takes two of each factor"),
        (9, "1 level; a screening design takes two of each factor"),
    ]


def test_a_screening_design_needs_factors(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(STUDY.partition("factors:")[0])
    with pytest.raises(DescriptionError, match="needs factors"):
        load_study(file)
