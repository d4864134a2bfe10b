# SPDX-License-Identifier: Apache-2.0
"""Run by test_full_disk in a mount namespace of its own: fill a small file system under a run and say what happened.

`python -m tests.guests.full_disk DIRECTORY` prints one JSON object; DIRECTORY becomes a tmpfs of 8 MB.
"""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from atoll_analysis import analyse
from atoll_analysis.run_directory import MetricsSpool, RunDir
from atoll_analysis.run_directory.metrics_spool import read_spool
from atoll_core.errors import RunError
from atoll_core.metrics.line_protocol import MetricPoint
from atoll_dashboards.report.report import write_report
from atoll_hosts.binary import find_binary
from tests.support.synthetic_run import simulate


def fill(folder: Path, leave: int) -> Path:
    """Leave ``leave`` bytes free on the file system."""
    filler = folder / "filler"
    with filler.open("wb") as file:
        free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize - leave
        try:
            os.posix_fallocate(file.fileno(), 0, max(4096, free))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    return filler


def files(run: RunDir) -> dict[str, bytes]:
    return {
        str(path.relative_to(run.path)): path.read_bytes() for path in sorted(run.path.rglob("*")) if path.is_file()
    }


def attempt(folder: Path, run: RunDir, leave: int, work: Callable[[], Any]) -> dict[str, Any]:
    """Do the work on a full disk; say what it raised and which files it changed or left."""
    before = files(run)
    filler = fill(folder, leave)
    try:
        work()
        raised = None
    except RunError as error:
        raised = str(error)
    finally:
        filler.unlink()
    after = files(run)
    return {
        "raised": raised,
        "changed": [name for name in before if after.get(name) != before[name]],
        "new": [name for name in after if name not in before],
    }


def main(folder: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], check=True)
    run = simulate(folder / "runs", seconds=5)
    said: dict[str, Any] = {}
    said["compress"] = attempt(folder, run, 0, run.compress_captures)
    said["first analysis"] = attempt(folder, run, 65_536, lambda: analyse(run, find_binary()))
    analyse(run, find_binary())
    said["second analysis"] = attempt(folder, run, 65_536, lambda: analyse(run, find_binary()))
    said["analyses"] = [
        attempt(folder, run, free, lambda: analyse(run, find_binary())) for free in range(100_000, 2_500_000, 200_000)
    ]
    said["report"] = attempt(folder, run, 16_384, lambda: write_report(run))
    said["manifest"] = attempt(folder, run, 0, lambda: run.update_manifest({"outcome": "x" * 100_000}))

    def fill_events() -> None:
        for number in range(100_000):
            run.append_event("step", number, step="x" * 1000)

    said["events"] = attempt(folder, run, 16_384, fill_events)
    said["events"]["last whole"] = (run.path / "events.jsonl").read_bytes().endswith(b"}\n")
    path = run.path / "metrics.lp.zst"
    spool = MetricsSpool(path)
    written = 0

    def fill_spool() -> None:
        nonlocal written
        while True:
            spool.write([MetricPoint("m", {}, {"noise": os.urandom(20_000).hex()}, written)])
            spool.flush()
            written += 1

    said["spool"] = attempt(folder, run, 131_072, fill_spool)
    said["spool"]["kept"] = len(list(read_spool(path))) == written > 0
    spool.close()  # now that there is room again
    said["spool"]["followed"] = len(list(read_spool(path))) == written + 1
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
