# SPDX-License-Identifier: Apache-2.0
"""Where kernels for virtual time are kept once they are built: a directory each in the user's cache.

    ~/.cache/atoll/kernel/6.1.192-0123456789ab/     release of the source, hash of the recipe
        linux  fixed-random.so  config  kernel.json

A directory appears there whole or not at all.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from atoll.model.errors import MachineError
from atoll_emulation.uml.recipe import recipe_hash

_KEPT = re.compile(r"\d[\w.]*-[0-9a-f]{12}$")


@dataclass(frozen=True, slots=True)
class KernelStatus:
    """What the cache holds: the present recipe's kernel, only older ones, or none."""

    state: Literal["built", "outdated", "missing"]
    directory: Path  # of the newest, or where kernels would be kept
    facts: dict[str, str]  # kernel.json: release, recipe, source, compiler, built

    @property
    def remedy(self) -> str | None:
        """What is wrong and what to do about it, in a line; None if nothing is."""
        how = "run: atoll kernel build (a few minutes, once)"
        match self.state:
            case "built":
                return None
            case "outdated":
                return f"the kernel for virtual time, {self.directory}, was built by another version of atoll; {how}"
            case "missing":
                return f"no kernel for virtual time in {self.directory}; {how}"


def cache_directory() -> Path:
    """Where this user's kernels are kept (XDG Base Directory Specification 0.8)."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(given) if given.startswith("/") else Path.home() / ".cache"
    return base / "atoll" / "kernel"


def kernel_status() -> KernelStatus:
    """Look into the cache. Where several releases have the present recipe, the newest counts.

    Raises MachineError when this user cannot look there: the environment may be somebody else's.
    """
    try:
        kept = _kept()
        if not kept:
            return KernelStatus("missing", cache_directory(), {})
        facts: dict[str, str] = json.loads((kept[-1] / "kernel.json").read_text())
    except OSError as error:
        cache = cache_directory()
        msg = f"kernels for virtual time are kept in {cache}: {error.strerror}; name another cache in XDG_CACHE_HOME"
        raise MachineError(msg) from None
    state = "built" if facts["recipe"] == recipe_hash() else "outdated"
    return KernelStatus(state, kept[-1], facts)


def unused_kernels() -> list[Path]:
    """The directories of all that is kept but the kernel that this version of atoll uses."""
    status = kernel_status()
    return [path for path in _kept() if not (status.state == "built" and path == status.directory)]


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What became of the kernels that this version of atoll does not use."""

    removed: tuple[Path, ...]
    running: tuple[Path, ...]  # kept: something runs from them


def clean() -> Cleaned:
    """Take them away, but for those that run. Raises MachineError for want of rights, or while others are at it."""
    cache = cache_directory()
    removed: list[Path] = []
    running: list[Path] = []
    if not cache.is_dir():
        return Cleaned((), ())
    try:
        with alone(cache):
            executed = set(_executed()) - {None}
            for directory in unused_kernels():
                if _identity(directory / "linux") in executed:
                    running.append(directory)
                else:
                    shutil.rmtree(directory)
                    removed.append(directory)
    except OSError as error:
        msg = f"{error.filename or cache}: {error.strerror}; kernels are kept in {cache} (XDG_CACHE_HOME)"
        raise MachineError(msg) from error
    return Cleaned(tuple(removed), tuple(running))


@contextmanager
def alone(cache: Path) -> Generator[None]:
    """Hold the cache's lock, to build or to remove kernels. Raises MachineError when another process holds it.

    A second build of the same user's at once would take twice as long for nothing.
    """
    with (cache / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            msg = f"kernels in {cache} are being built or removed; wait until that is done"
            raise MachineError(msg) from None
        yield


def _kept() -> list[Path]:
    """Directories of kernels, the best last: of the present recipe, and the newest."""
    kept = [path.parent for path in cache_directory().glob("*/kernel.json") if _KEPT.match(path.parent.name)]
    return sorted(kept, key=lambda path: (path.name.endswith(recipe_hash()), _version(path.name)))


def _executed() -> Iterator[tuple[int, int] | None]:
    """The executable file of every process of this user; a kernel's own is mounted elsewhere in what it sees."""
    for process in Path("/proc").glob("[0-9]*"):
        yield _identity(process / "exe")


def _identity(file: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):  # it has ended, or is another user's
        found = file.stat()
        return found.st_dev, found.st_ino
    return None


def _version(name: str) -> list[int]:
    """A release's numbers, for sorting: 6.1.192 is newer than 6.1.20."""
    return [int(number) for number in re.findall(r"\d+", name.rpartition("-")[0])]
