# SPDX-License-Identifier: Apache-2.0
"""Parts of a kernel for virtual time: its configuration, patches for its Linux release, the randomness shim.

The parts are files in this module's folder. A kernel is identified by the hash of its recipe: when a part changes,
kernels that were built before are outdated. Linux releases differ in the patches they need; each recipe is made for one
release series, and is tried on every later release up to the next recipe's.
"""

import functools
import hashlib
import itertools
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from atoll_core.errors import UsageError

VARIABLE = "ATOLL_KERNEL"
"""Environment variable that chooses the series, such as 7.2."""

SHIM_SOURCE = Path(__file__).with_name("fixed-random.c")

OPTIONAL_MARK = "# -- in some releases only"
"""Begins the part of the configuration that not every release knows."""

_CONFIG = Path(__file__).with_name("virtual.config")
_PATCHES = Path(__file__).with_name("patches")
_SERIES = re.compile(r"\d+\.\d+")


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make a kernel of one release series."""

    series: str  # of Linux: "6.1"
    mode: Literal["ptrace", "seccomp"]  # how the kernel stops its processes at their system calls
    objects: int  # lines of make's about an object, for the progress of a build
    suite: str | None = None  # of Debian, to download the source from where no package of it is installed
    options: tuple[str, ...] = ()  # of the configuration, in addition to virtual.config

    @property
    def package(self) -> str:
        """Debian's package of the source."""
        return f"linux-source-{self.series}"

    @property
    def configuration(self) -> str:
        """The whole configuration: what is not named there is off."""
        return "".join(f"{option}\n" for option in self.options) + _CONFIG.read_text()

    @property
    def patches(self) -> tuple[Path, ...]:
        """Patches to the source, in the order of their names."""
        return tuple(sorted((_PATCHES / self.series).glob("*.patch")))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The parameters of the kernel's command line for the mode."""
        return ("seccomp=on",) if self.mode == "seccomp" else ()

    @property
    def hash(self) -> str:
        """Hash of all the parts: twelve hexadecimal digits."""
        return _hash(self)


RECIPES = (
    Recipe("6.1", "ptrace", objects=1417),
    Recipe(
        "7.2",
        "seccomp",
        objects=1581,
        suite="trixie-backports",
        options=("CONFIG_NETFILTER_XTABLES_LEGACY=y", "CONFIG_IP_NF_IPTABLES_LEGACY=y"),
    ),
)
"""In ascending order of the release; docs/virtual-time.md has the tests of each."""

PREFERRED = ("7.2", "6.1")
"""The series to build and run without a choice of the user's, the best first."""


def architecture_problem() -> str | None:
    """Why this machine can neither build nor run a kernel for virtual time; None if it can."""
    if platform.machine() == "x86_64":
        return None
    return (
        f"there is no virtual time on {platform.machine()}: User-Mode Linux exists for x86 alone; "
        "runs are in real time: --on mininet"
    )


def recipe_for(release: str) -> Recipe:
    """The recipe for a release, 6.12.3 for one: the newest that is not for later ones only."""
    earlier = [recipe for recipe in RECIPES if numbers(recipe.series) <= numbers(release)]
    return earlier[-1] if earlier else RECIPES[0]


def series_of(release: str) -> str:
    """6.1 of 6.1.192-atoll."""
    return ".".join(str(number) for number in numbers(release)[:2])


def chosen_series() -> str | None:
    """The series that the user chose by ATOLL_KERNEL. Raises UsageError for a word that is none."""
    value = os.environ.get(VARIABLE, "")
    if value and not _SERIES.fullmatch(value):
        series = " and ".join(recipe.series for recipe in RECIPES)
        raise UsageError(f"{VARIABLE}={value} is no release series of Linux; known ones: {series}")
    return value or None


def preferred_recipes() -> tuple[Recipe, ...]:
    """The recipes to build, the best first: the series chosen by ATOLL_KERNEL, else the preferred ones.

    Raises UsageError when a series without a recipe was chosen.
    """
    chosen = chosen_series()
    known = {recipe.series: recipe for recipe in RECIPES}
    if chosen and chosen not in known:
        raise UsageError(
            f"{VARIABLE}={chosen}: only {' and '.join(known)} are built without a source; "
            f"name an archive of it: atoll kernel build --source linux-{chosen}.tar.xz"
        )
    return tuple(known[series] for series in ([chosen] if chosen else PREFERRED))


def may_run(release: str) -> bool:
    """Whether kernels of a release count: of the chosen series, else of a preferred series or built by its recipe."""
    chosen = chosen_series()
    return series_of(release) == chosen if chosen else recipe_for(release).series in PREFERRED


def preference(series: str) -> int:
    """The place of a series among those to run without a choice of the user's: 0 is the best."""
    return PREFERRED.index(series) if series in PREFERRED else len(PREFERRED)


def numbers(release: str) -> tuple[int, ...]:
    """A release's numbers, for sorting: 6.1.192 is newer than 6.1.20."""
    return tuple(int(number) for number in re.findall(r"\d+", release.partition("-")[0]))


def missing_options(wanted: str, actual: str) -> list[str]:
    """The options that one configuration sets and another does not, as lines of the first: ``CONFIG_VETH=y``.

    Those after the line that begins with OPTIONAL need not be had.
    """
    actual_lines = set(actual.splitlines())
    needed = itertools.takewhile(lambda line: not line.startswith(OPTIONAL_MARK), wanted.splitlines())
    return [line for line in needed if line.startswith("CONFIG_") and line not in actual_lines]


@functools.cache
def _hash(recipe: Recipe) -> str:
    digest = hashlib.sha256()
    for path in (_CONFIG, SHIM_SOURCE, *recipe.patches):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    digest.update("".join((*recipe.options, *recipe.arguments)).encode())
    return digest.hexdigest()[:12]
