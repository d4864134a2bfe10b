# SPDX-License-Identifier: Apache-2.0
"""Bringing files from a machine: over an SSH channel of its own, resumed where it broke off, its checksum compared."""

import asyncio
import hashlib
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncssh

from atoll.model.errors import LabError
from atoll_hosts.install import run

Connect = Callable[[], Awaitable[asyncssh.SSHClientConnection]]
"""A connection that lives: the one there was, or another when that has broken. Raises LabError."""

_CHUNK_BYTES = 1 << 18
_ATTEMPTS = 4
_SILENT_S = 10.0


async def fetch(connect: Connect, name: str, there: str, here: Path, *, sudo: bool = False) -> int:
    """Bring the file ``there`` of machine ``name`` to ``here``; its size. Raises LabError when it cannot be had whole.

    What an earlier attempt brought (in ``here`` with .part added) is kept and added to. ``sudo``: the user who logs in
    reads it by `sudo -n`, being another one than the agent.
    """
    by = "sudo -n -- " if sudo else ""
    part = here.with_name(here.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    why = ""
    for _ in range(_ATTEMPTS):
        try:
            connection = await connect()
            await _append(connection, f"{by}tail", there, part)
            said = await run(connection, name, f"{by}sha256sum -- {shlex.quote(there)}")
        except (OSError, asyncssh.Error, TimeoutError) as error:
            why = str(error) or type(error).__name__
            continue
        if said.split(" ", 1)[0].lstrip("\\") == await asyncio.to_thread(_sha256, part):
            part.replace(here)
            return here.stat().st_size
        why = "its checksum is not that of the original"
        part.unlink()
    raise LabError(f"{name}: {there} could not be fetched: {why}")


async def _append(connection: asyncssh.SSHClientConnection, tail: str, there: str, part: Path) -> None:
    """What the part lacks. Raises OSError, asyncssh.Error or TimeoutError when the stream ends early."""
    with part.open("ab") as file:
        command = f"{tail} -c +{file.tell() + 1} -- {shlex.quote(there)}"
        async with connection.create_process(command, encoding=None) as process:
            while chunk := await asyncio.wait_for(process.stdout.read(_CHUNK_BYTES), _SILENT_S):
                file.write(chunk)
            done = await process.wait()
    if done.returncode != 0:
        raise OSError(f"tail ended with exit status {done.returncode}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
