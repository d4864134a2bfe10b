# SPDX-License-Identifier: Apache-2.0
"""``make bench-analysis``: peak memory and time of the analysis and the report of runs of several lengths.

With ``--tshark``: the time to the summary next to that of tshark's fields of the same captures.

Run directories are made below a directory of this command and deleted at its end; an hour takes half a gigabyte there.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import zstandard

from analysisbench.long_run import make
from atoll_hosts.binary import find_binary

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
    parser.add_argument("--tshark", type=int, metavar="PAIRS", help="compare with tshark on one run, so many times")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the runs there and leave them")
    arguments = parser.parse_args()
    if arguments.tshark:
        with tempfile.TemporaryDirectory(prefix="bench-analysis-") as scratch:
            return _against_tshark(Path(scratch), 60 if arguments.quick else 600, arguments.tshark)
    costs: list[Cost] = []
    with tempfile.TemporaryDirectory(prefix="bench-analysis-") as scratch:
        for hours in [1 / 60] if arguments.quick else arguments.hours:
            run = make((arguments.keep or Path(scratch)) / f"{hours:g}h", round(hours * 3600))
            for stage in _STAGES:
                cost = _measured(hours, stage, run.path)
                if cost is None:
                    return 1
                costs.append(cost)
                if not arguments.json:
                    print(f"{hours:6.2f} h  {stage:<24} {cost.peak_mb:8.0f} MB  {cost.seconds:7.1f} s", flush=True)
    if arguments.json:
        print(json.dumps([asdict(cost) for cost in costs]))
    return 0


_FIELDS = ("frame.time_epoch", "ip.src", "ip.dst", "ip.len", "tcp.srcport", "tcp.dstport", "tcp.seq_raw",
           "tcp.ack_raw", "tcp.len", "tcp.flags")  # fmt: skip


def _against_tshark(folder: Path, seconds: int, pairs: int) -> int:
    """Compare the time from captures to summary with the time that tshark takes to print the fields of each packet."""
    if not shutil.which("tshark"):
        sys.stderr.write("bench-analysis: there is no tshark; apt install tshark\n")
        return 1
    run = make(folder, seconds)
    captures = sorted(run.captures.glob("*.pcap.zst"))
    plain = [folder / path.stem for path in captures]
    for path, target in zip(captures, plain, strict=True):
        with path.open("rb") as source, target.open("wb") as sink:
            zstandard.ZstdDecompressor().copy_stream(source, sink)
    ours: list[float] = []
    ratios: list[float] = []
    packets = 0
    for _ in range(pairs):
        cost = _measured(seconds / 3600, _STAGES[0], run.path)
        if cost is None:
            return 1
        began, packets = time.monotonic(), 0
        for path in plain:
            fields = [f"-e{field}" for field in _FIELDS]
            command = ["tshark", "-n", "-r", str(path), "-o", "ip.defragment:FALSE", "-T", "fields", *fields]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
            packets += done.stdout.count(b"\n")
        theirs = time.monotonic() - began
        ours.append(cost.seconds)
        ratios.append(theirs / cost.seconds)
        print(f"{packets} packets: summary {cost.seconds:.2f} s, {cost.peak_mb:.0f} MB; tshark {theirs:.2f} s; "
              f"ratio {ratios[-1]:.1f}", flush=True)  # fmt: skip
    print(f"median: {1e6 * median(ours) / packets:.2f} s for 1,000,000 packets, ratio {median(ratios):.1f}")
    return 0


def _measured(hours: float, stage: str, run: Path) -> Cost | None:
    began = time.monotonic()
    options = ["--binary", str(find_binary())] if stage == _STAGES[0] else []
    process = subprocess.Popen([sys.executable, "-m", stage, str(run), *options], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.stderr.write(f"bench-analysis: {stage} failed\n")
        return None
    return Cost(hours, stage, used.ru_maxrss * 1024 / 1e6, time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
