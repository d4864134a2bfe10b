# SPDX-License-Identifier: Apache-2.0
"""Whole `atoll run --on virtual` commands, timed from outside, and split into steps by the run's events."""

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from atoll_analysis.run_directory import RunDir
from atoll_core.errors import AtollError

ROOT = Path(__file__).resolve().parents[3]
_ATOLL = Path(sys.executable).with_name("atoll")


@dataclass(frozen=True, slots=True)
class Case:
    """An experiment to time; ``one_core``: the command and all it starts, analysis included, on a single core."""

    name: str
    duration_s: int
    words: tuple[str, ...]
    one_core: bool = False


_MEO_LINK = (
    ("to_island.rate", "320 Mbit/s"),
    ("to_world.rate", "80 Mbit/s"),
    ("to_island.queue", "2 MB"),
    ("to_world.queue", "2 MB"),
)
_MEO = (
    "examples/meo.yaml",
    *("--set", "traffic.channels=400"),
    *(word for key, setting in _MEO_LINK for word in ("--set", f"links.sat.{key}={setting}")),
)
_GEO = ("examples/geo.yaml",)

CASES = {
    "geo": Case("GEO, 16 Mbit/s, 20 channels", 600, _GEO),
    "geo-one-core": Case("the same on one core", 600, _GEO, one_core=True),
    "meo": Case("MEO, 320 Mbit/s, 400 channels, four routed boxes", 90, _MEO),
}
BRIEF = Case("GEO, a minute", 60, _GEO)
"""The experiment that is run alone and two at a time."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of the wall clock, and where they went: parts to a tenth, as often as a run is looked at from outside."""

    wall_s: float
    boot_s: float  # kernel, lab, controller: until switches and machines are brought to the plan
    test_s: float  # plan, configuration test, captures, servers and clients: until the load begins
    load_s: float
    record_s: float  # draining, tables and counters, the kernel's end
    analysis_s: float  # outside: compression, tables, verdict, report
    valid: bool
    revision: str


def timed(case: Case) -> dict[str, Any]:
    """Run a case once. Raises AtollError when the run fails."""
    argv = [str(_ATOLL), "run", *case.words, "--on", "virtual", "--duration", f"{case.duration_s} s", "--json"]
    if case.one_core:
        argv = ["taskset", "--cpu-list", str(max(os.sched_getaffinity(0))), *argv]
    with tempfile.TemporaryDirectory(prefix="atoll-bench-") as runs:
        began = time.monotonic()
        done = subprocess.run([*argv, "--runs", runs], cwd=ROOT, capture_output=True, text=True, check=False)
        wall_s = time.monotonic() - began
        if done.returncode not in (0, 3):
            raise AtollError(f"{' '.join(argv)}: {done.stderr.strip().splitlines()[-1]}")
        summary = json.loads(done.stdout)
        manifest = RunDir.open(Path(summary["run_dir"])).manifest()
    host, steps = manifest["host"], manifest["host"]["steps_s"]
    return asdict(
        Timing(
            wall_s=round(wall_s, 2),
            boot_s=round(steps["apply"], 2),
            test_s=round(steps["measure"] - steps["apply"], 2),
            load_s=round(steps["stop"] - steps["measure"], 2),
            record_s=round(host["wall_s"] - steps["stop"], 2),
            analysis_s=round(wall_s - host["wall_s"], 2),
            valid=summary["verdict"] != "invalid",
            revision=str(manifest["revision"]),
        )
    )


def together(case: Case, count: int) -> list[dict[str, Any]]:
    """The case several times at once."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(timed, [case] * count))
