# SPDX-License-Identifier: Apache-2.0
"""Standard output that cannot be written is told in one line, whoever writes: print, the library of verbs, rich."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from atoll_cli.terminal.stdout_errors import plainly_failing
from tests.support.synthetic_run import begin, experiment, network


def atoll(*words: str, out: str, unbuffered: bool = False) -> subprocess.CompletedProcess[str]:
    """The program, with standard output by way of the shell: to a file or into another program."""
    environment = {key: text for key, text in os.environ.items() if key != "PYTHONUNBUFFERED"}
    environment |= {"PYTHONUNBUFFERED": "1"} if unbuffered else {}
    script = f'"$0" -m atoll_cli.main "$@" {out}'
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", script, sys.executable, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize("words", [["--version"], ["plan", "--help"], ["plan", "examples/geo.yaml"]])
def test_a_full_disk_is_one_line(
    words: list[str], unbuffered: bool, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    done = atoll(*words, out="> /dev/full", unbuffered=unbuffered)
    assert (done.returncode, done.stderr) == (1, "standard output cannot be written: No space left on device\n")


def test_a_full_disk_is_one_line_of_what_rich_prints(tmp_path: Path) -> None:
    run = begin(tmp_path, experiment(), network())
    done = atoll("report", str(run.path), out="> /dev/full")
    assert (done.returncode, done.stderr) == (1, "standard output cannot be written: No space left on device\n")


def test_a_reader_who_has_seen_enough_is_no_mistake(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    for words in (["--help"], ["plan", "examples/geo.yaml"]):
        done = atoll(*words, out="| true")
        assert (done.returncode, done.stderr) in [(0, ""), (1, "")]


def test_no_standard_output_at_all_is_no_mistake() -> None:
    done = atoll("--version", out=">&-")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unbuffered", [False, True])
def test_output_keeps_its_buffer_or_has_none(unbuffered: bool) -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    with os.fdopen(read, "rb", 0) as reader, os.fdopen(write, "w", encoding="utf-8") as ours:
        ours.reconfigure(write_through=unbuffered)
        with plainly_failing(ours) as output:
            output.write("step")
            assert reader.read() == (b"step" if unbuffered else None)
            output.flush()
        assert unbuffered or reader.read() == b"step"
