# SPDX-License-Identifier: Apache-2.0
"""What those who watch a lab are told of a piece of work: that it begins, how it ends, and of a run what it came to."""

from typing import Any

import pytest

from atoll.keeper.events import EventLog
from atoll.keeper.work import Bench


@pytest.mark.parametrize(
    ("result", "judged"),
    [
        (
            {"run_dir": "runs/geo/1", "summary": {"verdict": "invalid", "reasons": ["late"], "figures": 1}},
            {"verdict": "invalid", "reasons": ["late"], "caveats": []},
        ),
        ({"run_dir": "runs/geo/1", "summary": None}, {}),
        ({"changes": 3}, {}),
    ],
)
async def test_the_end_of_a_run_that_was_analysed_says_its_verdict(
    result: dict[str, Any], judged: dict[str, str]
) -> None:
    """Who watches a run with a lab of its own can ask nobody afterwards: the keeper goes at once."""
    events = EventLog(lambda: 7)

    async def work(_: object) -> dict[str, Any]:
        return result

    await Bench(events).begin("run", "geo", work, lambda _: None)
    told = [{key: event[key] for key in event if key not in ("seq", "t_ns")} for event in events.since(0)]
    begin = {"type": "work", "what": "run", "about": "geo", "state": "begin"}
    assert told == [begin, {**begin, "state": "end", **judged}]
