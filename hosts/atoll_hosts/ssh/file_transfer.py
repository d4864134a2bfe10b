# SPDX-License-Identifier: Apache-2.0
"""Fetch files from a machine over an SSH channel: resumed after an interruption, and checked by their checksums.

A machine may have been compromised. It may send only the files that its jobs write by configuration, each once, by
its own name, and never enough bytes to fill the disk here.
"""

import asyncio
import hashlib
import os
import shlex
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh

from atoll_core.errors import LabError, shown
from atoll_hosts.ssh.installation import run_remote

Connect = Callable[[], Awaitable[asyncssh.SSHClientConnection]]
"""Returns a working connection: the previous one, or a new one if that has broken. Raises LabError."""

_CHUNK_BYTES = 1 << 18
_MOST_ATTEMPTS = 4
_SILENCE_TIMEOUT_S = 10.0

# A machine that sends very slowly must not delay the end of a run.
_START_ALLOWANCE_S = 60.0
_SLOWEST_BYTES_S = 100_000


@dataclass(frozen=True, slots=True)
class OfferedFile:
    """A file on a machine: ``path`` is its path on that machine, ``name`` its path below the run directory."""

    name: str
    path: str
    size_bytes: int


class DiskQuota:
    """Free space on the disk of the runs. Each machine may use half of the remaining space."""

    def __init__(self, free_bytes: int) -> None:
        self._free_bytes = free_bytes

    def take(self, machine: str, size_bytes: int) -> None:
        """Reserve space for the files of a machine. Raises LabError if they exceed its share."""
        most_bytes = self._free_bytes // 2
        if size_bytes > most_bytes:
            size = f"its files have {size_bytes / 1e6:.1f} MB"
            share = f"{most_bytes / 1e6:.1f} MB, half of the free space on the disk of the runs"
            raise LabError(
                f"{machine}: {size}, but the limit for a machine is {share}; the files stay on that machine for a week"
            )
        self._free_bytes -= size_bytes


def offered_files(machine: str, spool: Mapping[str, Any], expected: Collection[str]) -> tuple[OfferedFile, ...]:
    """The files in a machine's answer to ``files`` (docs/contracts.md, "Agent").

    ``expected``: the names that its jobs were configured to write. Raises LabError for any other or duplicate name.
    """
    files = [OfferedFile(file["name"], f"{spool['path']}/{file['name']}", file["bytes"]) for file in spool["files"]]
    names = [file.name for file in files]
    for file in files:
        if file.name not in expected:
            raise LabError(
                f"{machine}: its agent offers {shown(file.name)}, but no job of this run writes that file there"
            )
        if names.count(file.name) > 1 or file.size_bytes < 0:
            raise LabError(f"{machine}: its agent offers {file.name} twice, or with an invalid size")
    return tuple(files)


async def fetch(connect: Connect, name: str, file: OfferedFile, local_path: Path, *, sudo: bool = False) -> None:
    """Fetch a file of machine ``name`` to ``local_path``. Raises LabError if it cannot be fetched completely.

    No more bytes than its size are accepted, and no file is overwritten. The part of an earlier attempt (``local_path``
    with .part appended) is kept and completed. ``sudo``: read it by `sudo -n`, as the agent runs as another user.
    """
    prefix = "sudo -n -- " if sudo else ""
    part = local_path.with_name(local_path.name + ".part")
    if os.path.lexists(local_path):
        raise LabError(f"{name}: {file.name} is in the run directory already and was not overwritten")
    reason = ""
    for _ in range(_MOST_ATTEMPTS):
        try:
            async with asyncio.timeout(_START_ALLOWANCE_S + file.size_bytes / _SLOWEST_BYTES_S):
                connection = await connect()
                await _append(connection, name, f"{prefix}tail", file, part)
                checksum = await run_remote(connection, name, f"{prefix}sha256sum -- {shlex.quote(file.path)}")
        except (OSError, asyncssh.Error, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            continue
        if checksum.split(" ", 1)[0].lstrip("\\") == await asyncio.to_thread(_sha256, part):
            part.replace(local_path)
            return
        reason = "its checksum differs from that of the original"
        part.unlink()
    raise LabError(f"{name}: {file.path} could not be fetched: {reason}")


async def _append(
    connection: asyncssh.SSHClientConnection, name: str, tail: str, file: OfferedFile, part: Path
) -> None:
    """Append the missing bytes to the part. Raises OSError, asyncssh.Error or TimeoutError if the stream ends early."""
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644), "ab") as local:
        size = local.tell()
        command = f"{tail} -c +{size + 1} -- {shlex.quote(file.path)}"
        async with connection.create_process(command, encoding=None) as process:
            while chunk := await _read_chunk(process.stdout):
                if size + len(chunk) > file.size_bytes:
                    connection.abort()  # closing only the channel would receive the bytes in flight
                    raise LabError(
                        f"{name}: {file.name} has more than the {file.size_bytes} bytes that the machine announced"
                    )
                size += local.write(chunk)
            result = await process.wait()
    if result.returncode != 0:
        raise OSError(f"tail ended with exit status {result.returncode}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _read_chunk(stream: asyncssh.SSHReader[bytes]) -> bytes:
    """The next chunk, empty at the end. Raises TimeoutError if none arrives."""
    async with asyncio.timeout(_SILENCE_TIMEOUT_S):
        return await stream.read(_CHUNK_BYTES)
