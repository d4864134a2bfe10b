# SPDX-License-Identifier: Apache-2.0
"""``benchmarks/pep/run``: throughput of every way in turn, several times, and downloads behind a slow leg."""

import argparse
import asyncio
import os
import resource
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from statistics import median

from atoll_core.errors import AtollError
from benchkit.figures_file import figures_folder, write_figures
from benchkit.json_results import write_results
from benchkit.machine_facts import describe, in_words
from pepbench.ending_table import WAYS, Ended, ended, table
from pepbench.ways import (
    MULTIPLEXED,
    PEPSAL,
    PROXY,
    ROUTER,
    ROUTERS,
    SPLIT,
    between,
    between_two,
    bulk_bit_s,
    downloads,
    idle_bytes,
)
from tests.support.pep_lab import two_proxies

_DOWNLOADS = 32
_OWN_DESCRIPTORS = 64  # of the proxy and of its peers, without those of connections
_REMEDY = "left out; name its executable by --pepsal (docs/benchmarks.md tells how to build it)"


def main() -> None:
    """Measure and print; ``--render`` also writes the tables into files."""
    parser = argparse.ArgumentParser(prog="benchmarks/pep/run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2, help="of each measurement of throughput (2)")
    parser.add_argument("--rounds", type=int, default=5, help="of all ways (5)")
    parser.add_argument("--quick", action="store_true", help="one round of a second")
    parser.add_argument("--idle", type=int, metavar="N", help="measure memory of N idle connections, and nothing else")
    parser.add_argument("--endings", type=int, metavar="N", help="only N connections with every ending in turn")
    parser.add_argument(
        "--endings-pepsal", type=int, metavar="N", help="so many through PEPsal, which leaves connections hanging"
    )
    parser.add_argument("--pepsal", type=Path, metavar="FILE", help="PEPsal's executable, if it is not on PATH")
    parser.add_argument(
        "--render", type=figures_folder, metavar="FOLDER", help="also write the figures into files of FOLDER"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was measured")
    options = parser.parse_args()
    try:
        if options.endings:
            asyncio.run(_measure_endings(options))
        else:
            asyncio.run(_measure_idle(options.idle) if options.idle else _measure(options))
    except AtollError as error:
        parser.exit(error.exit_code, f"{error}\n")


async def _measure(options: argparse.Namespace) -> None:
    rounds, seconds = (1, 1) if options.quick else (options.rounds, options.seconds)
    pepsal = _executable(options.pepsal)
    ways = [ROUTER, PROXY, *([PEPSAL] if pepsal else [])]
    machine = describe()
    bulk: dict[str, dict[str, list[float]]] = {}
    ended: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for offloads in (False, True):
            rates = bulk[_frames(offloads=offloads)] = {way: [] for way in ways}
            for _ in range(rounds):
                for way in ways:  # a slow spell of the machine meets all of them
                    async with between(way, pepsal, Path(scratch), offloads=offloads) as proxied:
                        rates[way].append(await bulk_bit_s(proxied, seconds))
        twos: dict[str, list[float]] = {way: [] for way in (ROUTERS, SPLIT, MULTIPLEXED)}
        for _ in range(rounds):
            for way, found_rates in twos.items():
                async with between_two(way, Path(scratch)) as proxied:
                    found_rates.append(await bulk_bit_s(proxied, seconds))
        for way in ways:
            async with between(way, pepsal, Path(scratch), offloads=False) as proxied:
                ended[way] = await downloads(proxied, _DOWNLOADS)
    text = "\n\n".join([in_words(machine), _bulk_table(bulk, PEPSAL), _ended_table(ended)])
    two = "\n\n".join([in_words(machine), _bulk_table({_frames(offloads=False): twos}, SPLIT)])
    print(f"{text}\n\n{two}")
    if not pepsal:
        print(f"{PEPSAL}: {_REMEDY}")
    if options.json:
        write_results(
            options.json, {"machine": machine, "bulk_bit_s": bulk, "two_boxes_bit_s": twos, "downloads": ended}
        )
    if options.render:
        write_figures(options.render, "proxy", text)
        write_figures(options.render, "two-proxies", two)


async def _measure_idle(count: int) -> None:
    _, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    print(in_words(describe()))
    for multiplex in (True, False):
        what = f"{count} idle connections through two proxies, {'multiplexed' if multiplex else 'split one by one'}"
        needed = count * (1 if multiplex else 2) + _OWN_DESCRIPTORS
        if needed > allowed:
            print(f"{what}: left out; they need {needed} descriptors, the machine allows {allowed} (ulimit -Hn)")
            continue
        with tempfile.TemporaryDirectory() as scratch:
            async with two_proxies(Path(scratch), multiplex=multiplex) as (proxied, _, _):
                each = await idle_bytes(proxied, count)
        print(f"{what}: {each:.0f} B of the program each")


async def _measure_endings(options: argparse.Namespace) -> None:
    pepsal = _executable(options.pepsal)
    by_way: dict[str, Ended] = {}
    for way in WAYS if pepsal else WAYS[:-1]:
        count = options.endings_pepsal or options.endings if way == PEPSAL else options.endings
        with tempfile.TemporaryDirectory() as scratch:
            by_way[way] = await ended(way, count, pepsal, Path(scratch))
        print(f"{way}: {by_way[way]}", flush=True)
    print(f"\n{in_words(describe())}\n\n{table(by_way)}")
    if options.json:
        write_results(options.json, {"endings": {way: asdict(each) for way, each in by_way.items()}})


def _executable(named: Path | None) -> Path | None:
    program = str(named) if named else shutil.which("pepsal")
    if program and not os.access(program, os.X_OK):
        raise AtollError(f"{program} is not an executable file")
    return Path(program).absolute() if program else None


def _frames(*, offloads: bool) -> str:
    return "up to 64 kB (offloads on)" if offloads else "of 1500 bytes"


def _bulk_table(bulk: dict[str, dict[str, list[float]]], other: str) -> str:
    """``other``: a way that all are compared with, next to routing, if it was measured."""
    lines = [
        f"| packets | way | Gbit/s, median | least | most | / routing, median of rounds | / {other} |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for frames, rates in bulk.items():
        for way, of_way in rates.items():
            gbit_s = [f"{rate / 1e9:.2f}" for rate in (median(of_way), min(of_way), max(of_way))]
            ratios = [_ratio(of_way, rates.get(name)) for name in (next(iter(rates)), other)]
            lines.append(f"| {' | '.join([frames, way, *gbit_s, *ratios])} |")
    return "\n".join(lines)


def _ratio(own_rates: list[float], others: list[float] | None) -> str:
    return f"{median(own / other for own, other in zip(own_rates, others, strict=True)):.2f}" if others else ""


def _ended_table(ended: dict[str, dict[str, int]]) -> str:
    lines = ["| way | downloads | whole | others |", "|---|---:|---:|---|"]
    for way, of_way in ended.items():
        others = ", ".join(f"{count} of {what}" for what, count in of_way.items() if what != "whole")
        lines.append(f"| {way} | {sum(of_way.values())} | {of_way.get('whole', 0)} | {others or 'none'} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
