# SPDX-License-Identifier: Apache-2.0
"""For tests that stand on virtual time: experiments run in it, programs run in it, and what a run captured."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from atoll_analysis.tables.packet_records import RECORD
from atoll_emulation.uml.boot import VirtualClock, run_in_uml
from atoll_emulation.uml.kernel import find_virtual_kernel
from atoll_hosts.binary import find_binary
from tests.support.sandbox import ATOLL

HANGS_S = 600
"""After this long of the machine's time, a program is taken to hang: no test in virtual time is bound to that clock."""

RESOLUTION_NS = 10_000
"""How far an RTT may be above the computed one: programs that wake up read a clock that takes 256 ns a reading."""


def atoll(directory: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """An atoll command in a directory of the test's."""
    return subprocess.run([ATOLL, *words], cwd=directory, capture_output=True, text=True, timeout=HANGS_S, check=False)


def run_virtually(directory: Path, *words: str | Path) -> dict[str, Any]:
    """The summary of `atoll run --on virtual` with these words; the run must be valid."""
    done = atoll(directory, "run", "--on", "virtual", "--json", *words)
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def said_inside(module: str, output: Path, *words: str | Path) -> dict[str, Any]:
    """The JSON object a module prints last in the kernel for virtual time, where /out is ``output``."""
    command = [sys.executable, "-m", module, *map(str, words)]
    kernel, clock = find_virtual_kernel(), VirtualClock(1, limit_s=600)
    status, console = run_in_uml(command, output, limit_s=HANGS_S, kernel=kernel, clock=clock, memory_mb=2048)
    assert status == 0, console
    return json.loads(console.splitlines()[-1])


def checks(run_dir: Path) -> dict[tuple[str, str], int]:
    """What the configuration test found each path's base RTT to be beyond the delays on it (ns)."""
    events = map(json.loads, (run_dir / "events.jsonl").read_text().splitlines())
    return {
        (event["src"], event["dst"]): event["rtt_min_ns"] - event["expected_ns"]
        for event in events
        if event["type"] == "check"
    }


def packets(run_dir: Path, capture: str, scratch: Path) -> Any:
    """The records of one of the run's captures, in the order of their passage."""
    out = scratch / f"{capture}.bin"
    source = run_dir / "captures" / f"{capture}.pcap.zst"
    argv = [find_binary(), "pcap", "records", source, out, "--side", "10.20.0.0/16"]
    subprocess.run(argv, check=True, timeout=HANGS_S, stdout=subprocess.DEVNULL)
    return np.fromfile(out, RECORD)
