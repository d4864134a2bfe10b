# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.support.soak``: hours of random events on one lab, after which nothing may have grown.

The events are drawn from a seed (``soak_guest`` has them). With ``--of peps`` there are none: PEPs carry connections at
their limits (``pep_soak_guest``). Exit code 1: something has grown, or an event, a connection or the lab has failed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from atoll_core.errors import AtollError
from atoll_core.units import Duration
from atoll_emulation.uml.boot import VirtualClock, run_in_uml
from atoll_emulation.uml.kernel import find_virtual_kernel
from tests.support.sandbox import PYTHON, ROOT, Sandbox

_SETTING_UP_S = 600
_OWN_PLACES = "mount -t tmpfs run /run && mount -t tmpfs shm /dev/shm"  # where nobody else leaves files
_SLOWEST = 3  # of the machine's time for virtual time: an event that computes takes none of the latter


def main() -> int:
    """Soak where it was asked for."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--duration", default="30 min", help="by the lab's clock (%(default)s)")
    parser.add_argument("--on", choices=["virtual", "mininet"], default="virtual", help="(%(default)s)")
    parser.add_argument("--of", choices=["events", "peps"], default="events", help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="(%(default)s)")
    asked = parser.parse_args()
    try:
        duration_s = Duration.parse(asked.duration).s
    except (AtollError, ValueError) as error:
        parser.error(f"--duration: {error}")
    options = json.dumps({"duration_s": duration_s, "seed": asked.seed, "virtual": asked.on == "virtual"})
    guest = "tests.guests.soak_guest" if asked.of == "events" else "tests.guests.pep_soak_guest"
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        out = Path(directory)
        if asked.on == "mininet":
            (out / "tmp").mkdir()
            with Sandbox(out, setup=_OWN_PLACES) as sandbox:
                variables = [f"PYTHONPATH={ROOT}", f"TMPDIR={out / 'tmp'}"]
                words = ["env", *variables, PYTHON, "-m", guest, out, options]
                return subprocess.run(sandbox.command(words), check=False).returncode
        command = [sys.executable, "-m", guest, "/out", options]
        limit_s = _SETTING_UP_S + _SLOWEST * duration_s
        print(f"the guest's lines: {out / 'console.log'}", flush=True)
        clock = VirtualClock(asked.seed, limit_s=int(duration_s) + _SETTING_UP_S)
        status, console = run_in_uml(command, out, limit_s=limit_s, kernel=find_virtual_kernel(), clock=clock)
        print(console)
        return status


if __name__ == "__main__":
    sys.exit(main())
