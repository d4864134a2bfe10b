# SPDX-License-Identifier: Apache-2.0
"""What atoll keeps on this machine and can make again: kernels for virtual time, what else is in this user's cache.

Runs, studies, and files of runs that were not fetched from a machine's spool are no cache.
"""

import contextlib
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from atoll_core.errors import MachineError
from atoll_emulation.this_machine.used_files import used_files, user_of
from atoll_emulation.uml.cache import own_cache, removable_kernels, remove_kernels


@dataclass(frozen=True, slots=True)
class CachedEntry:
    """A file or directory in a cache."""

    path: Path
    size_bytes: int  # on the disk
    user: int | None  # a process that uses it


def cached_entries() -> list[CachedEntry]:
    """The entries of caches that this user may remove."""
    used, others = used_files(), list[Path]()
    with contextlib.suppress(OSError):
        others = sorted(path for path in own_cache().parent.iterdir() if path != own_cache())
    return [CachedEntry(path, _size_bytes(path), user_of(path, used)) for path in (*removable_kernels(), *others)]


def remove_entries(entries: Iterable[CachedEntry]) -> list[Path]:
    """Remove entries that no process uses; returns them. Raises MachineError."""
    used, kernels = used_files(), removable_kernels()
    unused = [entry.path for entry in entries if not user_of(entry.path, used)]
    removed, _ = remove_kernels(path for path in unused if path in kernels)
    for path in unused:
        if path not in kernels:
            _remove(path)
            removed.append(path)
    return removed


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:
        raise MachineError(f"{error.filename or path}: {error.strerror}; it stays in the cache") from None


def _size_bytes(path: Path) -> int:
    total = 0
    for each in (path, *(() if path.is_symlink() else path.rglob("*"))):
        with contextlib.suppress(OSError):
            total += 512 * each.lstat().st_blocks
    return total
