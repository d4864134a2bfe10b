# SPDX-License-Identifier: Apache-2.0
"""Where built kernels for virtual time are kept: a directory each.

    /var/cache/atoll/kernel/7.2.12-0123456789ab/     release of the source, hash of the recipe
        linux  fixed-random.so  config  kernel.json

Root builds into the machine's shared cache, from which every user runs them; other users build into a cache of their
own. The shared cache counts only while nobody but root can write there, and so does root's own cache for root. A
directory appears there whole or not at all.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from atoll_core.errors import MachineError
from atoll_core.mounts import noexec_problem
from atoll_emulation.this_machine.used_files import Removal, remove_unused
from atoll_emulation.uml.recipe import (
    architecture_problem,
    chosen_series,
    may_run,
    numbers,
    preference,
    recipe_for,
    series_of,
)

SHARED_VARIABLE = "ATOLL_SHARED_KERNELS"
"""Environment variable with another shared cache than /var/cache/atoll/kernel."""

EXECUTABLE, SHIM = "linux", "fixed-random.so"

BUILD_DIRECTORY = "building"
"""Where a kernel is built, in the cache."""

_KERNEL_NAME = re.compile(r"\d[\w.]*-[0-9a-f]{12}$")


@dataclass(frozen=True, slots=True)
class KernelStatus:
    """State of the cache: a kernel of the present recipes, only older ones, or none."""

    state: Literal["built", "outdated", "missing"]
    directory: Path  # of the one to run, or where kernels would be kept
    facts: dict[str, str]  # kernel.json: release, mode, recipe, source, compiler, built, SHA-256 of the files

    @property
    def problem_text(self) -> str | None:
        """Return a line with the problem and its remedy; None if there is none."""
        if problem := architecture_problem():
            return problem
        remedy = noexec_problem(build_cache() / EXECUTABLE) or "run: atoll kernel build (a few minutes, once)"
        series = chosen_series()
        match self.state:
            case "built":
                return None
            case "outdated":
                return f"the kernel for virtual time, {self.directory}, was built by another version of atoll; {remedy}"
            case "missing":
                of_series = f" of Linux {series} (ATOLL_KERNEL)" if series else ""
                untrusted = "".join(
                    f" ({cache} does not count: {reason})"
                    for cache in (shared_cache(), own_cache())
                    if (reason := distrust_reason(cache))
                )
                return f"no kernel for virtual time{of_series} in {self.directory}{untrusted}; {remedy}"


def shared_cache() -> Path:
    """The cache of kernels that root builds for every user."""
    return Path(os.environ.get(SHARED_VARIABLE) or "/var/cache/atoll/kernel")


def build_cache() -> Path:
    """Where this user's builds go: root's to the shared cache, unless XDG_CACHE_HOME names a cache."""
    return shared_cache() if os.geteuid() == 0 and not _xdg_cache() else own_cache()


def kernel_status() -> KernelStatus:
    """The best kernel of the chosen or preferred series: of its present recipe, undamaged, the newest.

    Raises MachineError when this user cannot look there (the environment may be somebody else's), UsageError when
    ATOLL_KERNEL names no series.
    """
    kernels = {path: facts for cache in _caches() for path, facts in _facts(cache).items() if may_run(path.name)}
    if not kernels:
        try:
            _entries(own_cache())
        except OSError as error:
            raise MachineError(
                f"kernels for virtual time are kept in {own_cache()}: {error.strerror}; "
                "name another cache in XDG_CACHE_HOME"
            ) from None
        return KernelStatus("missing", build_cache(), {})
    best = max(kernels, key=lambda path: _rank(path, kernels[path]))
    return KernelStatus("built" if _is_current(best) else "outdated", best, kernels[best])


def is_built(series: str) -> bool:
    """Whether an undamaged kernel of this series is there for this user; for root's builds: in the shared cache."""
    caches = [shared_cache()] if build_cache() == shared_cache() else _caches()
    return any(
        series_of(path.name) == series and _is_current(path) and _damage(path, facts) is None
        for cache in caches
        for path, facts in _facts(cache).items()
    )


def verify_files(status: KernelStatus) -> None:
    """Raise MachineError when the files of a kernel are not those that were built."""
    if damage := _damage(status.directory, status.facts):
        raise MachineError(f"{damage}; run: atoll kernel build --force")


def sha256(file: Path) -> str:
    """The hash of a file's content, in hexadecimal digits."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def unused_kernels() -> list[Path]:
    """The kernels that this user may remove: of other recipes, or with a newer release of their series in the cache."""
    unused: list[Path] = []
    for cache in _cleanable_caches():
        kernels = _facts(cache)
        ranked = sorted(kernels, key=lambda path: _rank(path, kernels[path]))
        newest = {series_of(path.name): path for path in ranked if _is_current(path)}
        unused += [path for path in _kernels(cache) if path not in newest.values()]
    return unused


def removable_kernels() -> list[Path]:
    """All kernels that this user may remove, and the files of a build."""
    entries = (path for cache in _cleanable_caches() for path in (*_kernels(cache), cache / BUILD_DIRECTORY))
    return [path for path in entries if path.is_dir()]


def remove_kernels(kernels: Iterable[Path]) -> Removal:
    """Remove kernels, except running ones; none of a cache where another process builds or removes kernels."""
    removal = Removal()
    for cache, of_cache in groupby(kernels, lambda kernel: kernel.parent):
        try:
            with cache_lock(cache):
                remove_unused(of_cache, removal)
        except MachineError as error:
            removal.failures.append(str(error))
        except OSError as error:
            removal.failures.append(f"{error.filename or cache}: {error.strerror}; kernels are kept in {cache}")
    return removal


@contextmanager
def cache_lock(cache: Path) -> Generator[None]:
    """Hold the cache's lock, to build or to remove kernels. Raises MachineError when another process holds it.

    A second build of the same user's at once would take twice as long for nothing.
    """
    # Closed to others: anyone who can read a file can lock it.
    with os.fdopen(os.open(cache / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)) as lock:
        os.fchmod(lock.fileno(), 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            msg = f"another process builds or removes kernels in {cache}; wait until it has ended"
            raise MachineError(msg) from None
        yield


def _xdg_cache() -> str:
    path = os.environ.get("XDG_CACHE_HOME", "")
    return path if path.startswith("/") else ""


def own_cache() -> Path:
    """This user's cache (XDG Base Directory Specification 0.8)."""
    return Path(_xdg_cache() or Path.home() / ".cache") / "atoll" / "kernel"


def _caches() -> list[Path]:
    """Where kernels count for this user, the shared cache first."""
    trusted: list[Path] = []
    for cache in (shared_cache(), own_cache()):
        with contextlib.suppress(OSError):  # the HOME of another user
            _entries(cache)
            if not distrust_reason(cache):
                trusted.append(cache)
    return trusted


def _cleanable_caches() -> list[Path]:
    return _caches() if build_cache() == shared_cache() else [p for p in _caches() if p == own_cache()]


def distrust_reason(cache: Path) -> str | None:
    """Return why kernels in a cache are not trusted; None if they are, or there is no such cache.

    Users other than root could have replaced kernels that others run.
    """
    if cache != shared_cache() and os.geteuid() != 0:
        return None
    try:
        kernels = [path for path in _entries(cache) if _KERNEL_NAME.match(path.name)]
        for path in (cache.parent, cache, *kernels, *(file for kernel in kernels for file in _entries(kernel))):
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                if status.st_uid != 0:
                    return f"{path} is not root's"
                if status.st_mode & 0o022:
                    return f"other users than root can write {path}"
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return None


def _entries(directory: Path) -> list[Path]:
    """The entries of a directory by name; none if it does not exist. Raises OSError."""
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _kernels(cache: Path) -> list[Path]:
    """The directories of kernels, damaged ones included."""
    return [path for path in _entries(cache) if _KERNEL_NAME.match(path.name) and path.is_dir()]


def _facts(cache: Path) -> dict[Path, dict[str, str]]:
    """The directories of kernels with the content of kernel.json, if that can be parsed."""
    kernels: dict[Path, dict[str, str]] = {}
    for path in _kernels(cache):
        with contextlib.suppress(OSError, ValueError):
            facts: Any = json.loads((path / "kernel.json").read_text())
            if isinstance(facts, dict) and "release" in facts:
                kernels[path] = facts
    return kernels


def _damage(kernel: Path, facts: dict[str, str]) -> str | None:
    """Which file is not the one that was built; None if all are."""
    for name in (EXECUTABLE, SHIM):
        built = facts.get(f"sha256 {name}")
        # Own kernels that were built before hashes were recorded have none.
        if built is None and kernel.parent != shared_cache():
            continue
        try:
            actual = sha256(kernel / name)
        except OSError as error:
            return f"{kernel / name}: {error.strerror}"
        if actual != built:
            return f"{kernel / name} is not the file that was built (SHA-256)"
    return None


def _is_current(kernel: Path) -> bool:
    """Whether it was built by the present recipe of its release."""
    return kernel.name.endswith(recipe_for(kernel.name).hash)


def _rank(kernel: Path, facts: dict[str, str]) -> tuple[bool, bool, int, tuple[int, ...]]:
    """The best kernel has the greatest."""
    is_current = _is_current(kernel)
    is_intact = is_current and _damage(kernel, facts) is None
    return is_current, is_intact, -preference(series_of(kernel.name)), numbers(kernel.name)
