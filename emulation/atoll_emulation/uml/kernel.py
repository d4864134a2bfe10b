# SPDX-License-Identifier: Apache-2.0
"""The User-Mode Linux kernel of this machine, built for virtual time."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from atoll_core.errors import MachineError
from atoll_core.mounts import noexec_problem
from atoll_emulation.this_machine.packages import install_text, missing_needs, packages_of
from atoll_emulation.uml.cache import EXECUTABLE, SHIM, kernel_status, verify_files
from atoll_emulation.uml.recipe import architecture_problem, recipe_for


@dataclass(frozen=True, slots=True)
class UmlKernel:
    """An executable kernel."""

    executable: Path
    release: str  # as ``uname -r`` prints it inside
    shim: Path  # library that answers its calls for random numbers; only with virtual time
    mode: Literal["ptrace", "seccomp"] = "ptrace"  # how it stops its processes at their system calls
    arguments: tuple[str, ...] = ()  # of its command line, for the mode


def find_virtual_kernel() -> UmlKernel:
    """The kernel that keeps virtual time. Raises MachineError, with the remedy, when there is none or an old one.

    Raises UsageError when ATOLL_KERNEL names no release.
    """
    if problem := architecture_problem():
        raise MachineError(problem)
    if needs := missing_needs("start"):
        command = install_text(packages_of(needs))
        raise MachineError(f"a kernel for virtual time cannot be started here: {command}")
    status = kernel_status()
    if status.problem_text is not None:
        raise MachineError(status.problem_text)
    verify_files(status)
    directory, release = status.directory, status.facts["release"]
    if problem := noexec_problem(directory / EXECUTABLE):
        raise MachineError(f"{problem}; or build one in another place: XDG_CACHE_HOME=DIRECTORY atoll kernel build")
    recipe = recipe_for(release)
    return UmlKernel(
        directory / EXECUTABLE,
        release,
        shim=directory / SHIM,
        mode=recipe.mode,
        arguments=recipe.arguments,
    )
