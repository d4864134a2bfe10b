# SPDX-License-Identifier: Apache-2.0
"""A common start: the instant agreed upon, clocks that differ, and what is told of who began when."""

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis.figures.clocks import START_SPREAD_MS, StartFigures, judge_start, start_figures, unknown_start_notes
from atoll_analysis.tables.run_data import read_run_data
from atoll_controller.planner.traffic_jobs import load_jobs
from atoll_core.codec import to_json
from atoll_hosts.agent import Agent
from atoll_hosts.machine import ClockOffset, clock_offset
from atoll_testbed.run.run_clock import start_event, start_lead_ns
from tests.support.synthetic_run import START_NS, begin, experiment, network, plan

MS = 10**6
EVENT: dict[str, Any] = {"at_ns": START_NS, "clocks": {}}


def figures(base: Path, began_ms: dict[str, float], event: dict[str, Any] | None = None) -> StartFigures | None:
    """Of a run whose clients say that they began so long after the instant, by their own clocks."""
    asked, lab = experiment(), network(4)
    run = begin(base, asked, lab)
    whole = replace(plan(asked, lab, ()), jobs=load_jobs(lab, asked))
    run.update_manifest({"plan": to_json(whole)})
    if event is not None:
        run.append_event("start", START_NS - 10**9, **event)
    for host, late in began_ms.items():
        lines: list[dict[str, Any]] = [{"type": "ready"}, {"type": "started", "t_ns": START_NS + int(late * MS)}]
        (run.logs / f"load-{host}.out").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return start_figures(read_run_data(run), run.logs)


def test_each_client_is_held_against_the_instant_agreed_upon(tmp_path: Path) -> None:
    """Spread is from the first to the last; lateness is against the instant."""
    found = figures(tmp_path, {"i1": 0.25, "i2": 1.0, "i3": 4.0, "i4": 0.5}, EVENT)
    assert found == {
        "hosts": {"i1": 0.25, "i2": 1.0, "i3": 4.0, "i4": 0.5},
        "spread_ms": 3.75,
        "late_p50_ms": 0.75,
        "late_max_ms": 4.0,
        "clock_bound_ms": None,
        "silent": [],
    }


def test_what_a_clock_is_off_is_no_skew(tmp_path: Path) -> None:
    """A machine whose clock is 15 ms ahead and says so began with the others; how well that is known is told."""
    clocks = {"i1": {"offset_ns": 0, "bound_ns": MS // 2}, "i2": {"offset_ns": 15 * MS, "bound_ns": 2 * MS}}
    found = figures(tmp_path, {"i1": 0.5, "i2": 15.75}, {"at_ns": START_NS, "clocks": clocks})
    assert found is not None
    assert found["hosts"] == {"i1": 0.5, "i2": 0.75}
    assert found["clock_bound_ms"] == 2.0
    assert found["silent"] == ["i3", "i4"]


def test_a_run_that_agreed_on_no_instant_has_no_figures(tmp_path: Path) -> None:
    """As those of older versions, and those that ended before their load began."""
    assert figures(tmp_path / "older", {"i1": 0.0}) is None
    assert figures(tmp_path / "silent", {}, EVENT) is None


@pytest.mark.parametrize(("last_ms", "words"), [(START_SPREAD_MS, 0), (START_SPREAD_MS + 0.1, 1)])
def test_more_than_the_bound_is_told_with_who_was_first_and_last(tmp_path: Path, last_ms: float, words: int) -> None:
    found = list(judge_start(figures(tmp_path, {"i1": 5, "i2": 0, "i3": last_ms, "i4": 1}, EVENT)))
    assert len(found) == words
    assert all("50.1 ms apart, bound 50 ms: i2 first, i3 last, 50.1 ms late" in each.text for each in found)
    assert not any(each.is_reason for each in found)


def test_a_client_that_never_began_is_named(tmp_path: Path) -> None:
    found = figures(tmp_path, {"i1": 0, "i4": 0}, EVENT)
    assert unknown_start_notes(found) == ["i2, i3 did not report when the load began there"]


def test_the_instant_is_further_ahead_the_more_programs_there_are_to_start() -> None:
    """A small laboratory waits a second; a large one as long as its agent needs."""
    assert start_lead_ns(9) == 10**9
    assert start_lead_ns(100) == 3 * 10**9


def test_only_an_offset_that_the_measurement_shows_is_gone_by() -> None:
    """Below its bound an offset is noise; correcting by it would make starts differ."""
    event = start_event(7, {"i1": ClockOffset(3 * MS, 2 * MS, 4 * MS), "i2": ClockOffset(-MS, 2 * MS, 4 * MS)})
    assert event["at_ns"] == 7
    assert event["clocks"] == {
        "i1": {"offset_ns": 3 * MS, "bound_ns": 2 * MS},
        "i2": {"offset_ns": 0, "bound_ns": 2 * MS},
    }


# Speaks the agent's protocol as far as the clock's question goes, by a clock that is 5 s ahead.
_AHEAD = """#!{python}
import json, sys, time
def say(**message): print(json.dumps(message), flush=True)
say(type="hello", protocol=2, version="0", pid=1, arch="x86_64")
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request: say(type="answer", id=request["id"], ok=True, t_ns=time.time_ns() + 5_000_000_000)
"""


def test_a_clock_that_is_off_is_measured_within_its_bound(tmp_path: Path) -> None:
    """The truth lies within the bound, which is half the best round trip."""
    program = tmp_path / "ahead"
    program.write_text(_AHEAD.format(python=sys.executable))
    program.chmod(0o755)

    async def measure() -> ClockOffset:
        agent = await Agent.start([], program)
        try:
            return await clock_offset(agent)
        finally:
            await agent.close()

    found = asyncio.run(measure())
    assert abs(found.offset_ns - 5 * 10**9) <= found.bound_ns
    assert found.bound_ns <= found.rtt_ns
    assert found.known_ns == found.offset_ns
