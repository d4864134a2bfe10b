# SPDX-License-Identifier: Apache-2.0
"""The files of a study's directory: written and read as the contract's examples have them."""

import json
from pathlib import Path
from typing import Any

import pytest

from atoll_studies.points import Point
from atoll_studies.study_directory import Attempt, Provenance, StudyDirectory

EXAMPLES: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "contract" / "study.jsonl").read_text().splitlines()
]
POINTS = [each["content"] for each in EXAMPLES if each["file"] == "point.json"]
ATTEMPTS = [each["content"] for each in EXAMPLES if each["file"] == "attempt.json"]


@pytest.mark.parametrize("example", POINTS)
def test_a_point_is_written_and_read_as_in_the_example(tmp_path: Path, example: dict[str, Any]) -> None:
    described = example["description"]
    point = Point(
        id=example["id"],
        configuration=0,
        levels=example["levels"],
        repetition=example["repetition"],
        seed=example["seed"],
        request=example["request"],
        description=Path(described["file"]),
        settings=tuple(described["settings"]),
        programs=example["programs"],
    )
    assert point.to_json() == example
    directory = StudyDirectory(tmp_path)
    directory.point_path(point.id).mkdir(parents=True)
    (directory.point_path(point.id) / "point.json").write_text(json.dumps(example))
    assert directory.point(point.id) == example


@pytest.mark.parametrize("example", ATTEMPTS, ids=lambda example: example["outcome"])
def test_an_attempt_is_written_and_read_as_in_the_example(tmp_path: Path, example: dict[str, Any]) -> None:
    directory = StudyDirectory(tmp_path)
    identity = example["point"]
    directory.point_path(identity).mkdir(parents=True)
    made = tmp_path / "working"
    made.mkdir()
    attempt = Attempt(
        path=directory.point_path(identity) / "20260102T030405Z-1",
        outcome=example["outcome"],
        message=example["message"],
        wall_s=example["wall_s"],
        provenance=Provenance(**example["provenance"]),
    )
    kept = directory.add_attempt(made, identity, attempt)
    assert json.loads((kept / "attempt.json").read_text()) == example
    assert directory.attempts(identity) == [attempt]
