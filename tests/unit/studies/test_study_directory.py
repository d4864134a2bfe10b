# SPDX-License-Identifier: Apache-2.0
"""The directory of a study: what counts, what is tried again, and what is refused."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import atoll_studies.sweeping.sweep
from atoll_cli.commands.sweep import SweepProgress
from atoll_core.errors import MachineError, RunDirError, UsageError
from atoll_core.units import Size
from atoll_emulation.this_machine.core_pinning import usable_cores
from atoll_studies.study import load_study
from atoll_studies.study_directory import FAILED, NoAttemptError, Provenance, StudyDirectory
from atoll_studies.sweeping.pool import AttemptEnd
from atoll_studies.sweeping.sweep import State, Sweep, makespan
from tests.support.sandbox import QUICK
from tests.support.study_runs import HERE, record

OLDER = Provenance("abb", "virtual", "7.2.12-atoll", "seccomp", "7.2.12-0123456789ab")

KILLED, NOT_BEGUN, KILLED_LATER = "killed", "no lab", "killed after its attempt was added"
EXIT_CODES = {KILLED: -9, NOT_BEGUN: NoAttemptError.exit_code, KILLED_LATER: -9}


class FakePool:
    """Records attempts instead of making them; ``outcomes``: of each point's attempts in turn, by its seed."""

    def __init__(self, sweep: Sweep, outcomes: dict[int, list[str]], origin: Provenance) -> None:
        self.origin = origin
        self.sweep = sweep
        self.outcomes = outcomes
        self.order: list[str] = []

    def __call__(self, *_: object) -> "FakePool":
        return self

    async def run(
        self, points: list[str], on_start: Callable[[str], None], on_end: Callable[[AttemptEnd], bool]
    ) -> None:
        left = list(points)
        while left:
            point = left.pop(0)
            self.order.append(point)
            on_start(point)
            state = self.sweep.points[point]
            outcome = self.outcomes[state.point.seed].pop(0)
            if outcome == KILLED_LATER:
                record(self.sweep.directory, point, FAILED, self.origin)
            elif outcome not in EXIT_CODES:
                record(self.sweep.directory, point, outcome, self.origin)
            if on_end(AttemptEnd(point, EXIT_CODES.get(outcome, 0), outcome)):
                left.append(point)


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Sweep]:
    """A sweep of two seeds, of which the machine is checked by nobody."""
    monkeypatch.setattr(atoll_studies.sweeping.sweep, "require_platform", lambda *_: None)
    monkeypatch.setattr(atoll_studies.sweeping.sweep, "provenance", lambda *_: HERE)

    async def nothing_to_compile(*_: object) -> int:
        return 0

    monkeypatch.setattr(atoll_studies.sweeping.sweep, "compile_stale", nothing_to_compile)

    def make(platform: str = "virtual", repetitions: int = 2) -> Sweep:
        file = tmp_path / "study.yaml"
        file.write_text(f"name: s\nexperiment: {QUICK}\nplatform: {platform}\nrepetitions: {repetitions}\n")
        found = Sweep(load_study(file), StudyDirectory(tmp_path / "s"))
        found.require_machine()
        return found

    return make


def execute(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, outcomes: dict[int, list[str]], origin: Provenance = HERE
) -> list[int]:
    """Sweep with made-up outcomes; the seeds in the order of their attempts."""
    pool = FakePool(sweep, outcomes, origin)
    monkeypatch.setattr(atoll_studies.sweeping.sweep, "Pool", pool)
    with sweep.directory.locked():
        asyncio.run(sweep.run(1))
    return [sweep.points[point].point.seed for point in pool.order]


def states(sweep: Sweep) -> list[State]:
    return [each.state for each in sweep.points.values()]


def test_an_attempt_counts_once_it_has_its_place(tmp_path: Path) -> None:
    directory = StudyDirectory(tmp_path / "s")
    (directory.point_path("ab") / "20260102T030405Z-1").mkdir(parents=True)  # no attempt.json: not written by a worker
    made = directory.working / "ab"
    made.mkdir(parents=True)
    (made / "attempt.json").write_text("{}")
    assert directory.attempts("ab") == []
    directory.clear_working()
    record(directory, "ab", "valid")
    (attempt,) = directory.attempts("ab")
    assert attempt.is_usable
    assert attempt.provenance == HERE
    assert (attempt.path / "summary.json").is_file()
    assert not made.exists()


def test_two_sweeps_do_not_meet_in_a_directory(tmp_path: Path) -> None:
    directory = StudyDirectory(tmp_path / "s")
    with directory.locked(), pytest.raises(UsageError, match="another sweep"), directory.locked():
        pass
    with directory.locked():
        pass


def test_in_virtual_time_an_invalid_run_is_not_repeated_and_a_failed_one_is(
    sweep: Callable[..., Sweep], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = sweep()
    done.read(resume=False, mix=False)
    seeds = execute(done, monkeypatch, {1: ["invalid"], 2: [FAILED, FAILED, FAILED]})
    assert seeds == [1, 2, 2, 2]
    assert states(done) == [State.INVALID, State.FAILED]


def test_an_attempt_that_is_killed_is_made_again_up_to_the_limit(
    sweep: Callable[..., Sweep], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = sweep()
    done.read(resume=False, mix=False)
    seeds = execute(done, monkeypatch, {1: [KILLED, "valid"], 2: [KILLED, FAILED, KILLED]})
    assert sorted(seeds) == [1, 1, 2, 2, 2]
    assert states(done) == [State.DONE, State.FAILED]
    again = sweep()
    again.read(resume=True, mix=False)
    assert states(again) == [State.DONE, State.WAITING]  # nothing of a killed one is in the directory


def test_an_attempt_that_was_added_is_one_try_though_its_process_is_killed(
    sweep: Callable[..., Sweep], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = sweep()
    done.read(resume=False, mix=False)
    seeds = execute(done, monkeypatch, {1: [KILLED_LATER, KILLED_LATER, "valid"], 2: [KILLED_LATER] * 3})
    assert sorted(seeds) == [1, 1, 1, 2, 2, 2]
    assert states(done) == [State.DONE, State.FAILED]
    assert [each.lost_tries for each in done.points.values()] == [0, 0]


def test_a_run_that_does_not_begin_is_tried_again_up_to_the_limit(
    sweep: Callable[..., Sweep], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = sweep("mininet")
    done.read(resume=False, mix=False)
    execute(done, monkeypatch, {1: [NOT_BEGUN, "valid"], 2: [NOT_BEGUN] * 3})
    assert states(done) == [State.DONE, State.FAILED]
    assert [each.loss_reason for each in done.points.values()] == ["", NOT_BEGUN]


def test_attempts_of_an_atoll_that_changed_during_the_sweep_are_tries_too(
    sweep: Callable[..., Sweep], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = sweep()
    done.read(resume=False, mix=True)
    assert sorted(execute(done, monkeypatch, {1: ["invalid"], 2: [FAILED] * 3}, OLDER)) == [1, 2, 2, 2]
    assert states(done) == [State.INVALID, State.FAILED]


def test_in_real_time_an_invalid_run_is_repeated_up_to_the_limit(
    sweep: Callable[..., Sweep], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = sweep("mininet")
    done.read(resume=False, mix=False)
    seeds = execute(done, monkeypatch, {1: ["invalid", "invalid", "invalid"], 2: ["invalid", "valid with caveats"]})
    assert sorted(seeds) == [1, 1, 1, 2, 2]
    assert states(done) == [State.INVALID, State.DONE]


def test_what_is_there_is_refused_without_resume_and_kept_with_it(
    sweep: Callable[..., Sweep], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = sweep()
    first.read(resume=False, mix=False)
    execute(first, monkeypatch, {1: ["valid"], 2: ["valid"]})
    with pytest.raises(UsageError, match="--resume"):
        sweep().read(resume=False, mix=False)
    more = sweep(repetitions=4)
    more.read(resume=True, mix=False)
    assert states(more) == [State.DONE, State.DONE, State.WAITING, State.WAITING]
    assert execute(more, monkeypatch, {3: ["valid"], 4: ["valid"]}) == [3, 4]


def test_runs_of_another_provenance_are_refused_unless_mixed(
    sweep: Callable[..., Sweep], monkeypatch: pytest.MonkeyPatch
) -> None:
    later = sweep()
    first, second = later.points
    record(later.directory, first, "valid", OLDER)
    record(later.directory, second, "invalid", OLDER)
    with pytest.raises(UsageError, match=r"atoll abb on virtual.*\n.*atoll abc.*--mix"):
        later.read(resume=True, mix=False)
    later.read(resume=True, mix=True)
    assert states(later) == [State.DONE, State.WAITING]  # what an older version found invalid, this one tries
    assert execute(later, monkeypatch, {2: ["valid"]}) == [2]


def test_a_sweep_removes_what_a_killed_one_left(sweep: Callable[..., Sweep], monkeypatch: pytest.MonkeyPatch) -> None:
    done = sweep(repetitions=1)
    left = done.directory.working / "dead" / "captures"
    left.mkdir(parents=True)
    done.read(resume=False, mix=False)
    execute(done, monkeypatch, {1: ["valid"]})
    assert not done.directory.working.exists()
    about = json.loads((done.directory.path / "study.json").read_text())
    assert [point["id"] for point in about["points"]] == list(done.points)
    assert done.directory.point(next(iter(done.points)))["request"]["experiment"]["name"] == "quick"


def test_a_directory_of_another_study_is_refused(sweep: Callable[..., Sweep], monkeypatch: pytest.MonkeyPatch) -> None:
    first = sweep()
    first.read(resume=False, mix=False)
    execute(first, monkeypatch, {1: ["valid"], 2: ["valid"]})
    other = sweep()
    other.study = replace(other.study, name="other")
    with pytest.raises(UsageError, match="belongs to study s, but this study is other"):
        other.read(resume=True, mix=False)


def test_runs_of_earlier_points_are_refused_without_resume(sweep: Callable[..., Sweep]) -> None:
    later = sweep()
    record(later.directory, "0123456789abcdef", "valid")
    with pytest.raises(UsageError, match="has 1 run; --resume"):
        later.read(resume=False, mix=False)
    later.read(resume=True, mix=False)
    assert later.unused_runs == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "new"}', '{"format": 1}', '{"provenance": {"x": 1}}'])
def test_damaged_files_are_one_line(tmp_path: Path, text: str) -> None:
    directory = StudyDirectory(tmp_path / "s")
    record(directory, "ab", "valid")
    (attempt,) = directory.attempts("ab")
    (attempt.path / "attempt.json").write_text(text)
    (directory.path / "study.json").write_text(text)
    for read in (directory.study, lambda: directory.attempts("ab")):
        with pytest.raises(RunDirError, match=r"json: [^\n]+$"):
            read()


def test_levels_are_shown_as_they_are(
    sweep: Callable[..., Sweep], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")  # rich draws the table
    levels = "[red] and [/red]"
    shown = sweep(repetitions=1)
    shown.study = replace(
        shown.study,
        factors={"aqm": ()},
        configurations=(replace(shown.study.configurations[0], levels=(levels,)),),
    )
    with SweepProgress(shown, 1):
        pass
    assert levels in capsys.readouterr().err


def test_a_point_is_rewritten_when_its_files_have_moved(
    sweep: Callable[..., Sweep], monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = sweep(repetitions=1)
    (point,) = moved.points
    path = moved.directory.point_path(point) / "point.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"format": 1}')
    moved.read(resume=False, mix=False)
    execute(moved, monkeypatch, {1: ["valid"]})
    written = moved.directory.point(point)
    assert written["description"]["file"] == str(QUICK)
    assert Path(written["request"]["network"]["file"]).is_absolute()


def test_a_prediction_is_of_what_is_left(sweep: Callable[..., Sweep]) -> None:
    predicted = sweep(repetitions=4)
    predicted.read(resume=False, mix=False)
    one, two = predicted.predict(1), predicted.predict(2)
    assert one.runs == two.runs == 4
    assert one.wall.ns == pytest.approx(2 * two.wall.ns)
    assert one.disk == two.disk
    record(predicted.directory, next(iter(predicted.points)), "valid")
    predicted.read(resume=True, mix=False)
    assert predicted.predict(1).runs == 3
    assert predicted.predict(1).disk.bytes == pytest.approx(one.disk.bytes * 3 / 4)
    assert predicted.time_left_s(1) == pytest.approx(30.0)  # three more of the 10 s that one took


def test_real_time_has_one_run_at_a_time(sweep: Callable[..., Sweep]) -> None:
    assert sweep("mininet").jobs(None) == 1
    with pytest.raises(UsageError, match="one at a time"):
        sweep("mininet").jobs(2)
    assert sweep().jobs(3) == 3


def test_runs_at_a_time_are_those_that_memory_and_cores_allow(
    sweep: Callable[..., Sweep], monkeypatch: pytest.MonkeyPatch
) -> None:
    free = Size(10**12)
    monkeypatch.setattr("atoll_testbed.preflight.requirements.free_memory", lambda: free)
    assert sweep().jobs(None) == usable_cores()
    free = Size(10**6)
    with pytest.raises(MachineError, match=r"this machine has 1\.0 MB free"):
        sweep().jobs(None)


@pytest.mark.parametrize(
    ("work", "jobs", "time"), [([], 2, 0), ([3], 2, 3), ([3, 1, 1, 1], 2, 3), ([1, 1, 4], 2, 5), ([1, 2, 3], 1, 6)]
)
def test_pieces_of_work_take_as_long_as_the_busiest(work: list[float], jobs: int, time: float) -> None:
    assert makespan(work, jobs) == time
