# SPDX-License-Identifier: Apache-2.0
"""What a run says while it goes, where there is no terminal."""

import pytest

from atoll.cli import telling
from atoll.cli.telling import LiveLine, Turns


def test_a_line_tells_the_most_that_waited_since_the_last_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its drops are a running sum: a queue that was full for a moment in between is to be seen beside them."""
    live = {"type": "live", "duration_s": 60, "rate_mbit_s": 1.0, "dropped_packets": 281}
    show = LiveLine()
    for told, elapsed_s, most in [(False, 1.0, 99_980), (True, 2.0, 36_000), (True, 3.0, 12_000)]:
        monkeypatch.setattr(telling, "_LIVE_EVERY_S", 0.0 if told else 60.0)
        show.take({**live, "elapsed_s": elapsed_s, "queue_max_bytes": most})
    show.close()
    first, second = capsys.readouterr().err.splitlines()
    assert "queue up to  100.0 kB   dropped 281" in first
    assert "queue up to   12.0 kB" in second


def test_of_two_runs_the_one_that_goes_on_is_shown_and_said_to_be_the_second(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The second is silent while the first is watched, then it begins with what it is doing at that moment."""
    show = LiveLine()
    turns = Turns(show, 2)
    for run, step in [(0, "apply"), (1, "apply"), (1, "check"), (0, "analyse")]:
        turns.take(run, {"type": "step", "step": step})
    turns.over(0)
    turns.take(1, {"type": "step", "step": "analyse"})
    turns.over(1)
    show.step("comparing the runs")
    show.close()
    told = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[:2] for line in told[:-1]] == [
        ["run 1 of 2", "apply"],
        ["run 1 of 2", "analyse"],
        ["run 1 of 2", "done"],
        ["run 2 of 2", "check"],
        ["run 2 of 2", "analyse"],
        ["run 2 of 2", "done"],
    ]
    assert told[-1] == "comparing the runs"


def test_of_a_second_run_that_is_done_first_only_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    show = LiveLine()
    turns = Turns(show, 2)
    turns.take(0, {"type": "step", "step": "apply"})
    turns.take(1, {"type": "step", "step": "check"})
    turns.over(1)
    turns.take(0, {"type": "step", "step": "check"})
    turns.over(0)
    show.close()
    told = [line.split(": ")[:2] for line in capsys.readouterr().err.splitlines()]
    first = [["run 1 of 2", word] for word in ("apply", "check", "done")]
    assert told == [first[0], ["run 2 of 2", "done"], *first[1:]]


def test_a_run_by_itself_is_not_numbered(capsys: pytest.CaptureFixture[str]) -> None:
    show = LiveLine()
    Turns(show, 1).take(0, {"type": "step", "step": "apply"})
    show.close()
    assert capsys.readouterr().err.startswith("apply: ")
