# SPDX-License-Identifier: Apache-2.0
"""A skip that tests/skips.py does not announce fails, however it comes about and however many workers there are."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tests.skips import ALLOWED, judge

SKIPPED = """
import pytest

@pytest.mark.skipif(True, reason="by a mark")
def test_mark(): ...

@pytest.fixture
def thing():
    pytest.skip("by a fixture")

def test_fixture(thing): ...

def test_itself():
    pytest.skip("by itself")

def test_other(): ...

@pytest.mark.skipif(True, reason="left out by -m")
@pytest.mark.lab
def test_left_out(): ...
"""


def run(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n    lab: l\n")
    (directory / "conftest.py").write_text(
        "from tests.skips import pytest_make_collect_report, pytest_runtest_call, pytest_runtest_setup\n"
    )
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not lab", "-ra", *options]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    return subprocess.run(
        argv, cwd=directory, env=environment, capture_output=True, text=True, check=False, timeout=100
    )


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one", "xdist"])
def test_a_skip_that_is_not_announced_fails(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "test_skipped.py").write_text(SKIPPED)
    done = run(tmp_path, *options)
    assert done.returncode == 1
    outcomes = re.findall(r"(\d+) (failed|errors?|passed|skipped)", done.stdout.splitlines()[-1])
    assert outcomes == [("1", "failed"), ("1", "passed"), ("2", "errors")], done.stdout
    for how in ("by a mark", "by a fixture", "by itself"):
        assert f"skipped, which tests/skips.py does not allow here: {how}" in done.stdout
    assert "left out by -m" not in done.stdout


def test_a_file_that_is_skipped_as_a_whole_fails(tmp_path: Path) -> None:
    (tmp_path / "test_whole.py").write_text("import pytest\npytest.importorskip('nothing_of_this_name')\n")
    done = run(tmp_path)
    assert done.returncode != 0
    assert "is skipped as a whole" in done.stdout


def test_a_missing_program_is_announced_where_it_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root on a distribution that has the package has to install it."""
    test, reason = (
        "tests/system/hardware/test_rack.py::test_x",
        "there is no sshd on this machine; run: tools/setup test",
    )
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("tests.skips.no_package", lambda name: False)
    with pytest.raises(pytest.fail.Exception, match="there is no sshd"):
        judge(test, reason)
    monkeypatch.setattr("tests.skips.no_package", lambda name: name == "openssh-server")
    judge(test, reason)
    monkeypatch.setattr("tests.skips.no_package", lambda name: False)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    judge(test, reason)
    with pytest.raises(pytest.fail.Exception):
        judge("tests/unit/hosts/test_rack.py::test_x", reason)


def test_every_allowed_skip_says_why(project: Path) -> None:
    """And is of tests that are there."""
    tests = [str(path.relative_to(project)) for path in (project / "tests").rglob("test_*.py")]
    for allowed in ALLOWED:
        assert allowed.why
        assert any(re.match(allowed.tests, test) for test in tests), allowed


def test_no_allowed_skip_depends_on_the_processor() -> None:
    """A condition on the processor would leave those tests to users of the other kind of processor."""
    looked: list[str] = []
    is_over = False

    def look(event: str, arguments: tuple[object, ...]) -> None:
        if not is_over and event in {"open", "subprocess.Popen"}:
            looked.append(f"{event} {arguments[:2]}")

    sys.addaudithook(look)
    for allowed in ALLOWED:
        allowed.when()
    is_over = True
    assert not [each for each in looked if re.search("cpu|uname", each)]
