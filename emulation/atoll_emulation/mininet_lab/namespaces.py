# SPDX-License-Identifier: Apache-2.0
"""The namespaces of a lab: the ``unshare`` command that makes them, entering them, the mounts in them."""

import contextlib
import ctypes
import errno
import os
import subprocess
from pathlib import Path

from atoll_core.errors import LabError
from atoll_emulation.mininet_lab import netdev

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8

_RUN_FOLDER = "/run"
_LIMITS_FOLDER = Path("/proc/sys/user")

_CAP_SYS_ADMIN = 21  # capability.h

_libc = ctypes.CDLL(None, use_errno=True)


def uses_user_namespace() -> bool:
    """Whether a lab has a user namespace of its own: a plain user's, or that of a container's root with few rights."""
    effective = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff:"))
    return os.geteuid() != 0 or not int(effective.split()[1], 16) >> _CAP_SYS_ADMIN & 1


def unshare_argv() -> list[str]:
    """Return the command prefix that runs another as the first process of new namespaces, there as root.

    ``setpriv`` has the kernel kill it with the process that started it; ``--kill-child`` passes that on.
    """
    user = ["--user", "--map-root-user"] if uses_user_namespace() else []
    return [
        *("setpriv", "--pdeathsig", "KILL", "unshare"),
        *user,
        *("--mount", "--propagation", "private", "--net", "--pid", "--fork", "--kill-child", "--"),
    ]


def nsenter_argv(pid: int) -> list[str]:
    """The command prefix that runs another inside the namespaces of process ``pid``, in the directory ``/``."""
    user = ["--user", "--preserve-credentials"] if uses_user_namespace() else []
    return ["nsenter", f"--target={pid}", *user, "--mount", "--net", "--pid", "--"]


def namespaces_error() -> str | None:
    """Try to make namespaces: None if it works, else the system's error."""
    trial = subprocess.run([*unshare_argv(), "true"], capture_output=True, text=True, check=False)
    if trial.returncode == 0:
        return None
    reason = trial.stderr.strip().splitlines()[-1] if trial.stderr.strip() else f"exit code {trial.returncode}"
    return reason.replace(os.strerror(errno.ENOSPC), _limit_text())


def _limit_text() -> str:
    """Explain ENOSPC of unshare(2), a limit of the number of namespaces; names the lowest such limit."""
    kinds = ("user", "mnt", "net", "pid") if uses_user_namespace() else ("mnt", "net", "pid")
    limits: dict[str, int] = {}
    for kind in kinds:
        with contextlib.suppress(OSError, ValueError):
            limits[kind] = int((_LIMITS_FOLDER / f"max_{kind}_namespaces").read_text())
    if not limits:
        return "the allowed number of namespaces is in use"
    lowest = min(limits, key=lambda kind: limits[kind])
    return f"the allowed number of namespaces is in use, user.max_{lowest}_namespaces is {limits[lowest]}"


def is_hidden_in_lab(path: Path) -> bool:
    """Return whether a file or directory is invisible in the lab, which has a /run of its own."""
    return path.resolve().is_relative_to(_RUN_FOLDER)


def set_up_namespaces() -> None:
    """Mount /proc, /run and /sys in the namespaces of this first process, and bring ``lo`` up.

    /tmp and everything else stay shared with the outside. Raises LabError.
    """
    _mount("proc", "/proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    _mount("tmpfs", _RUN_FOLDER, _MS_NOSUID | _MS_NODEV, "mode=755")
    with contextlib.suppress(LabError):  # some containers forbid it; nothing here needs /sys/class/net to be the lab's
        _mount("sysfs", "/sys", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    netdev.disable_ipv6()
    netdev.set_up("lo")


def _mount(kind: str, target: str, flags: int, options: str = "") -> None:
    if _libc.mount(kind.encode(), target.encode(), kind.encode(), flags, options.encode() or None) != 0:
        raise LabError(f"the lab cannot mount its own {target}: {os.strerror(ctypes.get_errno())}")
