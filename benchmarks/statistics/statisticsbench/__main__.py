# SPDX-License-Identifier: Apache-2.0
"""``make bench-statistics``: how often intervals of studies contain the true value, and what stopping saves.

With ``--pairs DIRECTORY``, the directory of a swept ``benchmarks/statistics/pairs.yaml``: widths of intervals of
differences with shared seeds and without, instead.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from statisticsbench.coverage import KINDS, coverages
from statisticsbench.paired import widths
from statisticsbench.stopped import stopped


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bench-statistics", description=__doc__)
    parser.add_argument("--studies", type=int, default=1000, help="made-up studies of each kind [default: 1000]")
    parser.add_argument("--only", choices=[*KINDS, "stop"], nargs="+", default=[*KINDS, "stop"], help="parts")
    parser.add_argument("--quick", action="store_true", help="100 studies of each kind")
    parser.add_argument("--pairs", type=Path, metavar="DIRECTORY", help="a swept study of two configurations")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    asked = parser.parse_args()
    if asked.pairs is not None:
        results, found = widths(asked.pairs)
        print(f"{results.label(0)} and {results.label(1)}: width of unpaired to paired intervals")
        for each in found:
            print(
                json.dumps(asdict(each))
                if asked.json
                else f"{each.figure:<20} {each.pairs:3} pairs  correlation {each.correlation:+.2f}  "
                f"means {each.of_means:5.2f}  ranks {each.of_ranks:5.2f}  medians {each.of_medians:5.2f}"
            )
        return 0
    studies = 100 if asked.quick else asked.studies
    for covered in coverages(studies, [each for each in asked.only if each in KINDS]):
        print(
            json.dumps(asdict(covered))
            if asked.json
            else f"{covered.kind:<26} {covered.population:<40} {covered.runs:3} runs  {100 * covered.share:5.1f} % of "
            f"{covered.intervals:5}  width {covered.width:.3g}",
            flush=True,
        )
    for each in stopped(studies) if "stop" in asked.only else ():
        print(
            json.dumps(asdict(each))
            if asked.json
            else f"stop {each.population:<32} {100 * each.half_width:g} %, at most {each.most}: fixed {each.fixed}, "
            f"runs {each.runs:.1f} (90 %: {each.runs_90:g}), reached {100 * each.reached:.1f} %, "
            f"covered {100 * each.covered:.1f} %, without correction {100 * each.naive_covered:.1f} %",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
