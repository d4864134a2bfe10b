# SPDX-License-Identifier: Apache-2.0
"""The measurement itself, first process of namespaces of its own: the machines, then one way after another."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO, cast

from atoll_core.errors import AtollError
from atoll_emulation.mininet_lab.namespaces import set_up_namespaces
from atoll_hosts.binary import find_binary
from hostsbench.fleet import SERVER, Fleet
from hostsbench.starters import starters


def main() -> int:
    """Read the task from the file named, measure, write the results there."""
    path = Path(sys.argv[1])
    task = json.loads(path.read_text())
    set_up_namespaces()
    fleet = _fleet(Path(task["folder"]), task["hosts"], task["sshd"])
    os.environ["ANSIBLE_HOME"] = str(fleet.folder)  # it makes one even for --version
    _say(f"{fleet.size} machines are up")
    server = _serve(fleet.binary)
    results: list[dict[str, Any]] = []
    for way in starters(fleet.binary):
        if way.name not in task["ways"]:
            continue
        if way.missing:
            results.append({"way": way.name, "left_out": way.missing})
            continue
        try:
            for name, starts in way.measure(fleet, task["rounds"]).items():
                rounds = [asdict(start) for start in starts]
                results.append({"way": name, "hosts": fleet.size, "version": way.version(), "rounds": rounds})
                _say(f"{name}: {', '.join(f'{start.last_s:.2f} s, {start.spread_ms:.1f} ms' for start in starts)}")
        except (AtollError, subprocess.TimeoutExpired) as error:
            results.append({"way": way.name, "left_out": str(error)})
            _say(f"{way.name}: left out: {error}")
    server.terminate()
    server.wait()
    path.write_text(json.dumps({"results": results}))
    return 0


def _fleet(folder: Path, size: int, sshd: str) -> Fleet:
    """Machines below a file system in memory, which has the programs and files that they need."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=4g,mode=755", "tmpfs", str(folder)]
    subprocess.run(mount, check=True)
    binary = folder / "atoll-host"
    binary.write_bytes(find_binary().read_bytes())
    binary.chmod(0o755)
    fleet = Fleet(folder, size, binary)
    fleet.build(sshd)
    return fleet


def _serve(binary: Path) -> subprocess.Popen[str]:
    """Start the server of all channels."""
    process = subprocess.Popen([binary, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    output, requests = cast("TextIO", process.stdout), cast("TextIO", process.stdin)
    requests.write(json.dumps({"listen": SERVER, "congestion_control": "cubic"}) + "\n")
    requests.flush()
    output.readline()
    return process


def _say(text: str) -> None:
    sys.stderr.write(f"bench-hosts: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
