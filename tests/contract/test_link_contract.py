# SPDX-License-Identifier: Apache-2.0
"""What Python tells links and delay boxes is as in tests/data/contract, which Rust's tests read too.

What it reads from their marks is in test_analysis_contract.py.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from atoll_controller.planner.change_schedule import plan_schedule
from atoll_controller.planner.job_plan import jobs
from atoll_controller.planner.planner import make_plan
from atoll_core.description.loader import load_experiment
from atoll_core.plan.plan import Backend

TOPICS = ("link", "delay")


def examples(project: Path, topic: str, sender: str) -> list[dict[str, Any]]:
    """The messages of a topic that come from the sender."""
    lines = (project / "tests" / "data" / "contract" / f"{topic}.jsonl").read_text().splitlines()
    return [line["message"] for line in map(json.loads, lines) if line["from"] == sender]


def shape(message: Any) -> Any:
    """Names and types of a configuration, whatever the figures and however long the lists."""
    if isinstance(message, dict):
        return {name: shape(field) for name, field in message.items()}
    if isinstance(message, list):
        return [shape(message[0])]
    return type(message).__name__


@pytest.mark.parametrize("topic", TOPICS)
def test_planned_configurations_have_the_shape_of_the_example(project: Path, topic: str) -> None:
    network, experiment = load_experiment(project / "examples" / "geo.yaml")
    planned = [job for job in jobs(network, experiment) if job.argv == ("atoll-host", topic)]
    assert planned
    for job in planned:
        assert shape(job.config) == shape(examples(project, topic, "keeper")[0])


IMPAIRED = """\
name: e
lab: {lab}
duration: 60 s
chain: [sat]
links:
  sat:
    to_island:
      rate: 16 Mbit/s
      delay: 250 ms
      queue: 100 kB
      queue_packets: 100
      low_priority: {{queue: 200 kB, queue_packets: 50}}
      jitter: {{distribution: normal, amount: 5 ms, correlation: 25 %}}
      reorder: true
      loss: {{model: gilbert-elliott, good_to_bad: 0.1 %, bad_to_good: 20 %, loss_bad: 50 %, where: before}}
      aqm: {{codel: {{interval: 600 ms}}}}
      trace: rain.csv
    to_world:
      rate: 4 Mbit/s
      delay: 250 ms
      queue: 100 kB
      jitter: 1 ms
      loss: {{bit_error: 1e-7}}
      aqm: {{red: {{min: 30 kB, max: 90 kB}}}}
traffic: {{channels: 0}}
"""
RAIN = "t_s,rate_bit_s,delay_ms,loss,blocked\n0,8000000,,,\n12.5,11500000,240,0.001,0\n30,,,,1\n30.2,,,,0\n"


def test_an_impaired_link_that_follows_a_trace_is_configured_as_in_the_example(project: Path, tmp_path: Path) -> None:
    """Every key, to the letter; of loss models and AQMs those that are described alone stand in link_config's test."""
    (tmp_path / "rain.csv").write_text(RAIN)
    (tmp_path / "e.yaml").write_text(IMPAIRED.format(lab=project / "emulation/labs/island.yaml"))
    network, experiment = load_experiment(tmp_path / "e.yaml")
    (planned,) = [job.config for job in jobs(network, experiment) if job.name == "link-sat"]
    assert planned is not None
    example = examples(project, "link-impaired", "keeper")[0]
    assert planned | {"seed": example["seed"]} == example


def test_planned_tc_settings_are_those_of_the_example(project: Path) -> None:
    planned = [job.config for job in jobs(*load_experiment(project / "examples" / "geo.yaml"), Backend.TC)]
    for example in examples(project, "tc", "keeper")[:2]:
        assert example in planned


def test_a_planned_change_of_a_tc_link_is_that_of_the_example(project: Path) -> None:
    change = "{rate: 8 Mbit/s, delay: 270 ms, queue: 50 kB, loss: 0.1 %}"
    settings = [f"changes=[{{at: 10 s, links: {{sat: {{to_island: {change}}}}}}}]"]
    described = load_experiment(project / "examples" / "geo.yaml", settings)
    (planned,) = plan_schedule(*described, make_plan(*described, Backend.TC), Backend.TC)
    ((_, request),) = planned.links
    example = examples(project, "tc", "keeper")[3]
    assert request | {"id": example["id"]} == example
