# SPDX-License-Identifier: Apache-2.0
"""Sweeps that are killed at random instants and resumed, for a test and for benchmarks/studies."""

import hashlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import zstandard

from tests.support.sandbox import ATOLL, QUICK

STUDY = f"name: tiny\nexperiment: {QUICK}\nfactors: {{traffic.channels: [6, 12]}}\nseeds: [1, 2]\n"
"""Four runs of two seconds."""

_DIES_S = 10  # the kernel delivers a parent's death at once; a kernel of many processes takes a while


def captures(study: Path) -> dict[str, str]:
    """The SHA-256 of every capture of the runs of a study, by point and name."""
    found: dict[str, str] = {}
    for path in study.glob("points/*/*/captures/*.pcap.zst"):
        with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as content:
            found[f"{path.parts[-4]}/{path.name}"] = hashlib.sha256(content.read()).hexdigest()
    return found


def processes_in(study: Path) -> list[str]:
    """Command lines that name a directory, of processes that are alive."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(study) in line:
                found.append(line)
    return found


def left_after_death(study: Path) -> list[str]:
    """Processes that a killed sweep left, after the time that they take to die."""
    until = time.monotonic() + _DIES_S
    while (found := processes_in(study)) and time.monotonic() < until:
        time.sleep(0.1)
    return found


def kill_at_random(folder: Path, kills: int, within_s: float, draw: random.Random) -> list[Path]:
    """Kill sweeps of :data:`STUDY` with SIGKILL, each at an instant up to ``within_s`` after it began, and resume them.

    A sweep that ends before its instant is followed by one in a directory of its own. Returns the directories, whose
    sweeps have all come to their end. Raises AssertionError if one fails, or leaves a process.
    """
    folder.mkdir(exist_ok=True)
    (folder / "study.yaml").write_text(STUDY)
    directories = [folder / "1"]
    while kills:
        sweep = _started(folder, directories[-1])
        try:
            code = sweep.wait(draw.uniform(0, within_s))
        except subprocess.TimeoutExpired:
            os.kill(sweep.pid, signal.SIGKILL)
            sweep.wait()
            kills -= 1
            assert left_after_death(directories[-1]) == []
        else:
            assert code == 0, f"{directories[-1]}: exit code {code}"
            directories.append(folder / str(len(directories) + 1))
    assert _started(folder, directories[-1]).wait() == 0
    return directories


def _started(folder: Path, directory: Path) -> subprocess.Popen[bytes]:
    command = [ATOLL, "sweep", "study.yaml", str(directory), "--resume"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
