# SPDX-License-Identifier: Apache-2.0
"""Install the ``atoll-host`` that fits a machine's architecture, and check it there."""

import asyncio
import contextlib
import hashlib
import os
import platform
import re
import shlex
from pathlib import Path

import asyncssh

from atoll_core.clone import remedy
from atoll_core.errors import LabError, MachineError, plain, shown
from atoll_core.lab.inventory import SshAccess
from atoll_hosts.binary import find_binary, static_folder, static_name

FOLDER = "ATOLL_HOST_BINARIES"
"""Environment variable: a directory with atoll-host-x86_64, atoll-host-aarch64 and atoll-host-armv7l."""

_ARCHITECTURE = re.compile(r"[A-Za-z0-9_]{1,32}")
_MOST_OUTPUT_BYTES = 1 << 16
_LONGEST_ERROR = 500  # characters


def binary_for(arch: str) -> Path:
    """The executable for machines whose ``uname -m`` prints ``arch``. Raises MachineError if there is none.

    It is searched in the directory ``ATOLL_HOST_BINARIES``, then among those of the wheel or of `make release`. For
    machines of this one's architecture, the executable in use here is taken if it is newer than that one, which may
    speak an older protocol.
    """
    file, folder = static_name(arch), static_folder()
    is_own_architecture = file == static_name(platform.machine())
    named, released = os.environ.get(FOLDER), folder / file
    if named and (Path(named) / file).is_file():
        return Path(named) / file
    if not released.is_file():
        if is_own_architecture:
            return find_binary()
        folders = f"{named} or {folder}" if named else str(folder)
        make = remedy(f"`make release ARGS={file.removeprefix('atoll-host-')}` builds it, or ", "")
        raise MachineError(f"there is no {file} in {folders}; {make}{FOLDER} names its directory")
    if is_own_architecture and (in_use := find_binary()).stat().st_mtime > released.stat().st_mtime:
        return in_use
    return released


async def install_binary(
    connection: asyncssh.SSHClientConnection, name: str, access: SshAccess, arch: str | None = None
) -> dict[str, str | int]:
    """Install the binary at the path in the inventory unless it is there. ``arch``: the inventory's architecture.

    Returns ``arch``, ``binary``, ``sha256`` and ``bytes_sent``: 0 if the machine had the identical file already.

    It is written to a temporary name, checked by its checksum, executed once, and only then moved, so that a running
    agent is not affected. Raises LabError, MachineError.
    """
    machine = (await run_remote(connection, name, "uname -m")).strip()
    if not _ARCHITECTURE.fullmatch(machine):
        raise LabError(
            f"{name}: `uname -m` prints {shown(machine)}, which is not a known architecture; if a start-up file of "
            "the shell printed a part of it (~/.bashrc, ~/.profile, /etc/profile.d), let it print nothing without a "
            "terminal"
        )
    if arch is not None and machine != arch:
        raise LabError(f"{name}: `uname -m` prints {machine}, but the inventory has {arch}; correct the inventory")
    try:
        path = binary_for(machine)
    except MachineError as error:
        raise MachineError(f"{name}: `uname -m` says {machine}, and {error}") from None
    content = path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    result = {"arch": machine, "binary": access.binary, "sha256": sha256}
    remote_path = shlex.quote(access.binary)
    with contextlib.suppress(LabError):  # there is none yet
        if (await run_remote(connection, name, f"sha256sum -- {remote_path}")).startswith(sha256):
            return {**result, "bytes_sent": 0}
    folder, new_path = shlex.quote(str(Path(access.binary).parent)), shlex.quote(f"{access.binary}.new")
    await run_remote(connection, name, f"mkdir -p -- {folder} && cat > {new_path} && chmod 755 {new_path}", content)
    if not (await run_remote(connection, name, f"sha256sum -- {new_path}")).startswith(sha256):
        raise LabError(f"{name}: {access.binary} arrived damaged; check whether the disk is full")
    try:
        await run_remote(connection, name, f"{new_path} --version")
    except LabError as error:
        await connection.run(f"rm -f -- {new_path}", check=False)
        raise LabError(f"{error}; `uname -m` says {machine} there, and {path} does not run") from None
    await run_remote(connection, name, f"mv -f -- {new_path} {remote_path}")
    return {**result, "bytes_sent": len(content)}


async def run_remote(connection: asyncssh.SSHClientConnection, name: str, command: str, content: bytes = b"") -> str:
    """Run a shell command to its end and return its output, which is short.

    Raises LabError with its last line of output, or if its output is too long.
    """
    program = f"{name}: {command.split(' ', 1)[0]}"
    async with connection.create_process(command, encoding=None) as process:
        with contextlib.suppress(BrokenPipeError):  # it may have ended already, without reading anything
            process.stdin.write(content)
            process.stdin.write_eof()
        try:
            output, errors = await asyncio.gather(_read_all(process.stdout), _read_all(process.stderr))
        except ValueError as error:
            connection.abort()  # closing only the channel would receive the bytes in flight
            raise LabError(f"{program}: {error}") from None
        result = await process.wait()
    if result.returncode != 0:
        text = (output + errors).decode(errors="replace")  # nologin(8) complains on standard output
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        reason = plain(lines[-1], _LONGEST_ERROR) if lines else f"exit status {result.returncode}"
        raise LabError(f"{program}: {reason}")
    return output.decode(errors="replace")


async def _read_all(stream: "asyncssh.SSHReader[bytes]") -> bytes:
    """The output of a program until its end. Raises ValueError if it is too long."""
    output = b""
    while chunk := await stream.read(_MOST_OUTPUT_BYTES):
        output += chunk
        if len(output) > _MOST_OUTPUT_BYTES:
            raise ValueError(f"the program prints more than {_MOST_OUTPUT_BYTES} bytes")
    return output
