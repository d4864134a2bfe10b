# SPDX-License-Identifier: Apache-2.0
"""What Python tells and expects of links and delay boxes is as in tests/data/contract, which Rust's tests read too."""

import json
from pathlib import Path
from typing import Any

import pytest

from atoll.analysis.boxes import measurements
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


@pytest.mark.parametrize("topic", TOPICS)
def test_the_analysis_takes_every_figure_from_a_mark(project: Path, topic: str) -> None:
    mark = next(line for line in examples(project, topic, topic) if line["type"] == "mark")
    lines = [{**mark, "box": "b", "mark": "begin"}, {**mark, "box": "b", "mark": "end"}]
    measured = measurements(lines)
    told = mark["classes"] if topic == "delay" else {name: mark[name] for name in ("to_island", "to_world")}
    assert {m.part for m in measured} == set(told)
    for m in measured:
        histogram = [list(bucket) for bucket in m.lateness_histogram]
        assert histogram == told[m.part]["lateness_histogram"]
        for name, figure in told[m.part].items():
            if isinstance(figure, int):
                assert getattr(m, name, figure) == figure, name
    assert any(m.in_packets for m in measured)
