# SPDX-License-Identifier: Apache-2.0
"""What Python tells PEPs and reads of them is as in tests/data/contract, which Rust's tests read too."""

import json
from pathlib import Path
from typing import Any

from atoll_controller.planner.planner import make_plan
from atoll_core.description.loader import load_experiment
from atoll_core.lab.pep import PEP

SETTINGS = ("accept=learned", "island_pacing=15 Mbit/s", "island_unsent=131072 B", "island_window=1 MB",
            "between=multiplexed", "between_rate=16 Mbit/s", "island_initial_window=700")  # fmt: skip


def examples(project: Path, sender: str) -> list[dict[str, Any]]:
    lines = (project / "tests" / "data" / "contract" / "pep.jsonl").read_text().splitlines()
    return [line["message"] for line in map(json.loads, lines) if line["from"] == sender]


def test_a_planned_configuration_has_the_keys_of_the_example(project: Path) -> None:
    given = (*(f"boxes.pep-w.{setting}" for setting in SETTINGS), "boxes.pep-i.between=multiplexed")
    plan = make_plan(*load_experiment(project / "examples/pep-both.yaml", given))
    config = next(job.config for job in plan.jobs if job.argv == ("atoll-host", "pep")) or {}
    example = examples(project, "keeper")[1]
    assert config.keys() == example.keys()
    assert config["legs"]["island"].keys() == example["legs"]["island"].keys()
    assert config["between"].keys() == example["between"].keys()
    assert config["pairs"][1].keys() == example["pairs"][1].keys()
    assert [pair["mark"] for pair in config["pairs"]] == [pair["mark"] for pair in example["pairs"]]
    assert [pair["ports"] for pair in config["pairs"]] == [pair["ports"] for pair in example["pairs"]]
    assert config["mode"] == example["mode"]


def test_every_figure_of_a_pep_is_declared(project: Path) -> None:
    for kind in ("counters", "mark", "done"):
        (line,) = (each for each in examples(project, "pep") if each["type"] == kind)
        declared = {each.name for each in (*PEP.counters, *PEP.levels)}
        assert line.keys() - {"type", "t_ns", "id"} == declared
