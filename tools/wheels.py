# SPDX-License-Identifier: Apache-2.0
"""Make wheels that hold atoll-host: `tools/wheels.py BINARIES OUT`.

BINARIES is a directory with atoll-host-x86_64, atoll-host-aarch64 and atoll-host-armv7l, all static. Each wheel holds
those that are there, for the hosts of labs; there is a wheel for each architecture that can run atoll itself. The
files of OUT depend on the clone's files, on BINARIES and on SOURCE_DATE_EPOCH only.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.wheel import WheelBuilder

from atoll_testbed.run.run_request import clone_revision

CLONE = Path(__file__).resolve().parents[1]
ARCHITECTURES = ("x86_64", "aarch64")


class PlatformWheelBuilder(WheelBuilder):
    """Builds a wheel for one platform, with files that are not in the clone."""

    platform_data: dict[str, Any]

    def get_default_build_data(self) -> dict[str, Any]:
        """Return what the build hooks of a project would return."""
        return super().get_default_build_data() | self.platform_data


def main(binaries: Path, out: Path) -> None:
    """Make the wheels and print their paths."""
    with tempfile.TemporaryDirectory() as scratch:
        revision_file = Path(scratch) / "revision.txt"
        revision_file.write_text(f"{clone_revision(Path(__file__)) or ''}\n")
        files = {str(path): f"atoll_hosts/binaries/{path.name}" for path in binaries.glob("atoll-host-*")}
        files[str(revision_file)] = "atoll_core/revision.txt"
        for architecture in ARCHITECTURES:
            if (binaries / f"atoll-host-{architecture}").is_file():
                # The dependencies' own wheels need a newer glibc; the static programs need none.
                builder = PlatformWheelBuilder(str(CLONE))
                tag = f"py3-none-manylinux_2_17_{architecture}"
                builder.platform_data = {"tag": tag, "pure_python": False, "force_include": files}
                print(*builder.build(directory=str(out), versions=["standard"]), sep="\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
