# SPDX-License-Identifier: Apache-2.0
"""``benchmarks/traffic/run``: every pair in turn, several times; medians, and ratios within a round. Or fairness."""

import argparse
from dataclasses import asdict
from pathlib import Path
from statistics import median

from atoll_core.errors import AtollError, UsageError
from benchkit.figures_file import figures_folder, write_figures
from benchkit.json_results import write_results
from benchkit.machine_facts import describe
from trafficbench import fairness
from trafficbench.fairness_table import tables
from trafficbench.pairs import Load, Pair, pairs


def main() -> None:
    """Measure and print; ``--render`` also writes the table into a file."""
    parser = argparse.ArgumentParser(prog="benchmarks/traffic/run", description=__doc__)
    parser.add_argument("--channels", type=int, default=100, help="connections at a time (100)")
    parser.add_argument("--size", type=int, default=1000, help="bytes of a flow (1000)")
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement (5)")
    parser.add_argument("--rounds", type=int, default=5, help="of all pairs (5)")
    parser.add_argument("--quick", action="store_true", help="two rounds of two seconds")
    parser.add_argument("--fairness", action="store_true", help="instead: how channels share, and 4000 of one process")
    parser.add_argument("--only", choices=fairness.GROUPS, action="append", help="of --fairness; may be repeated")
    parser.add_argument("--clock", choices=fairness.CLOCKS, action="append", help="of --fairness; both by default")
    parser.add_argument(
        "--render", type=figures_folder, metavar="FOLDER", help="also write the figures into a file of FOLDER"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results")
    options = parser.parse_args()
    try:
        if options.fairness:
            _fairness(options)
        else:
            _rates(options)
    except AtollError as error:
        parser.exit(error.exit_code, f"{error}\n")


def _fairness(options: argparse.Namespace) -> None:
    groups, clocks = options.only or fairness.GROUPS, options.clock or fairness.CLOCKS
    known = fairness.measure(groups, clocks, options.json, quick=options.quick)
    if not known:
        raise UsageError("no trial is left: ask for fewer of --quick, --only and --clock")
    text = tables(known, describe())
    print(text)
    if options.render:
        write_figures(options.render, "fairness", text)


def _rates(options: argparse.Namespace) -> None:
    rounds, seconds = (2, 2) if options.quick else (options.rounds, options.seconds)
    load = Load(options.channels, options.size, seconds)
    known, left_out = pairs()
    machine = describe()
    flows_per_s: dict[str, list[float]] = {pair.name: [] for pair in known}
    for _ in range(rounds):
        for pair in known:  # a slow spell of the machine meets all of them
            with pair.server(load) as server:
                flows_per_s[pair.name].append(pair.flows_per_s(load, server))
    text = table(load, known, flows_per_s, machine)
    print(text)
    for name, remedy in left_out.items():
        print(f"{name}: left out; {remedy}")
    if options.json:
        write_results(options.json, {"machine": machine, "load": asdict(load), "flows_per_s": flows_per_s})
    if options.render:
        write_figures(options.render, "traffic", text)


def table(load: Load, known: list[Pair], flows_per_s: dict[str, list[float]], machine: dict[str, str]) -> str:
    """The figures as Markdown."""
    first = known[0].name
    rounds = len(flows_per_s[first])
    title = f"{load.channels} connections at a time, {load.size} bytes each, {rounds} rounds of {load.seconds} s"
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['date']}, load average {machine['load_average']}"
    lines = [
        f"{title}; {where}.",
        "",
        "| server and client | versions | flows/s, median | least | most | atoll-host's / this, median of rounds |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for pair in known:
        rates = flows_per_s[pair.name]
        ratio = median(ours / theirs for ours, theirs in zip(flows_per_s[first], rates, strict=True))
        cells = [
            pair.name,
            pair.versions,
            f"{median(rates):.0f}",
            f"{min(rates):.0f}",
            f"{max(rates):.0f}",
            f"{ratio:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
