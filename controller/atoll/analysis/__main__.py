# SPDX-License-Identifier: Apache-2.0
"""`python -m atoll.analysis RUN`: analyse a run directory again and print its summary as JSON."""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from atoll.model.errors import AtollError
from atoll.rundir.rundir import RunDir


def main() -> int:
    """Exit code 0: valid, 3: invalid, otherwise the error's."""
    parser = argparse.ArgumentParser(prog="python -m atoll.analysis", description="Analyse a run directory.")
    parser.add_argument("run", type=Path, help="a run directory, such as runs/geo/20260102T030405Z-1")
    parser.add_argument(
        "--binary",
        type=Path,
        default=Path(os.environ.get("ATOLL_HOST") or shutil.which("atoll-host") or "target/release/atoll-host"),
        help="the atoll-host executable (default: $ATOLL_HOST, the search path, target/release)",
    )
    asked = parser.parse_args()
    from atoll.analysis.analyse import analyse

    try:
        summary = analyse(RunDir.open(asked.run), asked.binary)
    except AtollError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps(summary, indent=1))
    return 0 if summary["verdict"] == "valid" else 3


if __name__ == "__main__":
    sys.exit(main())
