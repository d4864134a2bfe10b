# SPDX-License-Identifier: Apache-2.0
"""`atoll metrics load`: what is wrong with the runs is told before a database is looked for, and all of it at once."""

from pathlib import Path

import pytest
import typer

from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.metrics_spool import SPOOL
from atoll_cli.commands.metrics import load
from atoll_core.errors import RunDirError, UsageError
from atoll_dashboards.influx.influx_load import Times, loadable


@pytest.fixture(autouse=True)
def no_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user who has set none up."""
    for name in ("", "_URL", "_TOKEN", "_ORG", "_BUCKET"):
        monkeypatch.delenv(f"ATOLL_INFLUX{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def spooled(base: Path) -> RunDir:
    """A run with a spool whose measurement did not end."""
    run_dir = RunDir.create(base, "geo", 0)
    (run_dir.path / SPOOL).touch()
    return run_dir


def test_a_path_that_is_no_run_is_told_before_the_database_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match=r"^\S+/nope: there is no such directory; one of a run looks like "):
        load([tmp_path / "nope"])


def test_all_runs_that_cannot_be_loaded_are_told_a_line_each(tmp_path: Path) -> None:
    bare, cut = RunDir.create(tmp_path, "geo", 0), spooled(tmp_path)
    with pytest.raises(RunDirError) as answer:
        load([tmp_path / "nope", bare.path, cut.path], times="aligned")
    lines = str(answer.value).splitlines()
    assert [line.partition(": ")[2].partition(":")[0].partition("; one")[0] for line in lines] == [
        "there is no such directory",
        "has no metrics yet",
        "its measurement did not end, so it cannot be aligned; use --times recorded",
    ]


def test_a_run_without_metrics_that_is_alone_is_told_why_it_has_none(tmp_path: Path) -> None:
    bare = RunDir.create(tmp_path, "geo", 0)
    bare.update_manifest({"metrics": False, "outcome": "completed"})
    with pytest.raises(RunDirError, match="has no metrics, because it was made with --no-metrics; make a new run"):
        load([bare.path])
    bare.update_manifest({"metrics": True, "outcome": "failed at step apply: no way"})
    with pytest.raises(
        RunDirError, match=r"has no metrics: it ended before any were recorded \(failed at step apply: no way\)"
    ):
        load([bare.path])
    bare.update_manifest({"outcome": "completed"})
    with pytest.raises(RunDirError, match=r"has no metrics any more: metrics\.lp\.zst was deleted"):
        load([bare.path])


def test_runs_without_points_to_load_are_left_out_beside_others(tmp_path: Path) -> None:
    bare, cut, whole = RunDir.create(tmp_path, "geo", 0), spooled(tmp_path), spooled(tmp_path)
    bare.update_manifest({"metrics": False, "outcome": "completed"})
    whole.append_event("window", 5, start_ns=5, end_ns=6)
    found, left_out = loadable([bare.path, cut.path, whole.path], Times.ALIGNED)
    assert [run.path for run, _ in found] == [whole.path]
    assert [(path, points) for path, _, points in left_out] == [(bare.path, False), (cut.path, True)]
    assert left_out[1][1] == "its measurement did not end, so it cannot be aligned; use --times recorded"


@pytest.mark.parametrize("times", Times)
def test_no_way_is_named_that_would_be_refused_in_turn(tmp_path: Path, times: Times) -> None:
    """A run in virtual time that was killed has neither the end of its measurement nor the host's clock."""
    killed = spooled(tmp_path)
    killed.update_manifest({"virtual": {"clock": {"start_ns": 5}}})
    with pytest.raises(RunDirError, match=r"; the times of its points are unknown$"):
        loadable([killed.path], times)


@pytest.mark.parametrize(("times", "code"), [("recorded", 0), ("aligned", 1)])
def test_only_points_that_are_left_out_make_the_verb_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], times: str, code: int
) -> None:
    """The spools are empty, so that a database that cannot be reached takes all of them."""
    monkeypatch.setenv("ATOLL_INFLUX_URL", "http://127.0.0.1:9")
    bare, cut, whole = RunDir.create(tmp_path, "geo", 0), spooled(tmp_path), spooled(tmp_path)
    bare.update_manifest({"metrics": False, "outcome": "completed"})
    whole.append_event("window", 5, start_ns=5, end_ns=6)
    ended = 0
    try:
        load([bare.path, cut.path, whole.path], times=times)
    except typer.Exit as end:
        ended = end.exit_code
    answer = capsys.readouterr()
    assert (ended, len(answer.err.splitlines())) == (code, 1 + code)
    assert answer.err.startswith(f"left out: {bare.path}: has no metrics")
    assert f"{whole.path}: 0 points" in answer.out


def test_a_wrong_word_comes_before_runs_and_database(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--times sometimes: unknown time; known times: recorded, aligned"):
        load([tmp_path / "nope"], times="sometimes")


def test_runs_that_can_be_loaded_want_a_database(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no database is configured"):
        load([spooled(tmp_path).path])
