# SPDX-License-Identifier: Apache-2.0
"""Events as lines for people, those of other versions too."""

from typing import Any

import pytest

from atoll_testbed.run.event_text import event_line


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ({"type": "applied", "changes": 3}, "applied 3 changes"),
        ({"type": "applied"}, "applied"),
        ({"type": "applied", "experiment": "geo"}, "applied: experiment geo"),
        ({"type": "change", "state": "begin"}, "change begin"),
        ({"type": "start"}, "start"),
        ({"type": "trace_start", "at_ns": 5}, "trace_start: at_ns 5"),
        ({"type": "window", "end_ns": 5}, "window: end_ns 5"),
    ],
)
def test_an_event_without_what_its_words_are_of_has_its_fields(event: dict[str, Any], line: str) -> None:
    assert event_line(event["type"], event) == line
