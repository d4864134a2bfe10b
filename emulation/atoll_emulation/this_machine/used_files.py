# SPDX-License-Identifier: Apache-2.0
"""Files that processes use: their programs and open files. Removal of those that none uses."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

FileIdentity = tuple[int, int]
"""The device and the inode: a process may see the file at another path."""


@dataclass(frozen=True, slots=True)
class Removal:
    """What became of files and directories that were to be removed."""

    removed: list[Path] = field(default_factory=list[Path])  # or not there any more
    in_use: list[Path] = field(default_factory=list[Path])  # by a process: they stay
    failures: list[str] = field(default_factory=list[str])  # a line each


def used_files() -> dict[FileIdentity, int]:
    """The files that processes use, with the id of one process each. Plain users see their own processes."""
    used: dict[FileIdentity, int] = {}
    for process in Path("/proc").glob("[0-9]*"):
        for link in _links(process):
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                used[_identity(link.stat())] = int(process.name)
    return used


def user_of(path: Path, used: Mapping[FileIdentity, int]) -> int | None:
    """A process that uses a file or directory, or one below it; None if there is none."""
    for each in with_all_below(path):
        with contextlib.suppress(OSError):
            if user := used.get(_identity(each.lstat())):
                return user
    return None


def with_all_below(path: Path) -> Iterator[Path]:
    """A file or directory and all below it, even while others remove some of it. Follows no symbolic links."""
    yield path
    if not path.is_symlink():
        for directory, directories, files in os.walk(path):
            yield from (Path(directory, name) for name in (*directories, *files))


def remove_unused(paths: Iterable[Path], removal: Removal) -> None:
    """Remove files and directories, except those that a process uses, and add to ``removal`` what became of each."""
    used = used_files()
    for path in paths:
        if user_of(path, used):
            removal.in_use.append(path)
            continue
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            if error.errno != errno.ENOENT or os.path.lexists(path):
                removal.failures.append(f"{path}: {error.strerror}; it stays there")
                continue
        removal.removed.append(path)


def _links(process: Path) -> Iterator[Path]:
    yield process / "exe"
    yield process / "cwd"
    with contextlib.suppress(OSError):
        yield from (process / "fd").iterdir()


def _identity(status: os.stat_result) -> FileIdentity:
    return status.st_dev, status.st_ino
