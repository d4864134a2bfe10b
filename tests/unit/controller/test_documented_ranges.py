# SPDX-License-Identifier: Apache-2.0
"""Every numeric key at both ends of its documented range, alone and in pairs: it can be planned, or is refused."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.documented_ranges import extremes, shuffled
from tests.support.range_runs import refusal

pytestmark = pytest.mark.long

PAIRS = 100
NO_RANGE = ("flows_per_s", "spare", "probability", "residence_max", "memory_max")
"""Keys whose refusal at an end of the range is for another reason than the number."""


def test_each_end_of_a_range_can_be_planned_or_is_refused_with_a_number(tmp_path: Path) -> None:
    found = {str(each): refusal(tmp_path, [each]) for each in extremes()}
    assert len(found) > 250
    assert sum(not each for each in found.values()) > len(found) * 3 / 4
    vague = {key for key, text in found.items() if text and not re.search(r": .*\d", text)}
    assert not {key for key in vague if not any(name in key for name in NO_RANGE)}


def test_every_number_of_a_description_is_tried(project: Path) -> None:
    tried = {str(each.place[-1]) for each in extremes()}
    for name in ("lab", "experiment"):
        schema = json.loads((project / f"core/atoll_core/schemas/{name}.schema.json").read_text())
        numbers = {key for model in (schema, *schema["$defs"].values()) for key in _bounded_numbers(model)}
        assert numbers
        assert numbers <= tried, name


def _bounded_numbers(model: dict[str, Any]) -> Iterator[str]:
    for key, schema in model.get("properties", {}).items():
        if any("maximum" in kind for kind in (schema, *schema.get("anyOf", ()))):
            yield key


def test_random_pairs_of_extremes_can_be_planned_or_are_refused(tmp_path: Path) -> None:
    order = shuffled(extremes(), 1)
    for one, other in zip(order[:PAIRS], order[PAIRS:], strict=False):
        if one.place != other.place:
            refusal(tmp_path, [one, other])
