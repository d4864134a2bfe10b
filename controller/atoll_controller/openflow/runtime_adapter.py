# SPDX-License-Identifier: Apache-2.0
"""os-ken or Ryu: one interface under two names. The controller process chooses before it loads anything of either.

os-ken is the continuation of Ryu: modules and classes are the same but for the root package and the name of the class
that apps descend from. os-ken runs on native threads; Ryu's hub knows eventlet only, which replaces the standard
library's threads, queues and sockets by its own and has to do so before anybody uses them.
"""

import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from atoll_core.plan.switch_features import Runtime

_ROOTS = {Runtime.OS_KEN: "os_ken", Runtime.RYU: "ryu"}
_BASES = {Runtime.OS_KEN: "OSKenApp", Runtime.RYU: "RyuApp"}
_READ_BYTES = 65536  # bytes

_chosen = Runtime.OS_KEN


def choose(runtime: Runtime) -> None:
    """Select the framework; must be called before anything else. Raises ImportError if it is not installed."""
    global _chosen  # noqa: PLW0603 - a process has one framework, for its apps are classes made when they are imported
    _chosen = runtime
    if runtime is Runtime.RYU:
        _prepare_eventlet()
    module("base.app_manager")


def _prepare_eventlet() -> None:
    warnings.simplefilter("ignore")  # both are old
    importlib.import_module("eventlet.hubs").use_hub("poll")  # epoll takes no file as standard input
    importlib.import_module("eventlet").monkey_patch()
    # Ryu 4.34 imports a name that eventlet dropped in 0.31, for a web server that is not started here.
    setattr(importlib.import_module("eventlet.wsgi"), "ALREADY_HANDLED", object())  # noqa: B010 - no stub knows it


def module(name: str) -> Any:
    """A module of the framework: ``module("lib.hub")``."""
    return importlib.import_module(f"{_ROOTS[_chosen]}.{name}")


def app_base() -> Any:
    """The class that apps descend from."""
    return getattr(module("base.app_manager"), _BASES[_chosen])


def title() -> str:
    """The framework and its version: ``os-ken 4.2.2``."""
    return f"{_chosen} {version(_chosen)}"


def lines_of_input() -> Iterator[bytes]:
    """The lines of standard input as they arrive; other threads keep running."""
    if _chosen is Runtime.OS_KEN:
        yield from sys.stdin.buffer
        return
    wait_for: Any = importlib.import_module("eventlet.hubs").trampoline
    unfinished = b""
    while True:
        wait_for(0, read=True)
        chunk = os.read(0, _READ_BYTES)
        if not chunk:
            return
        *lines, unfinished = (unfinished + chunk).split(b"\n")
        yield from lines
