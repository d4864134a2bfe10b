# SPDX-License-Identifier: Apache-2.0
"""Fetches a file from a machine of a rack, for tests.

``python rack_fetch.py INVENTORY MACHINE THERE SIZE HERE [BREAK]``

With BREAK the connection is broken when so many bytes are here, once. Prints how often it connected.
"""

import asyncio
import sys
from pathlib import Path

import asyncssh

from atoll_core.description.resolve_inventory import load_inventory
from atoll_hosts.ssh.connections import SshConnections
from atoll_hosts.ssh.file_transfer import OfferedFile, fetch


async def main(inventory: Path, machine: str, file: OfferedFile, here: Path, break_at: int) -> None:
    target = load_inventory(inventory).machine(machine)
    connected: list[asyncssh.SSHClientConnection] = []
    async with SshConnections() as connections:

        async def connect() -> asyncssh.SSHClientConnection:
            if not connected or connected[-1].is_closed():
                connected.append(await connections.connect(machine, target.access))
            return connected[-1]

        async def cut() -> None:
            part = here.with_name(here.name + ".part")
            while not (part.exists() and part.stat().st_size >= break_at):  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.001)
            connected[-1].abort()

        cutting = asyncio.create_task(cut()) if break_at else None
        await fetch(connect, machine, file, here, sudo=target.access.sudo)
        if cutting:
            cutting.cancel()
        connected[-1].abort()
    print(len(connected))


offered = OfferedFile(sys.argv[3], sys.argv[3], int(sys.argv[4]))
asyncio.run(main(Path(sys.argv[1]), sys.argv[2], offered, Path(sys.argv[5]), int((*sys.argv, "0")[6])))
