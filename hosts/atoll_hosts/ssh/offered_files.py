# SPDX-License-Identifier: Apache-2.0
"""The files that a machine offers after a run, checked before any of them is fetched.

A machine may have been taken over. It brings the files that its jobs were asked to write, each once and under its own
name, and never so many bytes that the disk here fills up.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from atoll_core.errors import LabError, shown


@dataclass(frozen=True, slots=True)
class OfferedFile:
    """A file on a machine: ``there`` is its path on that machine, ``name`` its path below the run directory."""

    name: str
    there: str
    size_bytes: int


class Room:
    """Free space on the disk of the runs. One machine may take half of what those before it have left."""

    def __init__(self, free_bytes: int) -> None:
        self._free_bytes = free_bytes

    def take(self, machine: str, size_bytes: int) -> None:
        """Set space aside for the files of a machine. Raises LabError when they have more than its part."""
        most = self._free_bytes // 2
        if size_bytes > most:
            held = f"its files have {size_bytes / 1e6:.1f} MB"
            part = f"{most / 1e6:.1f} MB, half of what is free on the disk of the runs"
            raise LabError(f"{machine}: {held}, and one machine may bring {part}; they stay there for a week")
        self._free_bytes -= size_bytes


def offered_files(machine: str, spool: Mapping[str, Any], asked: Collection[str]) -> tuple[OfferedFile, ...]:
    """The files in a machine's answer to ``files`` (docs/contracts.md, "Agent").

    ``asked``: the names that its jobs were given. Raises LabError when any other name is among them, or one twice.
    """
    files = [OfferedFile(file["name"], f"{spool['path']}/{file['name']}", file["bytes"]) for file in spool["files"]]
    names = [file.name for file in files]
    for file in files:
        if file.name not in asked:
            raise LabError(f"{machine}: its agent offers {shown(file.name)}, which no job of this run writes there")
        if names.count(file.name) > 1 or file.size_bytes < 0:
            raise LabError(f"{machine}: its agent offers {file.name} twice, or with an invalid size")
    return tuple(files)
