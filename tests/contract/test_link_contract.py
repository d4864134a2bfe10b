# SPDX-License-Identifier: Apache-2.0
"""What Python tells links and delay boxes is as in tests/data/contract, which Rust's tests read too.

What it reads from their marks is in test_analysis_contract.py.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from atoll.control.jobs import jobs
from atoll.model.load import load_experiment

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
