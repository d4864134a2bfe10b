# SPDX-License-Identifier: Apache-2.0
"""Find the distribution's Mininet.

Debian installs Mininet for the system's Python only, and PyPI's package has no ``mnexec``. Instead of opening the
virtual environment to all system packages, only the one package ``mininet`` is looked up there.
"""

import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder

from atoll_core.clone import remedy

SYSTEM_PACKAGES = ("/usr/lib/python3/dist-packages", "/usr/local/lib/python3/dist-packages")


def find_mininet() -> ModuleSpec | None:
    """Return the import specification of ``mininet`` without importing it; None when it is not installed."""
    return importlib.util.find_spec("mininet") or PathFinder.find_spec("mininet", SYSTEM_PACKAGES)


def load_mininet() -> None:
    """Make ``import mininet`` work, or raise ImportError with the remedy."""
    if "mininet" in sys.modules:
        return
    spec = find_mininet()
    if spec is None or spec.loader is None:
        advice = remedy("`make setup` installs it", "`atoll setup` says how")
        raise ImportError(f"Mininet is not installed: {advice}", name="mininet")
    package = importlib.util.module_from_spec(spec)
    sys.modules["mininet"] = package
    spec.loader.exec_module(package)
