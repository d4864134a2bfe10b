# SPDX-License-Identifier: Apache-2.0
"""The second try of tests in real time: who has one, and that it decides."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT

# Fails at its first call and passes at its second: each call leaves a mark.
SPOILT = """
import pathlib, pytest
{marks}
@pytest.mark.parametrize("number", range({count}))
def test_spoilt(number):
    mark = pathlib.Path(__file__).with_name(f"tried-{{number}}")
    again = mark.exists()
    mark.touch()
    assert again
"""


@pytest.mark.parametrize(
    ("marks", "count", "passes"),
    [
        ("pytestmark = pytest.mark.lab", 1, True),
        ("pytestmark = pytest.mark.lab", 4, True),
        ("pytestmark = pytest.mark.lab", 5, False),
        ("pytestmark = [pytest.mark.lab, pytest.mark.virtual]", 1, False),
        ("pytestmark = [pytest.mark.lab, pytest.mark.virtual, pytest.mark.figures]", 1, True),
        ("", 1, False),
    ],
)
def test_only_a_few_tests_of_a_laboratory_in_real_time_have_a_second_try(
    tmp_path: Path, marks: str, count: int, passes: bool
) -> None:
    (tmp_path / "test_spoilt.py").write_text(SPOILT.format(marks=marks, count=count))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    lab: l\n    virtual: v\n    figures: f\n")
    assert (again(tmp_path, *(["-n", "2"] if count > 1 else [])) == 0) is passes


def test_what_fails_twice_fails(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import pytest\n@pytest.mark.lab\ndef test_broken():\n    assert False\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    lab: l\n")
    assert again(tmp_path) == 1


def test_a_file_that_cannot_be_read_fails(tmp_path: Path) -> None:
    (tmp_path / "test_unreadable.py").write_text("import nothing_of_this_name\n")
    assert again(tmp_path) != 0


def again(directory: Path, *options: str) -> int:
    """The exit code of ``tests.again`` for the tests in a directory, as `make test` calls it."""
    argv = [sys.executable, "-m", "tests.again", "-p", "no:cacheprovider", "-q", *options]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    return subprocess.run(
        argv, cwd=directory, env=environment, capture_output=True, check=False, timeout=100
    ).returncode
