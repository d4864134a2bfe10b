# SPDX-License-Identifier: Apache-2.0
"""``benchmarks/link/run``: measure the link engine and its peers, print tables, write JSON."""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from atoll_core.errors import AtollError
from benchkit import machine_facts
from benchkit.figures_file import figures_folder
from linkbench import figures_file, result_file, table
from linkbench.collect import DAY, INSIDE_BOX, Selection, collect
from linkbench.promises import PromiseCheck, verdicts
from linkbench.scenarios import SCENARIOS

_BOXES = sorted({box for scenario in SCENARIOS.values() for box in scenario.boxes} | {INSIDE_BOX})


def main() -> int:
    """Measure, and show all results."""
    options = _options()
    say = _say
    try:
        old = result_file.load(options.json)
        if options.render:
            results = old
        else:
            selection = Selection(options.only, options.boxes, options.repeats, options.quick)
            results = result_file.merged(old, collect(selection, say))
            facts = machine_facts.describe()
            judged = verdicts(results)
            result_file.save(options.json, facts, results, [_json(verdict) for verdict in judged])
        print(_report(results, options.json))
        if options.render:
            for path in figures_file.render(options.json, results, options.render):
                print(f"written: {path}")
    except AtollError as error:
        say(str(error))
        return error.exit_code
    return 0


def _options() -> argparse.Namespace:
    cases = "; ".join(f"{scenario.name}: {', '.join(scenario.cases)}" for scenario in SCENARIOS.values())
    parser = argparse.ArgumentParser(prog="benchmarks/link/run", description=__doc__, epilog=f"Cases: {cases}; {DAY}.")
    parser.add_argument("--only", action="append", default=[], metavar="SCENARIO[/CASE]", type=_known,
                        help="measure this alone (may be repeated)")  # fmt: skip
    parser.add_argument("--boxes", action="append", default=[], choices=_BOXES, help="this box alone (may be repeated)")
    parser.add_argument("--repeats", type=int, default=None, help="of which the median counts (5; --quick: 1)")
    parser.add_argument("--quick", action="store_true", help="a minute: shows that it works; its figures say little")
    parser.add_argument("--json", type=Path, default=Path("target/bench-link.json"), metavar="FILE",
                        help="results; those that are not measured now are kept (%(default)s)")  # fmt: skip
    parser.add_argument("--render", type=figures_folder, metavar="FOLDER",
                        help="measure nothing; write FILE's tables and pictures into FOLDER")  # fmt: skip
    options = parser.parse_args()
    options.repeats = options.repeats or (1 if options.quick else 5)
    if options.repeats < 1:
        parser.error("--repeats: at least 1")
    return options


def _known(text: str) -> str:
    name, _, case = text.partition("/")
    scenario = SCENARIOS.get(name)
    if text == DAY or (scenario and (not case or case in scenario.cases)):
        return text
    raise argparse.ArgumentTypeError(f"unknown scenario or case '{text}'; they are listed below --help")


def _report(results: list[Any], path: Path) -> str:
    parts = [table.tables(results), table.promises(verdicts(results)), f"JSON: {path}"]
    failed = [f"{'/'.join(result.key)}: {why}" for result in results for why in dict.fromkeys(result.failed)]
    if failed:
        parts.append("Failed:\n" + "\n".join(failed))
    return "\n\n".join(parts)


def _json(verdict: PromiseCheck) -> dict[str, Any]:
    return asdict(verdict.promise) | {"case": verdict.case, "median": verdict.median, "kept": verdict.kept}


def _say(text: str) -> None:
    sys.stderr.write(f"bench-link: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
