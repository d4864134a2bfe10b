# SPDX-License-Identifier: Apache-2.0
"""Whatever a body says, it is an experiment or a list of its mistakes; never a fault, never long in coming."""

import json
import time
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from atoll_core.description.raw_experiment import RawExperiment
from atoll_core.description.resolve_lab import Lab
from atoll_core.description.yaml_document import compose_document, read_document
from atoll_core.errors import AtollError
from atoll_core.plan.plan import Backend
from atoll_daemon.http.experiment_bodies import (
    DescribedExperiment,
    apply_merge_patch,
    described_by_body,
    described_by_file,
    patch_document,
)
from atoll_daemon.http.http_errors import error_json
from atoll_daemon.http.request_parsing import MOST_BODY_ENTRIES

ROOT = Path(__file__).resolve().parents[2]


@cache
def standing() -> tuple[Lab, DescribedExperiment]:
    """The island laboratory with the demo applied."""
    path = ROOT / "examples" / "geo.yaml"
    described = described_by_file(read_document(path), path, (), Backend.ENGINE)[1]
    return Lab.read(read_document(ROOT / "emulation" / "labs" / "island.yaml")), described


def answered(body: Any) -> DescribedExperiment | dict[str, Any]:
    """What the daemon makes of a body, or the error it answers with."""
    lab, geo = standing()
    assert lab.network is not None
    try:
        return described_by_body(body, lab, lab.network, geo, ())
    except AtollError as error:
        answer = error_json(error)
        json.dumps(answer).encode()
        assert answer["status"] in (409, 422)
        assert answer["message"]
        assert all(mistake["message"].isprintable() or "\n" in mistake["message"] for mistake in answer["mistakes"])
        return answer


KEYS = st.sampled_from([*RawExperiment.model_fields, "sat", "w1", "to_island", "carries", "island", "rate", "at", "x"])
WORDS = st.sampled_from(
    ["sat", "tap-w", "coder-w", "rtt-5", "90 ms", "16 Mbit/s", "10.20.0.0/30", "tcp", "", "\ud800", "\0", "NaN", "é"]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | st.text(max_size=8)
TREES = st.recursive(LEAVES, lambda part: st.lists(part, max_size=3) | st.dictionaries(KEYS, part, max_size=4))
PATCHES = st.dictionaries(KEYS, TREES, max_size=5)


@settings(deadline=None, max_examples=200)
@given(PATCHES)
@example({"chain": ["sat"], "links": None})
@example({"links": {"sat": None}})
@example({"branches": {"x": None}, "changes": [None]})
@example({"name": None})
def test_any_patch_is_an_experiment_or_its_mistakes(patch: dict[str, Any]) -> None:
    found = answered(patch_document(patch))
    if isinstance(found, DescribedExperiment):
        again = answered(patch_document(found.tree | {"name": found.experiment.name}))
        assert isinstance(again, DescribedExperiment)
        assert again.experiment == found.experiment, "what stands is described by its own tree"


@settings(deadline=None)
@given(PATCHES, PATCHES)
def test_a_patch_once_is_as_good_as_twice(tree: dict[str, Any], patch: dict[str, Any]) -> None:
    once = apply_merge_patch(tree, patch)
    assert apply_merge_patch(once, patch) == once
    assert apply_merge_patch(once, {}) == once


def test_the_worst_bodies_are_refused_within_seconds() -> None:
    """Every entry wrong, in its own way, as many as a body may have; as JSON and as YAML. The worst takes a second."""
    most = MOST_BODY_ENTRIES - 100
    worst: list[Any] = [
        patch_document({"chain": [1] * most}),
        patch_document({"chain": ["sat"] * most}),
        patch_document({f"key-{number}": 1 for number in range(most)}),
        patch_document({"latency": {f"w{number}": "rtt-5" for number in range(most)}}),
        patch_document({"chain": ["x" * 50_000, "y" * 50_000]}),
        compose_document("chain:\n" + "- 1\n" * most, "body"),
    ]
    for body in worst:
        began = time.process_time()
        answer = answered(body)
        assert isinstance(answer, dict)
        assert len(json.dumps(answer)) < 100_000
        assert time.process_time() - began < 60, "seconds of the daemon's time"
