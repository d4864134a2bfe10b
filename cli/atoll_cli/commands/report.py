# SPDX-License-Identifier: Apache-2.0
"""`atoll report`: analyse a run directory again, or compare several runs."""

import json
import os
import sys
from pathlib import Path

from atoll_analysis import analyse
from atoll_analysis.run_directory import RunDir
from atoll_cli.terminal.output import require_ending, write_file
from atoll_core.errors import RunDirError
from atoll_dashboards.compare.comparison import comparable, compare
from atoll_dashboards.compare.documents import FORMS
from atoll_dashboards.compare.terminal_tables import print_comparison
from atoll_dashboards.report.report import write_report
from atoll_dashboards.report.terminal_summary import print_summary
from atoll_hosts.binary import find_binary


def rebuild(path: Path, *, as_json: bool) -> None:
    """`atoll report RUN`. Raises RunDirError if this user cannot write to the run directory."""
    run_dir = RunDir.open(path)
    if not os.access(run_dir.path, os.W_OK | os.X_OK):
        msg = f"{path}: this user may not write there; copy the directory and analyse the copy"
        raise RunDirError(msg)
    run_dir.compress_captures()
    summary = analyse(run_dir, find_binary())
    page = write_report(run_dir)
    if as_json:
        print(json.dumps({**summary, "report": str(page)}))
    else:
        print_summary(summary)
        print(f"report: {page}")


def report_comparison(
    paths: list[Path],
    figures: list[str],
    out: Path | None,
    *,
    each: bool = False,
    mixed_kernels: bool = False,
    as_json: bool,
) -> None:
    """`atoll report --compare RUN RUN...`: reads results of the analysis, changes nothing.

    Runs without results are left out with a line each on standard error. ``each``: also print the figures of every run
    of a group.
    """
    require_ending("--out", out, FORMS)
    runs, left_out = comparable(paths)
    for path, reason in left_out.items():
        print(f"left out: {path}: {reason}", file=sys.stderr)
    comparison = compare(runs, figures, mixed_kernels=mixed_kernels)
    if out is not None:
        write_file("--out", out, FORMS[out.suffix.lower()](comparison))
    if as_json:
        without = [{"run_dir": str(path), "reason": reason} for path, reason in left_out.items()]
        print(json.dumps({**comparison.to_json(), "left_out": without, "written": str(out) if out else None}))
        return
    print_comparison(comparison, each_run=each)
    if out is not None:
        print(f"written: {out}")
