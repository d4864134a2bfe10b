# SPDX-License-Identifier: Apache-2.0
"""``benchmarks/controller/run``: bring plans of several sizes to a switch in several ways; print tables, write JSON."""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from atoll_core.errors import AtollError
from atoll_emulation.mininet_lab.namespaces import namespaces_error, unshare_argv
from benchkit import harness
from benchkit.json_results import read_earlier
from benchkit.program import part
from controllerbench.measure import INSTALLERS, SIZES
from controllerbench.table import tables

_QUICK_SIZES = (10, 100)
_SWAP = "swap"  # measured on a laboratory, not on the bench
_QUICK_WAYS = ("atoll", "ovs-ofctl bundle", _SWAP)


def main() -> int:
    """Measure in namespaces of its own, and show the results."""
    options = _options()

    def measured() -> dict[str, list[dict[str, Any]]]:
        earlier = read_earlier(options.json, "results")
        return _merged(earlier, _measured(options))

    return harness.run(options, "controller", "results", measured, tables)


def _options() -> argparse.Namespace:
    parser = harness.parser("controller", __doc__)
    parser.add_argument("--only", action="append", choices=[*INSTALLERS, _SWAP], help="this alone (may be repeated)")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", help=f"entries (default: {SIZES})")
    parser.add_argument("--repeats", type=int, metavar="N", help="of which the median counts (3; --quick: 1)")
    options = parser.parse_args()
    options.only = options.only or (list(_QUICK_WAYS) if options.quick else [*INSTALLERS, _SWAP])
    options.sizes = options.sizes or list(_QUICK_SIZES if options.quick else SIZES)
    options.repeats = options.repeats or (1 if options.quick else 3)
    if min(options.repeats, *options.sizes) < 1:
        parser.error("--sizes, --repeats: at least 1")
    return options


def _merged(old: dict[str, Any], new: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """The results of the file, except those that have been measured again."""
    results = _merged_ways(old.get("results", []), new["results"])
    return {"results": results, "swaps": new["swaps"] or old.get("swaps", [])}


def _merged_ways(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """In the ways' order."""
    measured = {(each["way"], each.get("entries")) for each in new}
    ways = {each["way"] for each in new if "entries" in each}
    kept = [
        each
        for each in old
        if (each["way"], each.get("entries")) not in measured and not ("left_out" in each and each["way"] in ways)
    ]
    order = list(INSTALLERS)
    return sorted([*kept, *new], key=lambda each: (order.index(each["way"]), each.get("entries", 0)))


def _measured(options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    if (reason := namespaces_error()) is not None:
        raise AtollError(reason)
    with tempfile.TemporaryDirectory() as directory:
        task = Path(directory) / "task.json"
        ways = [name for name in options.only if name in INSTALLERS]
        asked = {"ways": ways, "sizes": options.sizes, "repeats": options.repeats, "swaps": _SWAP in options.only}
        task.write_text(json.dumps(asked))
        harness.measured_by([*unshare_argv(), *part("controllerbench.measure", str(task))])
        return json.loads(task.read_text())


if __name__ == "__main__":
    sys.exit(main())
