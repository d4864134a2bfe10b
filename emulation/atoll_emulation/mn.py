# SPDX-License-Identifier: Apache-2.0
"""Mininet, found where the distribution put it.

Debian installs Mininet for the system's Python only, and PyPI's package lacks ``mnexec``. Instead of opening the
virtual environment to all system packages, only the one package ``mininet`` is looked up there. The types of what
is used of it stand in ``mn.pyi``.
"""

import importlib.machinery
import importlib.util
import sys
from importlib import import_module

SYSTEM_PACKAGES = ("/usr/lib/python3/dist-packages", "/usr/local/lib/python3/dist-packages")


def _find_mininet() -> None:
    """Make ``import mininet`` work, or raise ImportError with the remedy."""
    if importlib.util.find_spec("mininet") is not None:
        return
    spec = importlib.machinery.PathFinder.find_spec("mininet", list(SYSTEM_PACKAGES))
    if spec is None or spec.loader is None:
        msg = "Mininet is not installed: apt install mininet"
        raise ImportError(msg, name="mininet")
    package = importlib.util.module_from_spec(spec)
    sys.modules["mininet"] = package
    spec.loader.exec_module(package)


_find_mininet()

CLI = import_module("mininet.cli").CLI
Host = import_module("mininet.node").Host
Intf = import_module("mininet.link").Intf
Link = import_module("mininet.link").Link
Mininet = import_module("mininet.net").Mininet
Node = import_module("mininet.node").Node
OVSIntf = import_module("mininet.link").OVSIntf
OVSSwitch = import_module("mininet.node").OVSSwitch
RemoteController = import_module("mininet.node").RemoteController
Topo = import_module("mininet.topo").Topo
