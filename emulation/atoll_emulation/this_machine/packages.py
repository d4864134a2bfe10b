# SPDX-License-Identifier: Apache-2.0
"""Packages of the distribution that atoll needs (packages.txt): the missing ones, and commands that install them."""

import platform
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from atoll_emulation.mininet_lab.mininet_path import find_mininet
from atoll_emulation.uml.recipe import architecture_problem

_TABLE = Path(__file__).with_name("packages.txt")


@dataclass(frozen=True, slots=True)
class Family:
    """Distributions with the same package manager."""

    name: str  # a column of the table; the ID or ID_LIKE in os-release(5)
    short: str  # how people install packages
    install: tuple[str, ...]  # a command that installs the packages whose names follow, after asking
    unattended: tuple[str, ...]  # its options to install without asking
    update: tuple[str, ...] = ()  # fetches the lists of packages, if that is a command of its own
    is_tested: bool = False


DEBIAN = Family(
    "debian",
    "apt install",
    ("apt-get", "install", "--no-install-recommends"),
    ("--yes", "--no-remove", "-o", "DPkg::Lock::Timeout=300"),
    update=("apt-get", "update"),
    is_tested=True,
)
_FAMILIES = (
    DEBIAN,
    Family("fedora", "dnf install", ("dnf", "install"), ("--assumeyes",)),
    Family("arch", "pacman -S", ("pacman", "-S", "--needed"), ("--noconfirm",)),
)


@dataclass(frozen=True, slots=True)
class Need:
    """A program, a file or a Python module of the system."""

    use: str
    kind: str
    name: str
    packages: Mapping[str, str]  # by family

    @property
    def is_met(self) -> bool:
        """Whether it is on this machine: a program on PATH."""
        if self.kind == "module":
            return find_mininet() is not None
        return Path(self.name).exists() if self.kind == "file" else shutil.which(self.name) is not None

    @property
    def package(self) -> str | None:
        """The package of this machine's distribution, if one is known; Debian's on an unknown distribution."""
        name = self.packages[(family() or DEBIAN).name]
        return None if name == "-" else name

    def __str__(self) -> str:
        return f"{self.name}'s Python package" if self.kind == "module" else self.name


def uses_here() -> dict[str, tuple[str, ...]]:
    """By platform, command or feature that this machine can have: the uses in the table."""
    of_kernel = {"--on virtual": ("lab", "start"), "atoll kernel build": ("build", "source")}
    return {"--on mininet": ("lab",), **({} if architecture_problem() else of_kernel), "iperf3, ping": ("extra",)}


def family() -> Family | None:
    """The family of this machine's distribution; None if it is unknown."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return None
    names = [release.get("ID", ""), *release.get("ID_LIKE", "").split()]
    return next((each for name in names for each in _FAMILIES if each.name == name), None)


def missing_needs(*uses: str) -> list[Need]:
    """What this machine does not have of that, in the order of the table."""
    return [need for need in _needs() if need.use in uses and not need.is_met]


def packages_of(needs: Iterable[Need]) -> list[str]:
    """The packages to install, by name."""
    return sorted({need.package for need in needs if need.package})


def install_text(packages: Iterable[str]) -> str:
    """A short command that installs packages, in backticks; Debian's on an unknown distribution."""
    distribution = family()
    command = " ".join([(distribution or DEBIAN).short, *packages])
    return f"`{command}`" if distribution else f"in Debian: `{command}`"


@cache
def _needs() -> tuple[Need, ...]:
    rows = [line.split() for line in _TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    families = rows[0][3:]
    return tuple(
        Need(use, kind, name, dict(zip(families, packages, strict=True))) for use, kind, name, *packages in rows[1:]
    )
