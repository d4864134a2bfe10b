# SPDX-License-Identifier: Apache-2.0
"""``make bench-metrics``: whether spool and sink carry a large laboratory's points on one core, and lose none.

With ``--lateness``: the cost of metrics for the demo, as lateness of its emulator with and without them.
"""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from atoll_core.errors import AtollError, UsageError
from benchkit.figures_file import figures_folder, write_figures
from benchkit.json_results import write_results
from metricsbench import carrying, lateness


def main() -> int:
    """Measure, print, and fail if a point is missing."""
    parser = argparse.ArgumentParser(prog="bench-metrics", description=__doc__)
    parser.add_argument("--rate", type=int, default=100_000, help="points a second [default: 100000]")
    parser.add_argument("--seconds", type=float, help="for how long [default: 60; each run of --lateness: 20]")
    parser.add_argument("--lateness", action="store_true", help="runs of the demo in pairs, with metrics and without")
    parser.add_argument("--pairs", type=int, default=10, help="number of pairs; 0: only print the stored ones [10]")
    parser.add_argument("--quick", action="store_true", help="ten seconds only; of --lateness one pair of five seconds")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--store", type=Path, metavar="FILE", help="of --lateness: pairs are added to those in there")
    parser.add_argument(
        "--render", type=figures_folder, metavar="FOLDER", help="also write the table into a file of FOLDER"
    )
    options = parser.parse_args()
    try:
        if options.lateness:
            pairs, seconds = (1, 5.0) if options.quick else (options.pairs, options.seconds or 20.0)
            return report_lateness(pairs, seconds, options.store, options.render, as_json=options.json)
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            parser.error("two cores are wanted: one for spool and sink, one for the database")
        seconds = 10.0 if options.quick else options.seconds or 60.0
        figures = carrying.measure(options.rate, seconds, cores[0], cores[-1])
        return report_carrying(figures, options.render, as_json=options.json)
    except AtollError as error:
        sys.stderr.write(f"bench-metrics: {error}\n")
        return error.exit_code


def report_carrying(figures: carrying.Figures, folder: Path | None, *, as_json: bool) -> int:
    """Tell how points were carried; 1 unless all are in the database. ``folder``: also write the table there."""
    print(json.dumps(asdict(figures)) if as_json else carrying.table(figures))
    if folder is not None:
        write_figures(folder, "points-carried", carrying.table(figures))
    return 0 if figures.in_database == figures.delivered == figures.points else 1


def report_lateness(pairs: int, seconds: float, store: Path | None, folder: Path | None, *, as_json: bool) -> int:
    """Measure and print the lateness of the emulator, earlier pairs included; ``folder``: write the table there."""
    measured = lateness.load(store) if store is not None and store.exists() else None
    if pairs:
        new = lateness.measure(pairs, seconds, lambda text: print(text, file=sys.stderr, flush=True))
        measured = new if measured is None else measured.added(new)
    if measured is None:
        raise UsageError("--pairs 0: nothing was measured earlier; name its file with --store")
    if store is not None:
        write_results(store, measured.as_json())
    print(json.dumps(measured.as_json()) if as_json else lateness.table(measured))
    if folder is not None:
        write_figures(folder, "metrics", lateness.table(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
