# SPDX-License-Identifier: Apache-2.0
"""User-Mode Linux kernels of this machine: the distribution's, and the one built for virtual time."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from atoll_core.errors import MachineError
from atoll_emulation.uml.cache import kernel_status, verify_files
from atoll_emulation.uml.recipe import recipe_for

_KERNEL = Path("/usr/bin/linux.uml")
_MODULES = Path("/usr/lib/uml/modules")

# What starting it takes, besides: program, Debian package.
_TOOLS = {"busybox": "busybox", "unshare": "util-linux", "taskset": "util-linux", "setarch": "util-linux"}


@dataclass(frozen=True, slots=True)
class UmlKernel:
    """An executable kernel."""

    executable: Path
    release: str  # what ``uname -r`` says inside
    modules: Path | None = None  # its modules, in a directory named after the release; None: all are built in
    shim: Path | None = None  # library that answers its calls for random numbers; only with virtual time
    mode: Literal["ptrace", "seccomp"] = "ptrace"  # how it stops its processes at their system calls
    arguments: tuple[str, ...] = ()  # of its command line, for the mode


def find_kernel() -> UmlKernel:
    """The packaged kernel, of real time alone. Raises MachineError naming the packages that are missing."""
    modules = sorted(path.parent for path in _MODULES.glob("*/modules.dep"))
    missing = missing_packages({**_TOOLS, "modprobe": "kmod"})
    if not _KERNEL.exists() or not modules:
        missing.add("user-mode-linux")
    if missing:
        msg = f"User-Mode Linux needs packages that are not installed: apt install {' '.join(sorted(missing))}"
        raise MachineError(msg)
    return UmlKernel(_KERNEL, modules[-1].name, modules[-1])


def find_virtual_kernel() -> UmlKernel:
    """The kernel that keeps virtual time. Raises MachineError, with the remedy, when there is none or an old one.

    Raises UsageError when ATOLL_KERNEL names no release.
    """
    missing = missing_packages(_TOOLS)
    if missing:
        msg = f"a kernel for virtual time cannot be started here: apt install {' '.join(sorted(missing))}"
        raise MachineError(msg)
    status = kernel_status()
    if status.remedy is not None:
        raise MachineError(status.remedy)
    verify_files(status)
    directory, release = status.directory, status.facts["release"]
    recipe = recipe_for(release)
    return UmlKernel(
        directory / "linux",
        release,
        shim=directory / "fixed-random.so",
        mode=recipe.mode,
        arguments=recipe.arguments,
    )


def missing_packages(tools: dict[str, str]) -> set[str]:
    """The Debian packages of those tools (program: package) that are not on this machine."""
    return {package for tool, package in tools.items() if shutil.which(tool) is None}
