# SPDX-License-Identifier: Apache-2.0
"""What Python tells coders and reads of them is as in tests/data/contract, which Rust's tests read too."""

import json
from pathlib import Path
from typing import Any

import pytest

from atoll_controller.planner.planner import make_plan
from atoll_core.description.loader import load_experiment
from atoll_core.lab.coder import CODER


def examples(project: Path, sender: str) -> list[dict[str, Any]]:
    lines = (project / "tests" / "data" / "contract" / "coder.jsonl").read_text().splitlines()
    return [line["message"] for line in map(json.loads, lines) if line["from"] == sender]


def planned(project: Path, *given: str) -> dict[str, Any]:
    plan = make_plan(*load_experiment(project / "examples/coder-geo.yaml", given))
    return next(job.config for job in plan.jobs if job.name == "coder-coder-w") or {}


def test_a_planned_configuration_has_the_keys_of_the_example(project: Path) -> None:
    config, example = planned(project), examples(project, "keeper")[0]
    assert config.keys() == example.keys()
    assert config["pairs"][0]["island"].keys() == example["pairs"][0]["island"].keys()
    assert config["pairs"][0]["island"]["mtu"] == example["pairs"][0]["island"]["mtu"]
    assert config["tunnels"][0].keys() == example["tunnels"][0].keys()


@pytest.mark.parametrize("number", range(5))
def test_every_scheduler_is_configured_as_the_example_has_it(project: Path, number: int) -> None:
    wanted = examples(project, "keeper")[number]["scheduler"]
    given = [f"boxes.coder-w.scheduler={wanted['kind']}"]
    if wanted.get("generations"):
        given.append(f"boxes.coder-w.defer_generations={wanted['generations']}")
    assert planned(project, *given)["scheduler"] == wanted


def test_adapted_redundancy_is_configured_as_the_example_has_it(project: Path) -> None:
    wanted = examples(project, "keeper")[4]
    given = [f"boxes.{box}.redundancy=adaptive" for box in ("coder-w", "coder-i")]
    config = planned(project, *given)
    assert {key: config[key] for key in ("redundancy", "adaptive", "feedback")} == {
        key: wanted[key] for key in ("redundancy", "adaptive", "feedback")
    }
    assert planned(project)["feedback"] is None, "no reports unless they are asked for"


def test_every_figure_of_a_coder_is_declared(project: Path) -> None:
    for kind in ("counters", "mark", "done"):
        line = next(each for each in examples(project, "coder") if each["type"] == kind)
        declared = {each.name for each in (*CODER.counters, *CODER.levels)}
        assert line.keys() - {"type", "t_ns", "id"} == declared
