# SPDX-License-Identifier: Apache-2.0
"""File systems that are mounted ``noexec``: no file there can be executed, whatever its mode (mount(8))."""

import os
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")


def noexec_problem(path: Path) -> str | None:
    """Why a file cannot be executed, with the remedy, if its file system is mounted ``noexec``; else None.

    A file that does not exist yet would be on the file system of the directory that does.
    """
    resolved = path.resolve()
    existing = next(place for place in (resolved, *resolved.parents) if place.exists())
    if not os.statvfs(existing).f_flag & os.ST_NOEXEC:
        return None
    mount = _mount_point(existing)
    return f"{path} cannot be executed, because {mount} is mounted noexec: mount -o remount,exec {mount} (as root)"


def _mount_point(path: Path) -> Path:
    # proc_pid_mountinfo(5): the fifth field, with a space as \040
    fields = (line.split()[4] for line in _MOUNTS.read_text().splitlines())
    points = (Path(field.encode().decode("unicode_escape")) for field in fields)
    return max((point for point in points if path.is_relative_to(point)), key=lambda point: len(point.parts))
