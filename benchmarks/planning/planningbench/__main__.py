# SPDX-License-Identifier: Apache-2.0
"""``benchmarks/planning/run``: plan laboratories of several sizes, and swaps on them; print a table, write JSON."""

import argparse
import json
import subprocess
import sys
from statistics import median
from typing import Any

from atoll_core.errors import AtollError
from benchkit import harness
from benchkit.program import part

_SIZES = ("22x106", "100x400", "200x800")
_KINDS = {
    "plan": "plan",
    "swap": "swap without the PEPs",
    "branches_plan": "plan with branches",
    "branches_swap": "swap to branches",
}


def main() -> int:
    """Measure, and show the results."""
    options = _options()
    return harness.run(
        options,
        "planning",
        "sizes",
        lambda: {"sizes": {size: _measured(size, options) for size in options.sizes}},
        lambda known: _table(known["sizes"]),
    )


def _options() -> argparse.Namespace:
    parser = harness.parser("planning", __doc__, merges=False)
    parser.add_argument("--sizes", nargs="+", default=list(_SIZES), metavar="SERVERSxCLIENTS", help="(%(default)s)")
    parser.add_argument("--processes", type=int, metavar="N", help="of which each plans for the first time once (3)")
    parser.add_argument("--repeats", type=int, metavar="N", help="in each process after the first time (5; --quick: 1)")
    options = parser.parse_args()
    options.processes = options.processes or (1 if options.quick else 3)
    options.repeats = options.repeats or (1 if options.quick else 5)
    if options.quick:
        options.sizes = options.sizes[:1]
    if min(options.processes, options.repeats) < 1:
        parser.error("--processes, --repeats: at least 1")
    return options


def _measured(size: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    servers, _, clients = size.partition("x")
    if not (servers.isdigit() and clients.isdigit()):
        raise AtollError(f"--sizes {size}: not a size, for example 200x800")
    measured: list[dict[str, Any]] = []
    for _ in range(options.processes):
        argv = part("planningbench.measure", servers, clients, str(options.repeats))
        measured.append(json.loads(harness.measured_by(argv, subprocess.PIPE).stdout))
    return measured


def _table(sizes: dict[str, list[dict[str, Any]]]) -> str:
    lines = [
        "| servers x clients | entries | what | first time | again | of a processor | the event loop waited at most |",
        "|---|---:|---|---:|---:|---:|---:|",
    ]
    for size, processes in sizes.items():
        for kind, words in _KINDS.items():
            first = median(process[kind]["seconds"][0] for process in processes)
            again = median(seconds for process in processes for seconds in process[kind]["seconds"][1:])
            computed = median(seconds for process in processes for seconds in process[kind]["processor_s"])
            held_ms = max(process[kind]["held_s"] for process in processes) * 1e3
            lines.append(
                f"| {size} | {processes[0]['entries']} | {words} | {first:.2f} s | {again:.2f} s | {computed:.2f} s "
                f"| {held_ms:.0f} ms |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
