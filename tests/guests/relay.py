# SPDX-License-Identifier: Apache-2.0
"""Lets a test outside a network namespace ask a TCP port inside: ``python relay.py UNIX-SOCKET PORT``.

A Unix socket with a path belongs to the file system, not to the network: what connects to it is passed on.
"""

import asyncio
import contextlib
import sys


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while part := await reader.read(65536):
            writer.write(part)
            await writer.drain()
    writer.close()


async def relay(path: str, port: int) -> None:
    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pass_on(reader, back), pass_on(there, writer))

    server = await asyncio.start_unix_server(connect, path)
    print("ready", flush=True)
    async with server:
        await server.serve_forever()


asyncio.run(relay(sys.argv[1], int(sys.argv[2])))
