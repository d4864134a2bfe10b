# SPDX-License-Identifier: Apache-2.0
"""The measurement itself, first process of namespaces of its own: every way, every size, several times.

Time begins with the intent, a plan in memory. The plan is installed when the way is sure of the whole table by its own
means; it is verified when, beyond that, a frame of each pair has left the switch by both ports with the right tag.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from atoll_core.errors import AtollError
from atoll_core.garbage_collection import relax_garbage_collection
from controllerbench import swaps
from controllerbench.atoll_installer import Atoll, AtollOnRyu
from controllerbench.entries import Pair, pairs, reclassified
from controllerbench.faucet_installer import Faucet
from controllerbench.installer import Installer
from controllerbench.ofctl_installer import OfctlBundle
from controllerbench.ofctl_rest_installer import OfctlRest
from controllerbench.switch import Bench

INSTALLERS: dict[str, type[Installer]] = {way.name: way for way in (Atoll, AtollOnRyu, OfctlBundle, OfctlRest, Faucet)}
SIZES = (10, 100, 1000, 10000)

_REPEATED_BELOW_S = 20.0  # longer installations are measured once


def main() -> int:
    """Read the task from the file named, measure, write the results there."""
    path = Path(sys.argv[1])
    task = json.loads(path.read_text())
    relax_garbage_collection()  # as the daemon does
    bench = Bench()
    results: list[dict[str, Any]] = []
    for name in task["ways"]:
        results += _measure(bench, INSTALLERS[name](bench), task["sizes"], task["repeats"])
    measured = swaps.measure(task["repeats"]) if task["swaps"] else []
    path.write_text(json.dumps({"results": results, "swaps": measured}))
    return 0


def _measure(bench: Bench, way: Installer, sizes: Sequence[int], repeats: int) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    try:
        way.start()
    except AtollError as error:
        _say(f"{way.name}: left out: {error}")
        return [{"way": way.name, "checks": way.checks, "left_out": str(error)}]
    try:
        for size in sizes:
            result: dict[str, Any] = {
                "way": way.name,
                "checks": way.checks,
                "entries": size,
                "install_s": [],
                "verified_s": [],
                "change_s": [],
            }
            results.append(result)
            try:
                _repeat(bench, way, pairs(size), repeats, result)
            except AtollError as error:
                result["failed"] = str(error)
                _say(f"{way.name}, {size} entries: failed: {error}")
                break
    finally:
        way.stop()
    return results


def _repeat(bench: Bench, way: Installer, plan: list[Pair], repeats: int, result: dict[str, Any]) -> None:
    other = reclassified(plan, len(plan) // 2)
    for _ in range(repeats):
        way.empty()
        installed, took = _timed(bench, lambda: way.install(plan), plan)
        result["install_s"].append(installed)
        result["verified_s"].append(took)
        result["change_s"].append(_timed(bench, lambda: way.change(plan, other), [other[len(plan) // 2]])[1])
        _say(
            f"{way.name}, {len(plan)} entries: installed {installed:.3f} s, verified {took:.3f} s, "
            f"one of them changed: {result['change_s'][-1]:.3f} s"
        )
        if took > _REPEATED_BELOW_S:
            return


def _timed(bench: Bench, work: Callable[[], None], proof: Sequence[Pair]) -> tuple[float, float]:
    """How long the work took, and work and proof together."""
    began = time.perf_counter()
    work()
    worked = time.perf_counter()
    bench.prove(proof)
    return worked - began, time.perf_counter() - began


def _say(text: str) -> None:
    sys.stderr.write(f"bench-controller: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
