# SPDX-License-Identifier: Apache-2.0
"""Searches of the queue capacity, compared with the grid of five capacities: the answers, and the runs of both."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from atoll_core.errors import AtollError
from tests.support.sandbox import ATOLL, GEO

_QUEUE = "links.sat.to_island.queue"
_GRID_KB = (60, 120, 240, 480, 960)
_LINKS = {  # name: rate in Mbit/s, one-way delay in ms, duration in s, transfer in MB
    "GEO 8 Mbit/s": (8, 250, 60, 10),
    "GEO 16 Mbit/s": (16, 250, 60, 10),
    "MEO 32 Mbit/s": (32, 62.5, 40, 10),
    "MEO 64 Mbit/s": (64, 62.5, 40, 20),
}
_LOADS = (10, 30, 100, 300)
_REPETITIONS = 3


def compare(folder: Path, *, quick: bool) -> list[dict[str, Any]]:
    """Sweep the search, then the grid in the same directory; of each link and load the answers and the runs.

    ``quick``: one link with two loads.
    """
    links, loads = (["GEO 16 Mbit/s"], _LOADS[1:3]) if quick else ([*_LINKS], _LOADS)
    search = f"search: {{over: {_QUEUE}, from: {_GRID_KB[0]} kB, to: {_GRID_KB[-1]} kB, resolution: 60 kB}}\n"
    searched = _swept(folder, "search", _study(links, loads, f"repetitions: {_REPETITIONS}\n{search}"))
    grid = f"  {_QUEUE}: [{', '.join(f'{queue} kB' for queue in _GRID_KB)}]\nrepetitions: {_REPETITIONS}\n"
    recommended = {
        _key(item["others"]): item["recommended_bytes"]
        for item in _swept(folder, "grid", _study(links, loads, grid))["queue_capacity"]
    }
    return [
        {
            "configuration": ", ".join(item["others"].values()),
            "search_bytes": item["best_bytes"],
            "interval_bytes": item["interval_bytes"],
            "grid_bytes": recommended[_key(item["others"])],
            "runs": item["runs"],
            "grid_runs": len(_GRID_KB) * _REPETITIONS,
        }
        for item in searched["searches"]
    ]


def agrees(row: dict[str, Any]) -> bool:
    """Whether the grid recommends the smallest of its capacities that is not below the one that was found."""
    if row["search_bytes"] is None or row["grid_bytes"] is None:
        return False
    return row["grid_bytes"] == min(1000 * queue for queue in _GRID_KB if 1000 * queue >= row["search_bytes"])


def table(rows: list[dict[str, Any]]) -> list[str]:
    """The comparison in Markdown."""
    if not rows:
        return []
    lines = ["| link, channels | search | interval, 75 % | grid | same | runs | of the grid |"]
    lines.append("|---|---:|---:|---:|---|---:|---:|")
    for row in rows:
        interval = " to ".join(f"{end / 1e3:g}" for end in row["interval_bytes"] or ())
        found, grid = (f"{row[key] / 1e3:g} kB" if row[key] else "none" for key in ("search_bytes", "grid_bytes"))
        same = "yes" if agrees(row) else "no"
        share = f"{row['runs'] / row['grid_runs']:.0%}"
        lines.append(
            f"| {row['configuration']} | {found} | {interval} kB | {grid} | {same} | {row['runs']} | {share} |"
        )
    return [*lines, ""]


def _study(links: list[str], loads: tuple[int, ...], rest: str) -> str:
    variants = "".join(f"    {name}: {{{_settings(*_LINKS[name])}}}\n" for name in links)
    return f"name: queues\nexperiment: {GEO}\nfactors:\n  link:\n{variants}  traffic.channels: {[*loads]}\n{rest}"


def _settings(rate: int, delay_ms: float, duration_s: int, transfer_mb: int) -> str:
    links = ", ".join(
        f"links.sat.{way}.{key}: {value}"
        for way, mbit_s in (("to_island", rate), ("to_world", rate / 4))
        for key, value in (("rate", f"{mbit_s:g} Mbit/s"), ("delay", f"{delay_ms:g} ms"))
    )
    return f"{links}, duration: {duration_s} s, transfer.size: {transfer_mb} MB, tcp.buffer_max: 16 MB"


def _swept(folder: Path, name: str, study: str) -> dict[str, Any]:
    file = folder / f"{name}.yaml"
    file.write_text(study)
    done = subprocess.run(
        [ATOLL, "sweep", file, folder / "queues", "--resume", "--json"], stdout=subprocess.PIPE, text=True, check=False
    )
    if not done.stdout:
        raise AtollError(f"the {name} failed (exit code {done.returncode})")
    print(f"{name}: {json.loads(done.stdout)['points']}", file=sys.stderr)
    return json.loads(done.stdout)


def _key(others: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(others.items()))
