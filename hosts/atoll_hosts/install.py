# SPDX-License-Identifier: Apache-2.0
"""Bringing ``atoll-host`` to a machine: the one that fits its architecture, checked when it is there."""

import hashlib
import os
import platform
import shlex
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from atoll.model.errors import LabError, MachineError
from atoll.model.inventory import Access
from atoll_hosts.binary import find_binary

FOLDER = "ATOLL_HOST_BINARIES"
"""Environment variable: a directory with atoll-host-x86_64, atoll-host-aarch64 and atoll-host-armv7l."""

_RELEASED = Path(__file__).resolve().parents[2] / "target" / "release-binaries"
_CALLED = {"arm64": "aarch64", "armv8l": "armv7l", "amd64": "x86_64"}


@dataclass(frozen=True, slots=True)
class Installed:
    """What was done: ``bytes_sent`` is 0 if the machine had that very file already."""

    arch: str
    binary: str
    sha256: str
    bytes_sent: int


def binary_for(arch: str) -> Path:
    """The executable for machines whose ``uname -m`` says ``arch``. Raises MachineError when there is none.

    First in the directory that ``ATOLL_HOST_BINARIES`` names, then among those of `make release`. For machines of this
    one's architecture the program that is used here will do, and is taken where it is newer than the released one: a
    release of last week may speak an older protocol.
    """
    arch = _CALLED.get(arch, arch)
    own = arch == _CALLED.get(platform.machine(), platform.machine())
    file = f"atoll-host-{arch}"
    named, released = os.environ.get(FOLDER), _RELEASED / file
    if named and (Path(named) / file).is_file():
        return Path(named) / file
    if not released.is_file():
        if own:
            return find_binary()
        looked = f"{named} or {_RELEASED}" if named else str(_RELEASED)
        raise MachineError(
            f"there is no {file} in {looked}; `make release ARGS={arch}` builds it, or {FOLDER} names its directory"
        )
    if own and (used := find_binary()).stat().st_mtime > released.stat().st_mtime:
        return used
    return released


async def install(
    connection: asyncssh.SSHClientConnection, name: str, access: Access, arch: str | None = None
) -> Installed:
    """Put the binary where the inventory says, unless it is there. ``arch``: what the inventory says the machine is.

    Written beside its place, compared by its checksum, tried, and only then moved there: a running agent is not
    disturbed. Raises LabError, MachineError.
    """
    found = (await run(connection, name, "uname -m")).strip()
    if arch is not None and found != arch:
        raise LabError(f"{name}: `uname -m` says {found}, the inventory {arch}; correct the inventory")
    try:
        path = binary_for(found)
    except MachineError as error:
        raise MachineError(f"{name}: `uname -m` says {found}, and {error}") from None
    content = path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    there = shlex.quote(access.binary)
    held = await connection.run(f"sha256sum -- {there}", check=False)
    if str(held.stdout or "").startswith(sha256):
        return Installed(found, access.binary, sha256, 0)
    folder, new = shlex.quote(str(Path(access.binary).parent)), shlex.quote(f"{access.binary}.new")
    await run(connection, name, f"mkdir -p -- {folder} && cat > {new} && chmod 755 {new}", content)
    if not (await run(connection, name, f"sha256sum -- {new}")).startswith(sha256):
        raise LabError(f"{name}: {access.binary} arrived damaged; is its disk full?")
    try:
        await run(connection, name, f"{new} --version")
    except LabError as error:
        await connection.run(f"rm -f -- {new}", check=False)
        raise LabError(f"{error}; `uname -m` says {found} there, and {path} does not run") from None
    await run(connection, name, f"mv -f -- {new} {there}")
    return Installed(found, access.binary, sha256, len(content))


async def run(connection: asyncssh.SSHClientConnection, name: str, command: str, content: bytes = b"") -> str:
    """Run a command of the user's shell to its end; its output. Raises LabError with its complaint."""
    done = await connection.run(command, input=content, encoding=None, check=False)
    output = done.stdout if isinstance(done.stdout, bytes) else b""
    if done.returncode != 0:
        complaint = done.stderr.decode(errors="replace") if isinstance(done.stderr, bytes) else ""
        lines = [line.strip() for line in complaint.splitlines() if line.strip()]
        why = lines[-1] if lines else f"exit status {done.returncode}"
        raise LabError(f"{name}: {command.split(' ', 1)[0]}: {why}")
    return output.decode(errors="replace")
