# SPDX-License-Identifier: Apache-2.0
"""Make the pictures of docs/images from one run: `make screenshots`."""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from screenshots import dashboards, live_page, report_plots

ROOT = Path(__file__).resolve().parents[3]
ATOLL = ROOT / ".venv" / "bin" / "atoll"
EXPERIMENT = ROOT / "examples" / "geo.yaml"

PARTS: dict[str, Callable[[Path, Path], list[Path]]] = {
    "live-page": live_page.make,
    "report": report_plots.make,
    "dashboards": dashboards.make,
}
"""Functions that make pictures: (run directory, directory of the pictures) -> the files."""


def main() -> int:
    """Parse the command line, make or take a run, and have each part make its pictures."""
    parser = argparse.ArgumentParser(prog="tools/screenshots/run", description=__doc__)
    parser.add_argument("--run", type=Path, help="a run directory; without it, a minute of the demo in virtual time")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images", help="where the pictures go")
    parser.add_argument("--only", action="append", choices=sorted(PARTS), help="one kind of them; repeatable")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="atoll-screenshots-") as place:
        run: Path = options.run.resolve() if options.run else demo(Path(place))
        for name in options.only or PARTS:
            for file in PARTS[name](run, options.out):
                sys.stdout.write(f"{file} ({file.stat().st_size / 1e3:.0f} kB)\n")
    return 0


def demo(place: Path) -> Path:
    """The demo experiment, the same to the byte whenever it is run; its run directory."""
    subprocess.run(
        [ATOLL, "run", EXPERIMENT, "--on", "virtual", "--duration", "60 s"],
        cwd=place,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return next((place / "runs" / "geo").iterdir())


if __name__ == "__main__":
    sys.exit(main())
