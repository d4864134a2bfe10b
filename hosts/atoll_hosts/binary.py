# SPDX-License-Identifier: Apache-2.0
"""Find the ``atoll-host`` executables: that of this machine, and the static ones for hosts of each architecture."""

import os
import platform
import shutil
from pathlib import Path

from atoll_core.clone import clone_root, remedy
from atoll_core.errors import MachineError
from atoll_core.mounts import noexec_problem

VARIABLE = "ATOLL_HOST"

_PACKAGED = Path(__file__).parent / "binaries"  # only in wheels, by tools/wheels.py
_ALIASES = {"arm64": "aarch64", "armv8l": "armv7l", "amd64": "x86_64"}


def find_binary() -> Path:
    """The ``atoll-host`` executable: that of ``ATOLL_HOST``, else the wheel's, the clone's build, or the one on PATH.

    Raises MachineError if there is none.
    """
    if named := os.environ.get(VARIABLE):
        path = Path(named).absolute()
        if not _executable(path):
            raise MachineError(
                _noexec_problem(path) or f"{VARIABLE}={named} is not an executable file; correct or unset it"
            )
        return path
    root = clone_root()
    place = root / "target" / "release" / "atoll-host" if root else _PACKAGED / static_name(platform.machine())
    if _executable(place):
        return place
    if problem := _noexec_problem(place):
        raise MachineError(problem)
    if on_path := shutil.which("atoll-host"):
        return Path(on_path).absolute()
    advice = remedy("`make setup` builds it", f"install a wheel of atoll for {platform.machine()}")
    raise MachineError(f"there is no atoll-host at {place}, and none on PATH; {advice}")


def static_folder() -> Path:
    """The directory of the static executables, one for each architecture: the wheel's, or that of `make release`."""
    root = clone_root()
    return root / "target" / "release-binaries" if root else _PACKAGED


def static_name(machine: str) -> str:
    """The name of the static executable for machines whose ``uname -m`` prints ``machine``."""
    return f"atoll-host-{_ALIASES.get(machine, machine)}"


def _noexec_problem(path: Path) -> str | None:
    return noexec_problem(path) if path.is_file() else None


def _executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
