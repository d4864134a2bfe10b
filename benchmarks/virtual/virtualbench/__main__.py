# SPDX-License-Identifier: Apache-2.0
"""``benchmarks/virtual/run``: time whole experiments in virtual time; print tables, write JSON."""

import argparse
import sys
from dataclasses import replace
from typing import Any

from atoll_emulation.this_machine.host_requirements import require_virtual_machine
from benchkit import harness
from benchkit.json_results import read_earlier
from virtualbench import commands, spinning
from virtualbench.table import tables

_QUICK_S = 2  # of virtual time
_TWO = "two"


def main() -> int:
    """Measure, and show the results."""
    options = _options()
    return harness.run(options, "virtual-time", "cases", lambda: _measured(options), tables)


def _options() -> argparse.Namespace:
    parser = harness.parser("virtual", __doc__, quick="a minute")
    parser.add_argument("--only", action="append", choices=(*commands.CASES, _TWO), help="this alone (may be repeated)")
    parser.add_argument(
        "--repeats", type=int, metavar="N", help="of which the median counts (3, of pairs 5; --quick: 1)"
    )
    options = parser.parse_args()
    if options.repeats is not None and options.repeats < 1:
        parser.error("--repeats: at least 1")
    options.only = options.only or [*commands.CASES, _TWO]
    return options


def _measured(options: argparse.Namespace) -> dict[str, Any]:
    """The results of the file; new measurements replace earlier ones."""
    require_virtual_machine()
    known = read_earlier(options.json, "cases")
    cases = known.get("cases", {})
    for key, case in commands.CASES.items():
        if key in options.only:
            cases[key] = _case(_brief(case, options), options.repeats or (1 if options.quick else 3))
    known["cases"] = {key: cases[key] for key in commands.CASES if key in cases}
    if _TWO in options.only:
        known["two"] = _two(_brief(commands.BRIEF, options), options.repeats or (1 if options.quick else 5))
    return known


def _brief(case: commands.Case, options: argparse.Namespace) -> commands.Case:
    return replace(case, duration_s=_QUICK_S) if options.quick else case


def _case(case: commands.Case, repeats: int) -> dict[str, Any]:
    print(f"{case.name}: {case.duration_s} s of virtual time, {repeats} times", file=sys.stderr)
    return {
        "name": case.name,
        "duration_s": case.duration_s,
        "command": " ".join(case.words),
        "runs": [commands.timed(case) for _ in range(repeats)],
    }


def _two(case: commands.Case, repeats: int) -> dict[str, Any]:
    """One alone and two at once, in turn, so that other load on the machine affects both alike."""
    print(f"{case.name}: alone and two at once, {repeats} times", file=sys.stderr)
    alone: list[dict[str, Any]] = []
    pairs: list[list[dict[str, Any]]] = []
    spun: dict[str, dict[str, list[float]]] = {kind: {"alone_s": [], "two_s": []} for kind in spinning.KINDS}
    for _ in range(repeats):
        alone.append(commands.timed(case))
        pairs.append(commands.together(case, 2))
        for kind, times in spun.items():
            times["alone_s"].append(round(spinning.seconds(kind, 1), 2))
            times["two_s"].append(round(spinning.seconds(kind, 2), 2))
    return {"duration_s": case.duration_s, "alone": alone, "pairs": pairs, "spinning": spun}


if __name__ == "__main__":
    sys.exit(main())
