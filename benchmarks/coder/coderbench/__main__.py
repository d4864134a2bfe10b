# SPDX-License-Identifier: Apache-2.0
"""``benchmarks/coder/run``: multiply-add, encoding and decoding of atoll's crates and of the crate rlnc, in turn.

With ``--tunnel``, coders and tinyfecVPN between two hosts instead.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from atoll_core.errors import AtollError
from benchkit import harness
from benchkit.markdown import markdown_table
from coderbench import tunnel

_PACKET = 1400  # bytes, those of benchmarks/coder/measure
_SYMBOL = _PACKET + 2
_OURS = "atoll-rlnc"
_PEER = "rlnc"

_TUNNEL_RESULTS = Path("target/bench-coder-tunnel.json")
_ROUNDS, _TUNNEL_ROUNDS = 41, 5
_TUNNEL_SECONDS = 1.0  # of each stream

_Times = Mapping[tuple[str, str, int], Sequence[float]]
"""Nanoseconds by case, name and number of packets; one value for each round."""


def main() -> int:
    """Measure, and show the results."""
    parser = harness.parser("coder", __doc__, merges=False)
    parser.add_argument("--rounds", type=int, help="of all measurements (41, of tunnels 5; --quick: 3 and 1)")
    parser.add_argument("--milliseconds", type=int, default=20, help="of each measurement (%(default)s; --quick: 2)")
    parser.add_argument("--tunnel", action="store_true", help="measure tunnels between two hosts instead, as root")
    parser.add_argument("--tinyvpn", type=Path, metavar="FILE", help="tinyfecVPN's executable, if it is not on PATH")
    options = parser.parse_args()
    if options.tunnel and options.json == parser.get_default("json"):
        options.json = _TUNNEL_RESULTS
    options.rounds = options.rounds or (_TUNNEL_ROUNDS if options.tunnel else _ROUNDS)
    if options.rounds < 1 or options.milliseconds < 1:
        parser.error("--rounds and --milliseconds: at least 1")
    if options.tunnel:
        return harness.run(options, "tunnel", "tunnels", lambda: {"tunnels": _measured_tunnels(options)}, _tunnel_table)
    return harness.run(options, "coder", "times", lambda: {"times": _measured(options)}, _tables)


def _measured(options: argparse.Namespace) -> list[dict[str, Any]]:
    rounds, milliseconds = (3, 2) if options.quick else (options.rounds, options.milliseconds)
    argv = [os.environ["CODER_MEASURE"], str(rounds), str(milliseconds)]
    done = harness.measured_by(argv, subprocess.PIPE)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _measured_tunnels(options: argparse.Namespace) -> list[dict[str, Any]]:
    named = str(options.tinyvpn) if options.tinyvpn else shutil.which("tinyvpn")
    if named and not os.access(named, os.X_OK):
        raise AtollError(f"{named} is not an executable file")
    if not named:
        print("tinyfecVPN: left out; name its executable by --tinyvpn (docs/benchmarks.md tells how to build it)")
    rounds, seconds = (1, 0.5) if options.quick else (options.rounds, _TUNNEL_SECONDS)
    return asyncio.run(tunnel.measured(rounds, seconds, Path(named).absolute() if named else None))


def _tunnel_table(known: dict[str, Any]) -> str:
    """Medians over rounds; ratios and added delays within a round."""
    ways: dict[str, list[dict[str, Any]]] = {}
    for measured in known["tunnels"]:
        ways.setdefault(measured["way"], []).append(measured)
    routers, peers = ways[tunnel.ROUTERS], ways.get(tunnel.PEER, [])
    rows: list[tuple[str, ...]] = [
        ("way", "Mbit/s without loss, median", "least", "most", "/ tinyfecVPN, mode 0", "CPU s/Gbit, near box",
         "far box", "added delay, median")
    ]  # fmt: skip
    for way, rounds in ways.items():
        rates = [measured["lossless_bit_s"] / 1e6 for measured in rounds]
        ratio = median(own["lossless_bit_s"] / peer["lossless_bit_s"] for own, peer in zip(rounds, peers, strict=True)
                       ) if peers else None  # fmt: skip
        by_box = zip(*(measured["cpu_s_per_gbit"] for measured in rounds), strict=True)
        cpus = [f"{median(cpu_s):.2f}" for cpu_s in by_box]
        added = median(own["delay_ns"] - bare["delay_ns"] for own, bare in zip(rounds, routers, strict=True))
        rows.append((
            way,
            *(f"{one:.0f}" for one in (median(rates), min(rates), max(rates))),
            "" if ratio is None else f"{ratio:.2f}",
            *(cpus or ["", ""]),
            "" if way == tunnel.ROUTERS else f"{added / 1e3:.0f} us",
        ))  # fmt: skip
    return markdown_table(rows)


def _tables(known: dict[str, Any]) -> str:
    times: dict[tuple[str, str, int], list[float]] = {}
    losses: dict[int, int] = {}
    for run in known["times"]:
        times.setdefault((run["case"], run["name"], run["count"]), []).append(run["ns"])
        if run["lost"]:
            losses[run["count"]] = run["lost"]
    return "\n\n".join([_kernel_table(times), _code_table(times, losses), _ratio_table(times, losses)])


def _kernel_table(times: _Times) -> str:
    """Multiply-add: bytes of sources a second, and each kernel's speed divided by the peer's in the same round."""
    headings = ("multiply-add", "sources a pass", "GiB/s, median", "least", "most", "/ rlnc, median")
    rows: list[tuple[str, ...]] = [headings]
    peer = next(
        durations_ns for (case, name, _), durations_ns in times.items() if case == "kernel" and name.startswith(_PEER)
    )
    for (case, name, count), durations_ns in times.items():
        if case == "kernel":
            speeds = [count * _SYMBOL / ns * 1e9 / 2**30 for ns in durations_ns]
            ratio = median(theirs / own for own, theirs in zip(durations_ns, peer, strict=True))
            kernel, sources = name.split()
            title = "crate rlnc" if kernel == _PEER else kernel.upper() if kernel != "Tables" else "tables"
            rows.append((title, sources, *(f"{one:.1f}" for one in (median(speeds), min(speeds), max(speeds))),
                         f"{ratio:.2f}"))  # fmt: skip
    return markdown_table(rows)


def _code_table(times: _Times, losses: Mapping[int, int]) -> str:
    """Packets of generations a second, and their payload."""
    headings = ("code", "n", "w", "encode, packets/s", "payload Gbit/s", "decode, packets/s", "payload Gbit/s")
    rows: list[tuple[str, ...]] = [headings]
    for name in dict.fromkeys(name for case, name, _ in times if case == "decode"):
        for count, lost in losses.items():
            cells = list[str]()
            for case in ("encode", "decode"):
                rate = count / median(times[case, name, count]) * 1e9
                cells += [f"{rate:,.0f}", f"{rate * _PACKET * 8 / 1e9:.2f}"]
            rows.append((f"crate {name}" if name.startswith(_PEER) else name, str(count), str(lost), *cells))
    return markdown_table(rows)


def _ratio_table(times: _Times, losses: Mapping[int, int]) -> str:
    """Ratios of times in the same round."""
    headings = ("n", "w", "decoding / encoding", "rlnc's decoding / ours", "of coded pieces only / ours")
    rows: list[tuple[str, ...]] = [headings]
    for count, lost in losses.items():
        decode = times["decode", _OURS, count]
        ratios = [
            median(one / other for one, other in zip(ones, others, strict=True))
            for ones, others in (
                (decode, times["encode", _OURS, count]),
                (times["decode", _PEER, count], decode),
                (times["decode", f"{_PEER}, all coded", count], decode),
            )
        ]
        rows.append((str(count), str(lost), *(f"{one:.2f}" for one in ratios)))
    return markdown_table(rows)


if __name__ == "__main__":
    sys.exit(main())
