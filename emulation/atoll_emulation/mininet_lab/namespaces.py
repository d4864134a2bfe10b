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

_RUN = "/run"
_BOUNDS = Path("/proc/sys/user")

_libc = ctypes.CDLL(None, use_errno=True)


def unshare_argv() -> list[str]:
    """Return the command prefix that runs another as the first process of new namespaces, there as root.

    ``setpriv`` has the kernel kill it with the process that started it; ``--kill-child`` passes that on.
    """
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return [
        *("setpriv", "--pdeathsig", "KILL", "unshare"),
        *user,
        *("--mount", "--propagation", "private", "--net", "--pid", "--fork", "--kill-child", "--"),
    ]


def nsenter_argv(pid: int) -> list[str]:
    """The command prefix that runs another inside the namespaces of process ``pid``, in the directory ``/``."""
    user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
    return ["nsenter", f"--target={pid}", *user, "--mount", "--net", "--pid", "--"]


def why_no_namespaces() -> str | None:
    """Try to make namespaces: None if it works, else the system's error."""
    tried = subprocess.run([*unshare_argv(), "true"], capture_output=True, text=True, check=False)
    if tried.returncode == 0:
        return None
    reason = tried.stderr.strip().splitlines()[-1] if tried.stderr.strip() else f"exit code {tried.returncode}"
    return reason.replace(os.strerror(errno.ENOSPC), _bound())


def _bound() -> str:
    """Explain ENOSPC of unshare(2), a limit of the number of namespaces; names the lowest such limit."""
    kinds = ("mnt", "net", "pid") if os.geteuid() == 0 else ("user", "mnt", "net", "pid")
    bounds: dict[str, int] = {}
    for kind in kinds:
        with contextlib.suppress(OSError, ValueError):
            bounds[kind] = int((_BOUNDS / f"max_{kind}_namespaces").read_text())
    if not bounds:
        return "the allowed number of namespaces is in use"
    least = min(bounds, key=lambda kind: bounds[kind])
    return f"the allowed number of namespaces is in use, user.max_{least}_namespaces is {bounds[least]}"


def hidden_in_lab(path: Path) -> bool:
    """Return whether a file or directory is invisible in the lab, which has a /run of its own."""
    return path.resolve().is_relative_to(_RUN)


def furnish() -> None:
    """Mount /proc, /run and /sys in the namespaces of this first process, and bring ``lo`` up.

    /tmp and everything else stay shared with the outside. Raises LabError.
    """
    _mount("proc", "/proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    _mount("tmpfs", _RUN, _MS_NOSUID | _MS_NODEV, "mode=755")
    with contextlib.suppress(LabError):  # some containers forbid it; nothing here needs /sys/class/net to be the lab's
        _mount("sysfs", "/sys", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    netdev.disable_ipv6()
    netdev.set_up("lo")


def _mount(kind: str, where: str, flags: int, options: str = "") -> None:
    if _libc.mount(kind.encode(), where.encode(), kind.encode(), flags, options.encode() or None) != 0:
        raise LabError(f"the lab cannot mount its own {where}: {os.strerror(ctypes.get_errno())}")
