# SPDX-License-Identifier: Apache-2.0
"""The reason why the last lab failed, kept in a file after the daemon has ended until the next `up` or `down`.

The file also exists while a lab is up, and then says that the daemon was killed. A daemon that ends in another way
removes or replaces it; one that is killed cannot.
"""

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from atoll_core.platforms import LabTarget
from atoll_daemon.client import state_directory
from atoll_daemon.socket_lock import socket_name


def remember_failure(target: LabTarget, lab: str, reason: str, t_ns: int | None, leftovers: Sequence[str] = ()) -> None:
    """Write the failure that `atoll status` shows after the daemon has ended. ``t_ns``: CLOCK_REALTIME, if known.

    ``leftovers``: lines about settings that real machines may still have, for `atoll down`.
    """
    with contextlib.suppress(OSError):  # it is also in the log and in the events
        _file(target).parent.mkdir(parents=True, exist_ok=True)
        _file(target).write_text(
            json.dumps({"lab": lab, "reason": reason, "t_ns": t_ns, "left": leftovers}), encoding="utf-8"
        )


def expect_kill(target: LabTarget, lab: str) -> None:
    """Write the failure that `atoll status` shows if this process is killed."""
    remember_failure(target, lab, f"the daemon, process {os.getpid()}, was killed, or the machine went down", None)


def last_failure(target: LabTarget) -> dict[str, Any] | None:
    """The lab, reason, time and rest (``left``) of the last failure, if any. Only valid while no lab is up."""
    try:
        return json.loads(_file(target).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def forget_failure(target: LabTarget) -> None:
    """Remove the file: another lab is up, or the user has taken this one down."""
    with contextlib.suppress(OSError):
        _file(target).unlink(missing_ok=True)


def _file(target: LabTarget) -> Path:
    return state_directory() / f"failed-{socket_name(target).removeprefix('@atoll-')}.json"
