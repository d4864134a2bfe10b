# SPDX-License-Identifier: Apache-2.0
"""A target of which fewer tests run than the repository records fails, however many workers there are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT

CONFTEST = """
from pathlib import Path
import tests.counts
import tests.skips
from tests.counts import pytest_addoption, pytest_configure
from tests.skips import Allowed, always
tests.counts.COUNTS = Path(__file__).with_name("counts.toml")
tests.skips.ALLOWED = (Allowed("", "announced", always, "-"), Allowed("", "impossible", lambda: True, "-"))
"""
TESTS = """
import pytest
def test_passes(): ...
@pytest.mark.xfail
def test_fails(): assert False
@pytest.mark.skip(reason="announced")
def test_skipped(): ...
"""
ALL_SKIPPED = """
import pytest
pytestmark = pytest.mark.skip(reason="{}")
def test_nobody_runs(): ...
"""


def run(directory: Path, recorded: int, *options: str, lab: bool = False) -> tuple[int, str]:
    """Exit status and output of the tests of that directory, the whole of a target ``all``."""
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "counts.toml").write_text(f"all = {recorded}\n")
    (directory / "test_some.py").write_text(TESTS)
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", directory, "."]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    environment.pop("ATOLL_REQUIRE_LAB", None)
    done = subprocess.run(
        [*argv, *options],
        cwd=directory,
        env=environment | ({"ATOLL_REQUIRE_LAB": "1"} if lab else {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one", "xdist"])
def test_fewer_tests_than_recorded_fail_and_say_what_to_write(tmp_path: Path, options: tuple[str, ...]) -> None:
    status, said = run(tmp_path, 3, "--target", "all", *options)
    assert status == 1
    assert "ERROR: 2 tests ran and 1 were skipped: fewer ran than the 3 of tests/counts.toml" in said
    assert said.count("write there: all = 2") == 1


def test_as_many_tests_as_recorded_pass(tmp_path: Path) -> None:
    status, said = run(tmp_path, 2, "--target", "all")
    assert status == 0, said
    assert "counts.toml" not in said
    assert "cannot run here" not in said


def test_a_test_that_fails_has_run(tmp_path: Path) -> None:
    (tmp_path / "test_more.py").write_text("def test_fails(): assert False\ndef test_cannot(missing): ...\n")
    status, said = run(tmp_path, 4, "--target", "all")
    assert status == 1
    assert "counts.toml" not in said


def test_more_tests_than_recorded_pass_and_are_to_be_recorded(tmp_path: Path) -> None:
    status, said = run(tmp_path, 1, "--target", "all")
    assert status == 0, said
    assert "2 tests ran; write so in tests/counts.toml: all = 2" in said


def test_a_choice_of_tests_is_no_target(tmp_path: Path) -> None:
    status, said = run(tmp_path, 4, "-k", "passes")
    assert status == 0, said


def test_an_unknown_target_is_refused(tmp_path: Path) -> None:
    status, said = run(tmp_path, 4, "--target", "al")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "--target al: tests/counts.toml records all" in said


def test_what_a_machine_cannot_run_may_be_missing_but_not_in_ci(tmp_path: Path) -> None:
    (tmp_path / "test_whole.py").write_text(ALL_SKIPPED.format("impossible"))
    status, said = run(tmp_path, 3, "--target", "all")
    assert status == 0, said
    assert "2 of 3 tests ran; cannot run here: impossible (1)" in said
    assert run(tmp_path, 4, "--target", "all")[0] == 1
    status, said = run(tmp_path, 3, "--target", "all", lab=True)
    assert status == 1
    assert "ERROR: 2 tests ran and 2 were skipped: fewer ran than the 3 of tests/counts.toml" in said
    assert "ERROR: test_whole.py: all its tests were skipped" in said


def test_a_file_of_which_every_test_is_skipped_fails_where_the_machine_could_run_it(tmp_path: Path) -> None:
    (tmp_path / "test_whole.py").write_text(ALL_SKIPPED.format("announced"))
    status, said = run(tmp_path, 2, "--target", "all")
    assert status == 1
    assert "ERROR: test_whole.py: all its tests were skipped" in said
    assert "test_some.py: all" not in said


@pytest.mark.skipif(os.geteuid() != 0, reason="recording takes root")
def test_a_run_that_passes_is_recorded_when_asked_to(tmp_path: Path) -> None:
    status, said = run(tmp_path, 7, "--target", "all", "--record")
    assert status == 0, said
    assert (tmp_path / "counts.toml").read_text() == "all = 2\n"
    (tmp_path / "test_more.py").write_text("def test_fails(): assert False\n")
    assert run(tmp_path, 7, "--target", "all", "--record")[0] == 1
    assert (tmp_path / "counts.toml").read_text() == "all = 7\n"


def test_make_counts_whole_targets_alone(project: Path) -> None:
    """A user's own -k chooses."""
    environment = {name: text for name, text in os.environ.items() if name not in {"MAKEFLAGS", "RECORD"}}
    for args, expected in (
        ("", "--target test-page"),
        ("RECORD=1", "--target test-page --record"),
        ("PYTEST_ARGS=-k some", "-k some"),
    ):
        argv = ["make", "--dry-run", "test-page", *([args] if args else [])]
        said = subprocess.run(argv, cwd=project, env=environment, capture_output=True, text=True, check=True).stdout
        (line,) = [line for line in said.splitlines() if "pytest" in line]
        assert line.endswith(expected)
        assert ("--target" in line) == ("--target" in expected)
