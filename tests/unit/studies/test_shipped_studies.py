# SPDX-License-Identifier: Apache-2.0
"""The studies of examples/studies can be swept: their runs, and what these take."""

from pathlib import Path

import pytest

from atoll_analysis.figures.run_figures import FIGURES
from atoll_studies.results.result_tables import columns
from atoll_studies.study import load_study
from atoll_studies.study_directory import StudyDirectory
from atoll_studies.sweeping.sweep import Sweep
from tests.support.sandbox import ROOT

STUDIES = {
    "asymmetric": 18,
    "base-scenarios": 48,
    "coder-cost": 108,
    "coder-schedulers": 144,
    "geo-full-peps": 12,
    "geo-load-queue": 210,
    "geo-peps": 60,
    "geo-queues": 24,
    "geo-regimes": 48,
    "laboratory-grid": 990,
    "satgate-latencies": 24,
    "udp-share": 36,
}


def test_every_shipped_study_is_here() -> None:
    assert {path.stem for path in (ROOT / "examples/studies").glob("*.yaml")} == set(STUDIES)


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_has_its_runs_and_a_committed_one_takes_two_hours_at_most(tmp_path: Path, name: str) -> None:
    study = load_study(ROOT / f"examples/studies/{name}.yaml", tuple(FIGURES), columns())
    assert study.name == name
    sweep = Sweep(study, StudyDirectory(tmp_path / name))
    sweep.read(resume=True, mix=True)
    predicted = sweep.predict(2)
    assert predicted.runs == STUDIES[name]
    if name != "laboratory-grid":  # which ships as a file only
        assert predicted.wall.s < 2 * 3600


def test_the_eight_base_scenarios_have_their_links() -> None:
    study = load_study(ROOT / "examples/studies/base-scenarios.yaml")
    links = {each.label: each.experiment.link("sat").to_island for each in study.configurations}
    assert {name: (way.rate.bit_s // 10**6, way.delay.ms, way.queue.bytes // 1000) for name, way in links.items()} == {
        "geo-8": (8, 250, 100),
        "geo-16": (16, 250, 120),
        "geo-32": (32, 250, 250),
        "geo-64": (64, 250, 600),
        "meo-32": (32, 62.5, 200),
        "meo-64": (64, 62.5, 400),
        "meo-160": (160, 62.5, 1000),
        "meo-320": (320, 62.5, 2000),
    }
