# SPDX-License-Identifier: Apache-2.0
"""``benchmarks/statistics/run``: how often intervals and conclusions of studies are true, and what stopping saves.

With ``--pairs DIRECTORY``, that of a swept ``benchmarks/statistics/pairs.yaml``: widths of intervals of differences
with shared seeds and without, instead.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from atoll_core.errors import AtollError
from benchkit import harness
from benchkit.json_results import read_earlier
from benchkit.markdown import markdown_table
from benchkit.program import part
from statisticsbench.coverage import COVERAGES, RUNS
from statisticsbench.measure import ALIKE, STOP, UNEQUAL
from statisticsbench.paired import widths

_KINDS = (*COVERAGES, STOP, ALIKE, UNEQUAL)
_PARTS = 2  # processes


def main() -> int:
    """Measure, and show the results."""
    options = _options()
    return harness.run(options, "statistics", "kinds", lambda: _all_results(options), _tables)


def _options() -> argparse.Namespace:
    parser = harness.parser("statistics", __doc__)
    parser.add_argument("--studies", type=int, metavar="N", help="made-up studies of each kind (1000; --quick: 50)")
    parser.add_argument("--only", choices=_KINDS, nargs="+", default=list(_KINDS), help="kinds of intervals (all)")
    parser.add_argument("--pairs", type=Path, metavar="DIRECTORY", help="a swept study of two configurations")
    options = parser.parse_args()
    options.studies = options.studies or (50 if options.quick else 1000)
    if options.studies < 1:
        parser.error("--studies: at least 1")
    return options


def _all_results(options: argparse.Namespace) -> dict[str, Any]:
    earlier = read_earlier(options.json, "kinds")
    if options.pairs:
        return {"kinds": {}, **earlier, "pairs": [asdict(each) for each in widths(options.pairs)]}
    return {**earlier, "kinds": {**earlier.get("kinds", {}), **_measured(options.only, options.studies)}}


def _measured(kinds: Sequence[str], studies: int) -> dict[str, list[dict[str, Any]]]:
    """The measurements by kind, in the order of populations."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(_PARTS):
            argv = part("statisticsbench.measure", str(number), str(_PARTS), str(studies), *kinds)
            # a part does not outlive this process, even after `kill -9`
            processes.append(subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *argv], stdout=subprocess.PIPE))
        lines = [json.loads(line) for each in processes for line in each.communicate()[0].splitlines()]
    finally:
        for each in processes:
            each.kill()
            each.wait()
    if any(each.returncode for each in processes):
        raise AtollError("the measurement failed; see the error above")
    lines.sort(key=lambda line: line[1])
    return {kind: [row for of, _, row in lines if of == kind] for kind in kinds}


# Tables


def _tables(known: dict[str, Any]) -> str:
    kinds: Mapping[str, list[dict[str, Any]]] = known["kinds"]
    covered = [each for kind in COVERAGES for each in kinds.get(kind, [])]
    tables = [
        *([_coverage_table(covered)] if covered else []),
        *([_stopping_table(stopped)] if (stopped := kinds.get(STOP)) else []),
        *([_alike_table(alike)] if (alike := kinds.get(ALIKE)) else []),
        *([_unequal_table(unequal)] if (unequal := kinds.get(UNEQUAL)) else []),
        *([_pairs_table(pairs)] if (pairs := known.get("pairs")) else []),
    ]
    return "\n\n".join(tables)


def _coverage_table(covered: Sequence[Mapping[str, Any]]) -> str:
    """A row for each kind and population; where intervals have another level than 95 %, that level, too."""
    cells: dict[tuple[str, str], dict[int, str]] = {}
    for each in sorted(covered, key=lambda each: [*dict.fromkeys(one["kind"] for one in covered)].index(each["kind"])):
        level = f" of {100 * each['level']:.1f}" if each["level"] < 0.9499 else ""
        part = f" ({each['intervals']})" if each["intervals"] < each["studies"] else ""
        cells.setdefault((each["kind"], each["population"]), {})[each["runs"]] = (
            f"{100 * each['share']:.1f}{level} %{part}"
        )
    rows = [(*names, *(by_runs.get(runs, "") for runs in RUNS)) for names, by_runs in cells.items()]
    return markdown_table([("interval", "population", *(f"{runs} runs" for runs in RUNS)), *rows], left=2)


def _stopping_table(stopped: Sequence[Mapping[str, Any]]) -> str:
    headings = ("population", "half width", "`max`", "fixed", "mean runs", "90 % of studies", "reached", "covered",
                "not corrected", "Bonferroni runs")  # fmt: skip
    rows = [
        (
            each["population"],
            f"{100 * each['half_width']:g} %",
            str(each["most"]),
            "-" if each["fixed"] is None else str(each["fixed"]),
            f"{each['runs']:.1f}",
            f"{each['runs_90']:.0f}",
            f"{100 * each['reached']:.1f} %",
            f"{100 * each['covered']:.1f} %",
            f"{100 * each['naive_covered']:.1f} %",
            f"{each['bonferroni_runs']:.1f}",
        )
        for each in stopped
    ]
    return markdown_table([headings, *rows])


def _alike_table(alike: Sequence[Mapping[str, Any]]) -> str:
    headings = ("A/A studies, noise", "runs", "differ, not corrected", "differ", "primary figure differs", "equivalent")
    rows = [
        (
            f"{100 * each['noise']:g} %",
            str(each["runs"]),
            *(f"{100 * each[name]:.1f} %" for name in ("uncorrected", "differ", "primary_differs", "equivalent")),
        )
        for each in alike
    ]
    return markdown_table([headings, *rows])


def _unequal_table(unequal: Sequence[Mapping[str, Any]]) -> str:
    headings = ("flows that one client begins less", "runs with a caveat", "least imbalance that runs say they find")
    rows = [tuple(f"{100 * each[name]:.1f} %" for name in ("imbalance", "found", "least_found")) for each in unequal]
    return markdown_table([headings, *rows])


def _pairs_table(pairs: Sequence[Mapping[str, Any]]) -> str:
    headings = ("figure", "pairs", "correlation over seeds", "means", "shift", "median difference")
    rows = [
        (
            each["figure"],
            str(each["pairs"]),
            f"{each['correlation']:+.2f}",
            *(f"{each[name]:.2f}" for name in ("of_means", "of_ranks", "of_medians")),
        )
        for each in pairs
    ]
    return markdown_table([headings, *rows])


if __name__ == "__main__":
    sys.exit(main())
