# SPDX-License-Identifier: Apache-2.0
"""Find the ``atoll-host`` executable."""

import os
import shutil
from pathlib import Path

from atoll_core.errors import MachineError

VARIABLE = "ATOLL_HOST"


def find_binary() -> Path:
    """The ``atoll-host`` executable: that of ``ATOLL_HOST``, else the project's build, else the one on PATH.

    Raises MachineError if there is none.
    """
    if named := os.environ.get(VARIABLE):
        path = Path(named).absolute()
        if not _executable(path):
            raise MachineError(f"{VARIABLE}={named} is not an executable file; correct or unset it")
        return path
    built = Path(__file__).resolve().parents[2] / "target" / "release" / "atoll-host"
    if _executable(built):
        return built
    if installed := shutil.which("atoll-host"):
        return Path(installed).absolute()
    raise MachineError(f"atoll-host is neither built ({built}) nor on PATH; `make setup` builds it")


def _executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
