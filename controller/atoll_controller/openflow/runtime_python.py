# SPDX-License-Identifier: Apache-2.0
"""Find the Python of the controller process: os-ken is in this program's environment, Ryu in one of its own."""

import importlib.util
import os
import sys
from pathlib import Path

from atoll_core.errors import MachineError
from atoll_core.plan.switch_features import Runtime

VARIABLE = "ATOLL_RYU_PYTHON"


def interpreter(runtime: Runtime) -> str:
    """The path of a Python that has the runtime.

    For Ryu the one that ATOLL_RYU_PYTHON names, else this one if it has Ryu, else that of ``.venv-ryu`` next to this
    environment, which ``tools/ryu`` makes. Raises MachineError, with the remedy, when there is none.
    """
    if runtime is Runtime.OS_KEN:
        return sys.executable
    named = os.environ.get(VARIABLE)
    if named is None and importlib.util.find_spec("ryu") is not None:
        return sys.executable
    place = Path(named) if named else Path(sys.prefix).parent / ".venv-ryu" / "bin" / "python"
    if os.access(place, os.X_OK):
        return str(place)
    raise MachineError(
        f"Ryu is not installed ({place} does not exist); run `tools/ryu`, or name a Python with atoll[ryu]: "
        f"{VARIABLE}=/path"
    )
