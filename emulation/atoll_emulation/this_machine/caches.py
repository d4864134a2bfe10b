# SPDX-License-Identifier: Apache-2.0
"""What atoll keeps on this machine and can make again: kernels for virtual time, what else is in this user's cache.

Runs, studies, and files of runs that were not fetched from a machine's spool are no cache.
"""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from atoll_emulation.this_machine.used_files import Removal, remove_unused, used_files, user_of, with_all_below
from atoll_emulation.uml.cache import own_cache, removable_kernels, remove_kernels, shared_cache


@dataclass(frozen=True, slots=True)
class CachedEntry:
    """A file or directory in a cache."""

    path: Path
    size_bytes: int  # on the disk
    user: int | None  # a process that uses it

    @property
    def is_kernel(self) -> bool:
        """Whether it is a kernel for virtual time, or the files of a build of one."""
        return self.path.parent in (own_cache(), shared_cache())


def cached_entries() -> list[CachedEntry]:
    """The entries of caches that this user may remove."""
    used, others = used_files(), list[Path]()
    with contextlib.suppress(OSError):
        others = sorted(path for path in own_cache().parent.iterdir() if path != own_cache())
    return [CachedEntry(path, _size_bytes(path), user_of(path, used)) for path in (*removable_kernels(), *others)]


def remove_entries(entries: Iterable[CachedEntry]) -> Removal:
    """Remove entries that no process uses, and no kernel while another process builds or removes some."""
    entries = list(entries)
    removal = remove_kernels(entry.path for entry in entries if entry.is_kernel)
    remove_unused((entry.path for entry in entries if not entry.is_kernel), removal)
    return removal


def _size_bytes(path: Path) -> int:
    total = 0
    for each in with_all_below(path):
        with contextlib.suppress(OSError):
            total += 512 * each.lstat().st_blocks
    return total
