# SPDX-License-Identifier: Apache-2.0
"""``make bench-analysis``: peak memory and time of the analysis and the report of runs of several lengths.

Run directories are made below a directory of this command and deleted at its end; an hour takes half a gigabyte there.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from analysisbench.long_run import make

_STAGES = ("atoll_analysis", "atoll_dashboards.report.report")


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one stage: the largest resident set of its process or of a child, and wall time."""

    hours: float
    stage: str
    peak_mb: float
    seconds: float


def main() -> int:
    """Measure and print; exit code 1 when a stage fails."""
    parser = argparse.ArgumentParser(prog="bench-analysis", description=__doc__)
    parser.add_argument("--hours", type=float, nargs="+", default=[1.0, 4.0], help="lengths of runs [default: 1 4]")
    parser.add_argument("--quick", action="store_true", help="a run of a minute")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the runs there and leave them")
    asked = parser.parse_args()
    costs: list[Cost] = []
    with tempfile.TemporaryDirectory(prefix="bench-analysis-") as scratch:
        for hours in [1 / 60] if asked.quick else asked.hours:
            run = make((asked.keep or Path(scratch)) / f"{hours:g}h", round(hours * 3600))
            for stage in _STAGES:
                cost = _measured(hours, stage, run.path)
                if cost is None:
                    return 1
                costs.append(cost)
                if not asked.json:
                    print(f"{hours:6.2f} h  {stage:<24} {cost.peak_mb:8.0f} MB  {cost.seconds:7.1f} s", flush=True)
    if asked.json:
        print(json.dumps([asdict(cost) for cost in costs]))
    return 0


def _measured(hours: float, stage: str, run: Path) -> Cost | None:
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", stage, str(run)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.stderr.write(f"bench-analysis: {stage} failed\n")
        return None
    return Cost(hours, stage, used.ru_maxrss * 1024 / 1e6, time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
