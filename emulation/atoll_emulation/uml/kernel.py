# SPDX-License-Identifier: Apache-2.0
"""The User-Mode Linux kernel that the distribution packages."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from atoll.model.errors import MachineError

_KERNEL = Path("/usr/bin/linux.uml")
_MODULES = Path("/usr/lib/uml/modules")

# What starting it takes, besides: program, Debian package.
_TOOLS = {"busybox": "busybox", "modprobe": "kmod", "unshare": "util-linux", "taskset": "util-linux"}


@dataclass(frozen=True, slots=True)
class UmlKernel:
    """An executable kernel and the directory of its modules, which is named after the kernel's release."""

    executable: Path
    modules: Path

    @property
    def release(self) -> str:
        """What ``uname -r`` says inside."""
        return self.modules.name


def find_kernel() -> UmlKernel:
    """The packaged kernel. Raises MachineError naming the packages that are missing."""
    modules = sorted(path.parent for path in _MODULES.glob("*/modules.dep"))
    missing = {package for tool, package in _TOOLS.items() if shutil.which(tool) is None}
    if not _KERNEL.exists() or not modules:
        missing.add("user-mode-linux")
    if missing:
        msg = f"no User-Mode Linux kernel here: apt install {' '.join(sorted(missing))}"
        raise MachineError(msg)
    return UmlKernel(_KERNEL, modules[-1])
