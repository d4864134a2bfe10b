# SPDX-License-Identifier: Apache-2.0
"""`python -m atoll_analysis RUN`: analyse a run directory again and print its summary as JSON."""

import argparse
import importlib
import json
import sys
from pathlib import Path

from atoll_analysis import analyse
from atoll_analysis.run_directory import RunDir
from atoll_core.errors import AtollError


def main() -> int:
    """Return exit code 0 when analysed, whatever the verdict; otherwise the error's."""
    parser = argparse.ArgumentParser(prog="python -m atoll_analysis", description="Analyse a run directory.")
    parser.add_argument("run", type=Path, help="a run directory, such as runs/geo/20260102T030405Z-1")
    parser.add_argument(
        "--binary",
        type=Path,
        default=Path("atoll-host"),
        help="the atoll-host executable (default: that on the PATH)",
    )
    parser.add_argument(
        "--after-line", dest="wait_for_input", action="store_true", help="load libraries, then wait for a line of input"
    )
    arguments = parser.parse_args()
    if arguments.wait_for_input:
        importlib.import_module("atoll_analysis.analyse_run")
        if not sys.stdin.readline():
            return 1
    try:
        summary = analyse(RunDir.open(arguments.run, allow_damaged=True), arguments.binary)
    except AtollError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    json.dump(summary, sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
