# SPDX-License-Identifier: Apache-2.0
"""Enrol host keys: the key that a host shows at the first connection is required from then on."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from atoll_core.errors import LabError
from atoll_core.lab.inventory import SshAccess
from atoll_hosts.ssh.connections import CONNECT_TIMEOUT_S, SshConnections, known_hosts_file


@dataclass(frozen=True, slots=True)
class ShownKey:
    """The key that a host has shown, and whether it is in the file of known hosts already."""

    host: str  # as known_hosts writes it: "name", or "[name]:port"
    algorithm: str
    fingerprint: str  # "SHA256:.."
    line: str  # of known_hosts
    file: Path
    known: bool


async def show_key(connections: SshConnections, name: str, access: SshAccess) -> ShownKey:
    """Read a host's key without trusting it. Raises LabError if unreachable, or if another key is in the file."""
    options = await connections.options(name, access)
    for option in ("known_hosts", "username", "client_keys"):
        options.pop(option, None)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            key = await asyncssh.get_server_host_key(**options)
    except TimeoutError:
        raise LabError(f"{name}: {access} does not answer within {CONNECT_TIMEOUT_S:g} s") from None
    except (OSError, asyncssh.Error) as error:
        raise LabError(f"{name}: {access} sent no host key: {error}") from None
    if key is None:
        raise LabError(f"{name}: {access} sent no host key")
    file = known_hosts_file(access)
    host = access.host if access.port in (None, 22) else f"[{access.host}]:{access.port}"
    key_fields = key.export_public_key().decode().split()
    line = f"{host} {key_fields[0]} {key_fields[1]}\n"
    port = access.port if access.port not in (None, 22) else None
    known_keys = asyncssh.match_known_hosts(str(file), access.host, "", port)[0] if file.is_file() else ()
    if known_keys and all(known_key.public_data != key.public_data for known_key in known_keys):
        raise LabError(
            f"{name}: {access} shows {key.get_fingerprint()}, but {file} has another key for it; if you know why the "
            f"key changed, remove the old one: ssh-keygen -f {file} -R {access.host}"
        )
    return ShownKey(host, key.get_algorithm(), key.get_fingerprint(), line, file, bool(known_keys))


def enroll(keys: list[ShownKey]) -> None:
    """Add keys to their files, so that later connections trust them. Raises LabError if a file cannot be written."""
    for key in keys:
        try:
            key.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with key.file.open("a", encoding="utf-8") as file:
                file.write(key.line)
        except OSError as error:
            raise LabError(f"{key.file}: {error.strerror}") from None
