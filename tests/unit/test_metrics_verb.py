# SPDX-License-Identifier: Apache-2.0
"""`atoll metrics load`: what is wrong with the runs is told before a database is looked for, and all of it at once."""

from pathlib import Path

import pytest

from atoll.cli.metrics import load
from atoll.model.errors import RunDirError, UsageError
from atoll.rundir import RunDir
from atoll.rundir.spool import SPOOL


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
    with pytest.raises(RunDirError, match=r"^\S+/nope: not a run directory \(no manifest.json\)"):
        load([tmp_path / "nope"])


def test_all_runs_that_cannot_be_loaded_are_told_a_line_each(tmp_path: Path) -> None:
    bare, cut = RunDir.create(tmp_path, "geo", 0), spooled(tmp_path)
    with pytest.raises(RunDirError) as told:
        load([tmp_path / "nope", bare.path, cut.path], times="aligned")
    lines = str(told.value).splitlines()
    assert [line.partition(": ")[2].partition(":")[0].partition(" (")[0] for line in lines] == [
        "not a run directory",
        "no metrics of a run",
        "its measurement did not end, so it cannot be aligned; take --times recorded",
    ]


def test_a_wrong_word_comes_before_runs_and_database(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--times sometimes: there are recorded, aligned"):
        load([tmp_path / "nope"], times="sometimes")


def test_runs_that_can_be_loaded_want_a_database(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no database is set"):
        load([spooled(tmp_path).path])
