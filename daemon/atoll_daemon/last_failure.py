# SPDX-License-Identifier: Apache-2.0
"""Why the last lab failed: kept in a file after its daemon has ended, until a lab is up again or `atoll down`.

The file is there while the lab is up, too, and says that the daemon was killed: a daemon that ends otherwise removes or
replaces it, and one that is killed cannot write.
"""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from atoll_daemon.client import state_directory
from atoll_daemon.socket_lock import socket_name


def remember_failure(lab: str, reason: str, t_ns: int | None) -> None:
    """Keep what `atoll status` says once the daemon is gone. ``t_ns``: CLOCK_REALTIME; None: not known."""
    with contextlib.suppress(OSError):  # the log and the events say it, too
        _file().parent.mkdir(parents=True, exist_ok=True)
        _file().write_text(json.dumps({"lab": lab, "reason": reason, "t_ns": t_ns}), encoding="utf-8")


def expect_kill(lab: str) -> None:
    """Keep what `atoll status` says if this process ends without another word."""
    remember_failure(lab, f"the daemon, process {os.getpid()}, was killed, or the machine went down", None)


def last_failure() -> dict[str, Any] | None:
    """The lab, the reason and the time of the failure, if there is one; to be read when no lab is up."""
    try:
        return json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def forget_failure() -> None:
    """Remove the file: another lab is up, or the user has ended this one."""
    with contextlib.suppress(OSError):
        _file().unlink(missing_ok=True)


def _file() -> Path:
    return state_directory() / f"failed-{socket_name().removeprefix('@atoll-')}.json"
