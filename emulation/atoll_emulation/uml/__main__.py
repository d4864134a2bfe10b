# SPDX-License-Identifier: Apache-2.0
"""``python -m atoll_emulation.uml [--seed N] [--limit SECONDS] [--output DIRECTORY] COMMAND...``: a kernel for it.

With a seed its time is virtual, without one the machine's.
"""

import argparse
import sys
from pathlib import Path

from atoll_core.errors import AtollError
from atoll_emulation.uml.boot import VirtualClock, run_in_uml
from atoll_emulation.uml.kernel import find_virtual_kernel


def main() -> int:
    """Run the command; its console on standard output, its exit status as ours."""
    parser = argparse.ArgumentParser(prog="atoll_emulation.uml", description=__doc__)
    parser.add_argument("--seed", type=int, help="seed of everything random; with a seed, time is virtual")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds after which the kernel is stopped")
    parser.add_argument("--output", type=Path, default=Path("out"), help="directory seen as /out inside")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("no command to run, such as: sh -c 'date; sleep 1000; date'")
    try:
        status, output = run_in_uml(
            options.command,
            options.output,
            limit_s=options.limit,
            kernel=find_virtual_kernel(),
            clock=None if options.seed is None else VirtualClock(options.seed),
        )
    except AtollError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(output)
    return status


if __name__ == "__main__":
    sys.exit(main())
