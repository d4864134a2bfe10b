# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in a benchmark that is at work: one line, exit code 130, and no process or file of it is left."""

import os
import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest

pytestmark = pytest.mark.lab

_STARTS_S, _GOES_S = 60, 10


def processes(mark: str) -> dict[int, str]:
    """Command lines of all that has inherited this environment, in whatever namespace."""
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark in entry.joinpath("environ").read_text(errors="replace"):
                    found[int(entry.name)] = entry.joinpath("cmdline").read_text(errors="replace").replace("\0", " ")
            except OSError:
                continue
    return found


def wait_until_at_work(mark: str, word: str, limit_s: float) -> None:
    """Return when one of these processes is this one."""
    deadline = time.monotonic() + limit_s
    while not any(word in line for line in processes(mark).values()):
        assert time.monotonic() < deadline, f"no {word} within {limit_s} s: {processes(mark)}"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("name", "at_work"),
    [
        pytest.param("controller", "ovs-vswitchd"),
        pytest.param("hosts", "sshd", marks=pytest.mark.skipif(os.geteuid() != 0, reason="takes root")),
        pytest.param("traffic", "atoll-host load"),
        pytest.param("link", "rustc", id="link, being built"),
    ],
)
def test_ctrl_c_leaves_one_line_and_nothing_else(project: Path, tmp_path: Path, name: str, at_work: str) -> None:
    """The signal goes to the whole group, as a terminal sends it: to parts, namespaces' first processes, programs."""
    made = tmp_path / "made"
    made.mkdir()
    mark = f"ATOLL_TEST_MARK={uuid.uuid4().hex}"
    variable, _, content = mark.partition("=")
    process = subprocess.Popen(
        [project / "benchmarks" / name / "run", "--quick", "--json", tmp_path / "results.json"],
        env={**os.environ, variable: content, "TMPDIR": str(made), "CARGO_TARGET_DIR": str(tmp_path / "target")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until_at_work(mark, at_work, _STARTS_S)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=_GOES_S)
        assert process.returncode == 130
        assert "Traceback" not in said
        assert said.splitlines()[-1].startswith("interrupted: ")
        assert sum(not line.startswith("bench-") for line in said.splitlines()) == 1
        deadline = time.monotonic() + _GOES_S
        while processes(mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert processes(mark) == {}
        assert list(made.iterdir()) == []
    finally:
        for pid in processes(mark):
            os.kill(pid, signal.SIGKILL)
