# SPDX-License-Identifier: Apache-2.0
"""Settings of a machine or of a container that forbid what labs need, each as one line with its remedy."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from atoll_emulation.mininet_lab.namespaces import namespaces_error, unshare_argv, uses_user_namespace

# A file below /proc/sys, the value that forbids user namespaces to plain users, and the remedy.
_USER_NAMESPACE_SETTINGS = (
    ("user/max_user_namespaces", "0", "allow user namespaces: sysctl user.max_user_namespaces=10000"),
    ("kernel/unprivileged_userns_clone", "0", "allow user namespaces: sysctl kernel.unprivileged_userns_clone=1"),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "let AppArmor allow it: sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
)
_NO_FILTER = "give this container --security-opt seccomp=unconfined"
_TRACE = "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True); os._exit(libc.ptrace(0, 0, 0, 0) and 1)"


def namespaces_problem() -> str | None:
    """Why namespaces cannot be made here, as root or as a plain user."""
    if (reason := namespaces_error()) is None:
        return None
    if os.geteuid() == 0:
        return f"root may not make namespaces here ({reason}): {_namespaces_remedy('CAP_SYS_ADMIN')}"
    remedy = _namespaces_remedy("")
    return f"not root, and user namespaces are not allowed here ({reason}): run as root, or {remedy}"


def _namespaces_remedy(capability: str) -> str:
    if uses_user_namespace():
        for name, forbidding, remedy in _USER_NAMESPACE_SETTINGS:
            if _setting(name) == forbidding:
                return remedy
    if _is_filtered():
        return f"a filter of system calls (seccomp) forbids it; {_NO_FILTER}"
    if capability:
        return f"in a container, give it {capability}"
    return _USER_NAMESPACE_SETTINGS[0][2]


def proc_problem() -> str | None:
    """Why a lab cannot mount its own /proc: Linux refuses that in a user namespace while parts of /proc are hidden."""
    if not _fails([*unshare_argv(), "mount", "-t", "proc", "proc", "/proc"]):
        return None
    return (
        "this container hides parts of /proc, so a lab cannot mount its own: give the container "
        "--security-opt unmask=ALL (Podman) or --security-opt systempaths=unconfined (Docker)"
    )


def personality_problem() -> str | None:
    """Why the kernel for virtual time cannot be started at the same addresses each time (personality(2))."""
    if not _fails(["setarch", "--addr-no-randomize", "true"]):
        return None
    return f"a filter of system calls (seccomp) forbids personality(2), which repeatable runs need; {_NO_FILTER}"


def ptrace_problem() -> str | None:
    """Why no process can be traced here, as a kernel for virtual time in the mode ``ptrace`` does."""
    if not _fails([*unshare_argv(), sys.executable, "-c", _TRACE]):
        return None
    other = "or build a newer kernel for virtual time, which does not need ptrace: atoll kernel build"
    match _setting("kernel/yama/ptrace_scope"):
        case "3":
            return (
                "ptrace is forbidden until the next boot (kernel.yama.ptrace_scope is 3): set it to 1 in "
                f"/etc/sysctl.d and boot, {other}"
            )
        case "2":
            return f"ptrace is forbidden to this user (sysctl kernel.yama.ptrace_scope=1, as root), {other}"
        case _:
            return f"ptrace is forbidden here, as in a container: {_NO_FILTER}, {other}"


def c_library() -> str:
    """The C library of this Python, and what follows if it is not glibc."""
    with contextlib.suppress(OSError, ValueError):
        if version := os.confstr("CS_GNU_LIBC_VERSION"):
            return version
    return "not glibc (musl?): labs are not tested with it; run atoll in a container of Debian or Ubuntu"


def _fails(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode != 0


def _setting(name: str) -> str | None:
    """The value of a sysctl; None if this kernel does not have it."""
    with contextlib.suppress(OSError):
        return (Path("/proc/sys") / name).read_text().strip()
    return None


def _is_filtered() -> bool:
    """Whether a filter of system calls applies to this process (proc_pid_status(5): Seccomp)."""
    return "\nSeccomp:\t2\n" in Path("/proc/self/status").read_text()
