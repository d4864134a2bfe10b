# SPDX-License-Identifier: Apache-2.0
"""Benchmarks end with one line when they are interrupted (benchmarks/common/benchkit/program.py)."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchkit.program import part

_WAITS = """
import signal, sys, tempfile, time
with tempfile.TemporaryDirectory():
    print(sys.argv, flush=True)
    {wait}
"""


def started(folder: Path, name: str, wait: str, argv: list[str]) -> subprocess.Popen[str]:
    """A benchmark's module that has made a directory below ``folder``, and waits."""
    path = folder.joinpath(*name.split(".")).with_suffix(".py")
    path.parent.mkdir(exist_ok=True)
    path.write_text(_WAITS.format(wait=wait))
    (folder / "made").mkdir()
    paths = os.pathsep.join([str(folder), *(each for each in sys.path if each)])
    environment = {**os.environ, "TMPDIR": str(folder / "made"), "PYTHONPATH": paths}
    environment.pop("PYTHONUNBUFFERED", None)  # what is printed waits in the process, as it does for most people
    pipe = subprocess.PIPE
    process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == f"{[str(path), 'word']}\n"
    assert len(list((folder / "made").iterdir())) == 1
    return process


def ended(folder: Path, process: subprocess.Popen[str], number: int) -> tuple[int, str]:
    """Exit code and last words after that signal; what it had made is gone."""
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert list((folder / "made").iterdir()) == []
    return process.returncode, said


def benchmark(name: str) -> list[str]:
    """The command line in a benchmark's ``run``."""
    return [sys.executable, "-m", "benchkit.program", name, "word"]


@pytest.mark.parametrize("wait", ["time.sleep(600)", "exec('time.sleep(600)')"])
def test_an_interrupted_benchmark_says_so_in_a_line(tmp_path: Path, wait: str) -> None:
    """And ends with 130, wherever it was: CPython ends by the signal after an exec of text, whatever comes then."""
    code, said = ended(tmp_path, started(tmp_path, "bench", wait, benchmark("bench")), signal.SIGINT)
    assert code == 130
    assert said == "interrupted: measurements not printed yet are lost; nothing is left running\n"


def test_what_was_told_before_is_not_lost(tmp_path: Path) -> None:
    """Into a pipe, too, where Python keeps it back until there is more."""
    wait = "print('measured', end=''); print('waiting', file=sys.stderr, flush=True); time.sleep(600)"
    process = started(tmp_path, "bench", wait, benchmark("bench"))
    assert process.stderr is not None
    assert process.stderr.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    answer, _ = process.communicate(timeout=60)
    assert (process.returncode, answer) == (130, "measured")


def test_a_part_leaves_the_line_to_who_started_it(tmp_path: Path) -> None:
    process = started(tmp_path, "bench.measure", "time.sleep(600)", part("bench.measure", "word"))
    assert ended(tmp_path, process, signal.SIGINT) == (130, "")


def test_a_benchmark_that_is_terminated_takes_away_what_it_made(tmp_path: Path) -> None:
    process = started(tmp_path, "bench", "time.sleep(600)", benchmark("bench"))
    assert ended(tmp_path, process, signal.SIGTERM) == (143, "")


def test_an_exit_code_is_the_modules_own(tmp_path: Path) -> None:
    process = started(tmp_path, "bench", "sys.exit(len(sys.stdin.readline()))", benchmark("bench"))
    process.communicate("seven.\n", timeout=60)
    assert process.returncode == 7


def test_every_benchmark_is_started_so(project: Path) -> None:
    """Its own process and those Python modules that it starts for a part of the work."""
    runs = sorted((project / "benchmarks").glob("*/run"))
    assert len(runs) >= 6
    for run in runs:
        assert "-m benchkit.program " in run.read_text(), run
