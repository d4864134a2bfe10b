# SPDX-License-Identifier: Apache-2.0
"""`report`: tables, summary and report of a run directory, made anew."""

import json
from pathlib import Path

from atoll.analysis import analyse
from atoll.rundir import RunDir
from atoll_dashboards.report import write_report
from atoll_dashboards.terminal import print_summary
from atoll_hosts.binary import find_binary


def rebuild(path: Path, *, as_json: bool) -> None:
    """`atoll report`."""
    run_dir = RunDir.open(path)
    run_dir.compress_captures()
    summary = analyse(run_dir, find_binary())
    page = write_report(run_dir)
    if as_json:
        print(json.dumps({**summary, "report": str(page)}))
    else:
        print_summary(summary)
        print(f"report: {page}")
