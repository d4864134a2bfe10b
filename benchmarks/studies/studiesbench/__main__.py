# SPDX-License-Identifier: Apache-2.0
"""``benchmarks/studies/run``: sweep a study with one run at a time and with several; kill sweeps at random instants.

``--only search``: search queue capacities, and sweep the grid.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from atoll_core.errors import AtollError
from atoll_emulation.this_machine.host_requirements import require_virtual_machine
from benchkit import harness
from benchkit.json_results import read_earlier
from studiesbench import queue_searches
from tests.support.killed_sweeps import STUDY, captures, kill_at_random
from tests.support.sandbox import ATOLL

_STUDY = Path("examples/studies/geo-queues.yaml").resolve()  # 24 runs of 60 s
_PARALLEL, _KILLS, _SEARCH = "parallel", "kills", "search"


def main() -> int:
    """Measure what was asked for and show it."""
    options = _options()
    return harness.run(options, "studies", "measured", lambda: _measured(options), _tables)


def _options() -> argparse.Namespace:
    parser = harness.parser("studies", __doc__, quick="a minute or two")
    parser.add_argument(
        "--only", choices=(_PARALLEL, _KILLS, _SEARCH), help="this alone; search: with the grid 240 runs and more"
    )
    parser.add_argument("--kills", type=int, metavar="N", help="sweeps that are killed (20; --quick: 3)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the instants of kills (%(default)s)")
    options = parser.parse_args()
    options.kills = options.kills or (3 if options.quick else 20)
    if options.kills < 1:
        parser.error("--kills: at least 1")
    return options


def _measured(options: argparse.Namespace) -> dict[str, Any]:
    require_virtual_machine()
    measured: dict[str, Any] = read_earlier(options.json, "measured").get("measured", {})
    with tempfile.TemporaryDirectory(prefix="atoll-studies-") as folder:
        if options.only in (None, _PARALLEL):
            measured[_PARALLEL] = _parallel(Path(folder), quick=options.quick)
        if options.only in (None, _KILLS):
            measured[_KILLS] = _killed(Path(folder), options.kills, options.seed)
        if options.only == _SEARCH:
            measured[_SEARCH] = queue_searches.compare(Path(folder), quick=options.quick)
    return {"measured": measured}


def _parallel(folder: Path, *, quick: bool) -> dict[str, Any]:
    study = _STUDY
    if quick:
        study = folder / "study.yaml"
        study.write_text(STUDY)
    print(f"{study.stem}: one run at a time, then one for each core", file=sys.stderr)
    one_s, _ = _swept(study, folder / "one", "--jobs", "1")
    several_s, busy = _swept(study, folder / "several")
    return {"study": study.stem, "one_s": one_s, "several_s": several_s, "busy": busy}


def _swept(study: Path, directory: Path, *words: str) -> tuple[float, list[float]]:
    """The wall time of a sweep, and the share of it in which each core was busy."""
    before, began = _cores(), time.monotonic()
    done = subprocess.run(
        [ATOLL, "sweep", study, directory, "--json", *words], capture_output=True, text=True, check=False
    )
    took_s, after = time.monotonic() - began, _cores()
    if done.returncode != 0:
        raise AtollError(f"the sweep failed: {done.stderr.strip()}")
    points = json.loads(done.stdout)["points"]
    if points["done"] != sum(points.values()):
        raise AtollError(f"not every run is valid: {points}")
    busy = [round((now[0] - was[0]) / (sum(now) - sum(was)), 4) for was, now in zip(before, after, strict=True)]
    return round(took_s, 1), busy


def _cores() -> list[tuple[int, int]]:
    """Busy and idle time of each core since boot, in ticks (proc_stat(5)); steal is no time of this machine's."""
    lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    ticks: list[tuple[int, int]] = []
    for line in lines:
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            user, nice, system, idle, iowait, irq, softirq, *_ = map(int, fields)
            ticks.append((user + nice + system + irq + softirq, idle + iowait))
    return ticks


def _killed(folder: Path, kills: int, seed: int) -> dict[str, Any]:
    print(f"{kills} sweeps are killed, seed {seed}", file=sys.stderr)
    undisturbed = folder / "undisturbed"
    study = folder / "killed.yaml"
    study.write_text(STUDY)
    took_s, _ = _swept(study, undisturbed)
    wanted = captures(undisturbed)
    directories = kill_at_random(folder / "killed", kills, took_s, random.Random(seed))  # noqa: S311 - instants
    same = sum(captures(directory) == wanted for directory in directories)
    return {"kills": kills, "sweeps": len(directories), "same": same, "captures": len(wanted), "undisturbed_s": took_s}


def _tables(known: dict[str, Any]) -> str:
    parts: list[str] = []
    if parallel := known["measured"].get(_PARALLEL):
        ratio = parallel["several_s"] / parallel["one_s"]
        busy = ", ".join(f"{share:.1%}" for share in parallel["busy"])
        parts += [
            "| study | one run at a time | one for each core | ratio | cores busy |",
            "|-------|------------------:|------------------:|------:|-----------:|",
            f"| {parallel['study']} | {parallel['one_s']} s | {parallel['several_s']} s | {ratio:.2f} | {busy} |",
            "",
        ]
    if killed := known["measured"].get(_KILLS):
        parts += [
            "| kill -9 | sweeps | with the same runs, to the byte of each capture |",
            "|--------:|-------:|------------------------------------------------:|",
            f"| {killed['kills']} | {killed['sweeps']} | {killed['same']} |",
        ]
    parts += queue_searches.table(known["measured"].get(_SEARCH, []))
    return "\n".join(parts).strip()


if __name__ == "__main__":
    sys.exit(main())
