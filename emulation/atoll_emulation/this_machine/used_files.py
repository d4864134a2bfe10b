# SPDX-License-Identifier: Apache-2.0
"""Files that processes use: their programs and open files."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

FileIdentity = tuple[int, int]
"""The device and the inode: a process may see the file at another path."""


def used_files() -> dict[FileIdentity, int]:
    """The files that processes use, with the id of one process each. Plain users see their own processes."""
    used: dict[FileIdentity, int] = {}
    for process in Path("/proc").glob("[0-9]*"):
        for link in _links(process):
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                used[_identity(link)] = int(process.name)
    return used


def user_of(directory: Path, used: Mapping[FileIdentity, int]) -> int | None:
    """A process that uses a file or directory, or one below it; None if there is none."""
    for path in (directory, *directory.rglob("*")):
        with contextlib.suppress(OSError):
            if user := used.get(_identity(path)):
                return user
    return None


def _links(process: Path) -> Iterator[Path]:
    yield process / "exe"
    yield process / "cwd"
    with contextlib.suppress(OSError):
        yield from (process / "fd").iterdir()


def _identity(path: Path) -> FileIdentity:
    status = path.stat()
    return status.st_dev, status.st_ino
