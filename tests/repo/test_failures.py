# SPDX-License-Identifier: Apache-2.0
"""A test that fails is named while others still run, however many workers there are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT

TESTS = """
from pathlib import Path
import pytest
def test_fails(): assert 1 == 2, "the reason"
@pytest.fixture
def broken(): raise OSError("the fixture's reason")
def test_cannot_begin(broken): ...
@pytest.mark.xfail
def test_is_expected_to_fail(): assert False
def test_others(): Path("go-on").open().read()
"""


@pytest.mark.parametrize("options", [(), ("-n", "2", "--dist", "loadfile")], ids=["one", "xdist"])
def test_a_failure_is_named_at_once_with_its_reason(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "conftest.py").write_text("from tests.failures import pytest_sessionstart\n")
    (tmp_path / "test_some.py").write_text(TESTS)
    os.mkfifo(tmp_path / "go-on")
    argv = [sys.executable, "-u", "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", tmp_path]
    with subprocess.Popen(
        [*argv, *options, "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        said = [next(line for line in running.stdout if line.startswith("FAILED")) for _ in range(2)]
        (tmp_path / "go-on").write_text("")  # the last test has waited for this
        rest = running.stdout.read()
    assert said == [
        "FAILED test_some.py::test_fails: AssertionError: the reason\n",
        "FAILED test_some.py::test_cannot_begin: OSError: the fixture's reason\n",
    ]
    assert "test_is_expected_to_fail" not in rest
    assert "1 failed, 1 passed, 1 xfailed, 1 error" in rest
