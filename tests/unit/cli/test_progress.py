# SPDX-License-Identifier: Apache-2.0
"""What a run says while it goes, where there is no terminal."""

from pathlib import Path

import pytest

from atoll_analysis.run_directory import RunDir
from atoll_cli.terminal.progress import LiveLine, ParallelRuns, recorded_runs
from atoll_core.errors import AtollError, InterruptedByUserError, LabError, PlanError
from atoll_core.events.events import StepBegun


def test_a_line_is_told_each_tenth_of_the_run_with_the_most_that_waited_since_the_last_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its drops are a running sum: a queue that was full for a moment in between is to be seen beside them."""
    live = {"type": "live", "duration_s": 60, "rate_mbit_s": 1.0, "dropped_packets": 281}
    show = LiveLine()
    for elapsed_s, most in [(0.0, 0), (1.0, 99_980), (6.0, 36_000), (7.0, 12_000), (12.2, 4_000), (60.0, 0)]:
        show.take({**live, "elapsed_s": elapsed_s, "queue_max_bytes": most})
    show.close()
    assert capsys.readouterr().err.splitlines() == [
        "measured 6.0 s of 60 s (10%): 1.00 Mbit/s, queue up to 100 kB, 281 packets dropped",
        "measured 12.2 s of 60 s (20%): 1.00 Mbit/s, queue up to 12 kB, 281 packets dropped",
        "measured 60.0 s of 60 s (100%): 1.00 Mbit/s, queue up to 0 kB, 281 packets dropped",
    ]


def test_in_virtual_time_a_line_tells_both_clocks(capsys: pytest.CaptureFixture[str]) -> None:
    show = LiveLine()
    live = {"type": "live", "duration_s": 60, "elapsed_s": 6.0, "wall_s": 18.2}
    show.take(live)
    show.take({**live, "elapsed_s": 12.0, "wall_s": 20.0, "left_s": 14.4, "factor": 3.3})
    show.close()
    assert capsys.readouterr().err.splitlines() == [
        "measured 6.0 s of 60 s (10%); wall time 18 s",
        "measured 12.0 s of 60 s (20%); wall time 20 s, about 14 s to the end of the load",
    ]


def test_of_two_runs_the_one_that_goes_on_is_shown_and_said_to_be_the_second(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The second is silent while the first is watched, then it begins with what it is doing at that moment."""
    show = LiveLine()
    turns = ParallelRuns(show, 2)
    for run, step in [(0, "apply"), (1, "apply"), (1, "check"), (0, "analyse")]:
        turns.take(run, StepBegun(step).to_line())
    turns.end_run(0)
    turns.take(1, StepBegun("analyse").to_line())
    turns.end_run(1)
    show.show_step("comparing the runs")
    show.close()
    answer = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[:2] for line in answer[:-1]] == [
        ["run 1 of 2", "apply"],
        ["run 1 of 2", "analyse"],
        ["run 1 of 2", "done"],
        ["run 2 of 2", "check"],
        ["run 2 of 2", "analyse"],
        ["run 2 of 2", "done"],
    ]
    assert answer[-1] == "comparing the runs"


def test_of_a_second_run_that_is_done_first_only_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    show = LiveLine()
    turns = ParallelRuns(show, 2)
    turns.take(0, StepBegun("apply").to_line())
    turns.take(1, StepBegun("check").to_line())
    turns.end_run(1)
    turns.take(0, StepBegun("check").to_line())
    turns.end_run(0)
    show.close()
    answer = [line.split(": ")[:2] for line in capsys.readouterr().err.splitlines()]
    first = [["run 1 of 2", word] for word in ("apply", "check", "done")]
    assert answer == [first[0], ["run 2 of 2", "done"], *first[1:]]


def test_a_run_by_itself_is_not_numbered(capsys: pytest.CaptureFixture[str]) -> None:
    show = LiveLine()
    ParallelRuns(show, 1).take(0, StepBegun("apply").to_line())
    show.close()
    assert capsys.readouterr().err.startswith("apply: ")


def _failure(error: AtollError, *run_dirs: Path) -> AtollError:
    with pytest.raises(AtollError) as failed, recorded_runs(LiveLine(), run_dirs):
        raise error
    return failed.value


def test_a_run_that_fails_says_where_what_it_measured_is_and_how_to_read_it(tmp_path: Path) -> None:
    first, second = (RunDir.create(tmp_path / "my runs", "geo", now_ns) for now_ns in (10**18, 2 * 10**18))
    failed = _failure(PlanError("no room"), first.path)
    assert str(failed) == f"no room\nnothing was measured; the run's log is in {first.path}"
    assert failed.exit_code == 2
    first.update_manifest({"plan": {}})
    failed = _failure(LabError("sw-c is gone"), first.path)
    reads = f"the measurements so far are in {first.path}; analyse them with `atoll report '{first.path}'`"
    assert (str(failed), failed.exit_code) == (f"sw-c is gone\n{reads}", 1)
    cancelled = _failure(InterruptedByUserError("cancelled"), first.path)
    assert (str(cancelled), cancelled.exit_code) == (f"cancelled; {reads}", 130)
    both = _failure(LabError("it ended"), first.path, second.path)
    assert str(both).endswith(
        f"and {second.path}; analyse them with `atoll report '{first.path}'` and `atoll report '{second.path}'`"
    )
