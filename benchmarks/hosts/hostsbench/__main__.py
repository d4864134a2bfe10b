# SPDX-License-Identifier: Apache-2.0
"""``benchmarks/hosts/run``: start one program on many machines in several ways; print a table, write JSON."""

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from atoll_core.errors import AtollError
from atoll_emulation.mininet_lab.namespaces import namespaces_error, unshare_argv
from atoll_hosts.binary import find_binary
from benchkit import harness
from benchkit.json_results import read_earlier
from benchkit.program import part
from hostsbench.starters import COLD, WARM, starters
from hostsbench.table import table

_QUICK_HOSTS, _QUICK_WAYS = 8, ("atoll", "pssh")
_RANGE = (1, 1000)  # the bridge has a port for each


def main() -> int:
    """Measure in namespaces of its own, and show the results."""
    options = _options()

    def measured() -> dict[str, list[dict[str, Any]]]:
        earlier = read_earlier(options.json, "results")
        return _merged(earlier, options.only, _measured(options))

    return harness.run(options, "hosts", "results", measured, table)


def _options() -> argparse.Namespace:
    names = [way.name for way in starters(find_binary())]
    parser = harness.parser("hosts", __doc__)
    parser.add_argument("--hosts", type=int, metavar="N", help=f"machines (100; --quick: {_QUICK_HOSTS})")
    parser.add_argument("--rounds", type=int, metavar="N", help="of each way (5; --quick: 1)")
    parser.add_argument("--only", action="append", choices=names, help="this way alone (may be repeated)")
    options = parser.parse_args()
    options.hosts = options.hosts or (_QUICK_HOSTS if options.quick else 100)
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.only = options.only or (list(_QUICK_WAYS) if options.quick else names)
    if options.rounds < 1 or not _RANGE[0] <= options.hosts <= _RANGE[1]:
        parser.error(f"--rounds: at least 1; --hosts: from {_RANGE[0]} to {_RANGE[1]}")
    return options


def _measured(options: argparse.Namespace) -> list[dict[str, Any]]:
    if os.geteuid() != 0:
        raise AtollError("machines with an sshd each take root: run it as root")
    if (reason := namespaces_error()) is not None:
        raise AtollError(reason)
    sshd = shutil.which("sshd")
    if sshd is None:
        raise AtollError("no sshd on this machine: apt install openssh-server")
    with tempfile.TemporaryDirectory() as directory:
        task = Path(directory) / "task.json"
        folder = Path(directory) / "fleet"
        folder.mkdir()
        asked = {"ways": options.only, "hosts": options.hosts, "rounds": options.rounds}
        task.write_text(json.dumps({**asked, "folder": str(folder), "sshd": sshd}))
        harness.measured_by([*unshare_argv(), *part("hostsbench.measure", str(task))])
        return json.loads(task.read_text())["results"]


def _merged(earlier: dict[str, Any], asked: list[str], new: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The results of the file, except those that have been measured again, in the order of the starters."""
    old: list[dict[str, Any]] = earlier.get("results", [])
    measured = {*asked, *(each["way"] for each in new)}
    order = [COLD, WARM, *(way.name for way in starters(find_binary()))]
    kept = [each for each in old if each["way"] not in measured]
    return {"results": sorted([*kept, *new], key=lambda each: order.index(each["way"]))}


if __name__ == "__main__":
    sys.exit(main())
