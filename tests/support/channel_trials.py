# SPDX-License-Identifier: Apache-2.0
"""Where a trial of channels is made (channels_guest.py): in the kernel for virtual time, or here, in real time."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from atoll_core.errors import LabError
from atoll_emulation.uml.boot import VirtualClock, run_in_uml
from atoll_emulation.uml.kernel import find_virtual_kernel
from tests.guests.channels_guest import FLOW_BYTES, Finding, Trial
from tests.support.sandbox import ROOT

_MEMORY_MB = 1500
_WIRE = 1.06  # IP bytes of a flow of 10 kB toward the client, by its bytes


def room_for_all(channels: int) -> int:
    """A queue (bytes) in which a flow of every channel has room, 2 MB at least: nothing is ever lost."""
    return max(2_000_000, round(channels * FLOW_BYTES * _WIRE))


def in_virtual_time(trial: Trial, output: Path, limit_s: float) -> Finding:
    """Make it in the kernel for virtual time. Raises LabError, MachineError."""
    argv = _argv(trial)
    status, console = run_in_uml(
        argv, output, limit_s=limit_s, kernel=find_virtual_kernel(), clock=VirtualClock(1), memory_mb=_MEMORY_MB
    )
    return _finding(status, console, console)


def in_real_time(trial: Trial, limit_s: float) -> Finding:
    """Make it in namespaces of its own, of which nothing is left when it ends. Raises LabError, TimeoutExpired."""
    inside = 'mount -t tmpfs none /run && exec "$@"'
    unshare = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    done = subprocess.run(
        [*unshare, "sh", "-c", inside, "sh", *_argv(trial)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    return _finding(done.returncode, done.stdout, done.stderr)


def _argv(trial: Trial) -> list[str]:
    return [sys.executable, "-m", "tests.guests.channels_guest", json.dumps(asdict(trial))]


def _finding(status: int, output: str, complaint: str) -> Finding:
    if status != 0:
        last = (complaint.strip().splitlines() or ["it said nothing"])[-1]
        raise LabError(f"a trial of channels ended with status {status}: {last}")
    return Finding(**json.loads(output.splitlines()[-1]))
