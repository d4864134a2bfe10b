# SPDX-License-Identifier: Apache-2.0
"""Bringing files from a machine: over an SSH channel of its own, resumed where it broke off, its checksum compared."""

import asyncio
import hashlib
import os
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncssh

from atoll_core.errors import LabError
from atoll_hosts.ssh.installation import run_remote
from atoll_hosts.ssh.offered_files import OfferedFile

Connect = Callable[[], Awaitable[asyncssh.SSHClientConnection]]
"""A connection that lives: the one there was, or another when that has broken. Raises LabError."""

_CHUNK_BYTES = 1 << 18
_ATTEMPTS = 4
_SILENT_S = 10.0

# A machine that sends a byte now and then would hold up the end of a run for ever.
_START_S = 60.0
_SLOWEST_BYTES_S = 100_000


async def fetch(connect: Connect, name: str, file: OfferedFile, here: Path, *, sudo: bool = False) -> None:
    """Bring a file of machine ``name`` to ``here``. Raises LabError when it cannot be had whole.

    No byte more than its size is taken, and no file is overwritten. What an earlier attempt brought (in ``here`` with
    .part added) is kept and added to. ``sudo``: the user who logs in reads it by `sudo -n`, being another one than the
    agent.
    """
    by = "sudo -n -- " if sudo else ""
    part = here.with_name(here.name + ".part")
    if os.path.lexists(here):
        raise LabError(f"{name}: {file.name} is in the run directory already and was not overwritten")
    why = ""
    for _ in range(_ATTEMPTS):
        try:
            async with asyncio.timeout(_START_S + file.size_bytes / _SLOWEST_BYTES_S):
                connection = await connect()
                await _append(connection, name, f"{by}tail", file, part)
                said = await run_remote(connection, name, f"{by}sha256sum -- {shlex.quote(file.there)}")
        except (OSError, asyncssh.Error, TimeoutError) as error:
            why = str(error) or type(error).__name__
            continue
        if said.split(" ", 1)[0].lstrip("\\") == await asyncio.to_thread(_sha256, part):
            part.replace(here)
            return
        why = "its checksum is not that of the original"
        part.unlink()
    raise LabError(f"{name}: {file.there} could not be fetched: {why}")


async def _append(
    connection: asyncssh.SSHClientConnection, name: str, tail: str, file: OfferedFile, part: Path
) -> None:
    """Append what the part has not yet. Raises OSError, asyncssh.Error or TimeoutError when the stream ends early."""
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644), "ab") as kept:
        begun = kept.tell()
        command = f"{tail} -c +{begun + 1} -- {shlex.quote(file.there)}"
        async with connection.create_process(command, encoding=None) as process:
            while chunk := await _chunk(process.stdout):
                if begun + len(chunk) > file.size_bytes:
                    connection.abort()  # closing the channel alone would take what is still on its way
                    raise LabError(f"{name}: {file.name} is longer than the {file.size_bytes} bytes that were offered")
                begun += kept.write(chunk)
            done = await process.wait()
    if done.returncode != 0:
        raise OSError(f"tail ended with exit status {done.returncode}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _chunk(stream: asyncssh.SSHReader[bytes]) -> bytes:
    """What comes next, empty at the end. Raises TimeoutError when nothing does."""
    async with asyncio.timeout(_SILENT_S):
        return await stream.read(_CHUNK_BYTES)
