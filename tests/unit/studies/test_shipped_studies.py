# SPDX-License-Identifier: Apache-2.0
"""The studies of examples/studies can be swept: their runs, and what these take."""

from pathlib import Path

import pytest

from atoll_studies.results.result_tables import reserved_columns
from atoll_studies.study import load_study
from atoll_studies.study_directory import StudyDirectory
from atoll_studies.sweeping.sweep import Sweep
from tests.support.sandbox import ROOT

STUDIES = {
    "asymmetric": 18,
    "base-scenarios": 48,
    "coder-cost": 144,
    "coder-loss": 24,
    "coder-schedulers": 144,
    "geo-full-peps": 12,
    "geo-load-queue": 210,
    "geo-peps": 60,
    "geo-queues": 24,
    "geo-regimes": 48,
    "laboratory-grid": 990,
    "published/geo-16-100-channels": 100,
    "published/geo-16-assumptions": 64,
    "published/geo-16-queues": 200,
    "published/geo-16-pepsal": 200,
    "published/meo-32-50-channels": 100,
    "published/transfer-alone": 16,
    "satgate-latencies": 24,
    "udp-share": 24,
}


def test_every_shipped_study_is_here() -> None:
    folder = ROOT / "examples/studies"
    assert {str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml")} == set(STUDIES)


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_has_its_runs_and_a_committed_one_takes_two_hours_at_most(tmp_path: Path, name: str) -> None:
    study = load_study(ROOT / f"examples/studies/{name}.yaml", reserved_columns())
    assert study.name == Path(name).name
    sweep = Sweep(study, StudyDirectory(tmp_path / name))
    sweep.read(resume=True, mix=True)
    predicted = sweep.predict(2)
    assert predicted.runs == STUDIES[name]
    if name != "laboratory-grid":  # which ships as a file only
        assert predicted.wall.s < 2 * 3600


def test_the_base_scenarios_are_the_laboratorys() -> None:
    study = load_study(ROOT / "examples/studies/base-scenarios.yaml")
    scenarios = {}
    for each in study.configurations:
        experiment, way = each.experiment, each.experiment.link("sat").to_island
        assert experiment.transfer
        assert len(experiment.latency) == 24, "22 servers, the special server and the whistle host"
        scenarios[each.label] = (
            way.rate.bit_s // 10**6,
            way.delay.ms,
            way.queue.bytes // 1000,
            experiment.traffic.channels,
            experiment.transfer.size.bytes // 10**6,
            experiment.duration.s,
        )
    assert scenarios == {
        "geo-8": (8, 250, 100, 25, 20, 600),
        "geo-16": (16, 250, 120, 55, 40, 600),
        "geo-32": (32, 250, 250, 125, 40, 300),
        "geo-64": (64, 250, 600, 250, 80, 150),
        "meo-32": (32, 62.5, 200, 50, 80, 300),
        "meo-64": (64, 62.5, 400, 100, 80, 150),
        "meo-160": (160, 62.5, 1000, 180, 80, 90),
        "meo-320": (320, 62.5, 2000, 300, 80, 90),
    }


def test_the_grid_is_the_laboratorys() -> None:
    study = load_study(ROOT / "examples/studies/laboratory-grid.yaml")
    grid = set()
    for each in study.configurations:
        link = each.experiment.link("sat")
        assert (link.to_island.rate.bit_s, link.to_world.rate.bit_s) == (16e6, 4e6)
        assert (link.to_island.delay.ms, link.to_world.delay.ms) == (250, 250)
        assert (len(each.experiment.latency), each.experiment.duration.s) == (24, 600)
        grid.add((link.to_island.queue.bytes // 1000, each.experiment.traffic.channels))
    assert (len(grid), min(grid), max(grid)) == (99, (30, 10), (800, 600))
    assert len(study.seeds) == 10
