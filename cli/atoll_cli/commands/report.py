# SPDX-License-Identifier: Apache-2.0
"""`atoll report`: analyse a run directory again, or show the results of a study or of several runs."""

import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atoll_analysis.run_directory import RunDir
from atoll_cli.commands.selection import refuse
from atoll_cli.terminal.output import refuse_overwriting, require_ending, write_file
from atoll_cli.terminal.progress import print_result
from atoll_cli.terminal.results_text import print_results
from atoll_dashboards.report.report import analyse_again
from atoll_hosts.binary import find_binary
from atoll_studies.results.comparison import comparable, compare
from atoll_studies.results.result_tables import reserved_columns, results_json, write_tables
from atoll_studies.results.results import Results, read_results
from atoll_studies.results.run_tables import results_of_tables
from atoll_studies.study import load_study
from atoll_studies.study_directory import StudyDirectory
from atoll_studies.views.documents import SUFFIXES, results_files


def rebuild(path: Path, *, as_json: bool) -> None:
    """`atoll report RUN`. Raises RunDirError if this user cannot write to the run directory."""
    run_dir = RunDir.open(path, allow_damaged=True)
    summary, _ = analyse_again(run_dir, find_binary())
    print_result(summary, run_dir.path, as_json=as_json)


@dataclass(frozen=True, slots=True)
class View:
    """How results are shown."""

    figures: Sequence[str] = ()
    baseline: Sequence[str] = ()  # FACTOR=LEVEL
    out: Path | None = None
    per_run: bool = False
    as_json: bool = False

    def levels(self) -> dict[str, str] | None:
        """The levels that ``--baseline`` names, by factor; None if it was not given. Raises UsageError."""
        for text in self.baseline:
            refuse("=" not in text, f"--baseline {text}: write FACTOR=LEVEL, such as tcp.congestion_control=cubic")
        return dict(text.split("=", 1) for text in self.baseline) or None


def report_comparison(paths: Sequence[Path], view: View, *, mixed_kernels: bool = False) -> None:
    """`atoll report --compare RUN RUN...`: reads results of the analysis, changes nothing.

    Runs without results are left out with a line each on standard error.
    """
    require_ending("--out", view.out, SUFFIXES)
    refuse_overwriting({"--out": view.out}, paths)
    runs, skipped = comparable(paths)
    for path, reason in skipped.items():
        print(f"left out: {path}: {reason}", file=sys.stderr)
    results = compare(runs, view.figures, view.levels(), mixed_kernels=mixed_kernels)
    skipped_json = [{"run_dir": str(path), "reason": reason} for path, reason in skipped.items()]
    _show(results, view, [], {"left_out": skipped_json})


def report_study(directory: Path, view: View) -> None:
    """`atoll report STUDY`: its results; also writes its tables into its directory, unless it is read-only."""
    require_ending("--out", view.out, SUFFIXES)
    refuse_overwriting({"--out": view.out}, [directory])
    results = read_results(StudyDirectory(directory), view.levels(), view.figures)
    written: list[Path] = []
    if os.access(directory, os.W_OK | os.X_OK):
        written += write_tables(results, directory)
    else:
        print(f"{directory}: this user may not write there; the tables are not written", file=sys.stderr)
    _show(results, view, written)


def report_tables(study: Path, tables: Sequence[Path], view: View) -> None:
    """`atoll report STUDY.yaml --runs FILE.csv`: results by tables of runs."""
    require_ending("--out", view.out, SUFFIXES)
    refuse_overwriting({"--out": view.out}, [study, *tables])
    description = load_study(study, reserved_columns())
    _show(results_of_tables(description, tables, view.levels(), view.figures), view, [])


def _show(results: Results, view: View, written: list[Path], extra: Mapping[str, Any] | None = None) -> None:
    if (out := view.out) is not None:
        for path, content in results_files(results, out, each_run=view.per_run).items():
            if path.parent != out.parent:  # plots of a page
                with contextlib.suppress(OSError):
                    path.parent.mkdir()
            write_file("--out", path, content)
            written.append(path)
    if view.as_json:
        print(json.dumps({**results_json(results), **(extra or {}), "written": list(map(str, written))}))
        return
    print_results(results, per_run=view.per_run)
    for path in written:
        print(f"written: {path}")
