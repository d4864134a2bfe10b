# SPDX-License-Identifier: Apache-2.0
"""Hosts on both sides of PEPs at their limits: ``pep_soak_peers.py serve ADDRESS`` and ``load SERVER DEAD SECONDS``.

The load is bulk transfers that fill the link, clients that never read, clients of a port of ``DEAD`` that does not
answer, and short transfers, all of which have to succeed. A line at every interval says what there was until then.
"""

import asyncio
import json
import random
import socket
import struct
import sys
import time
from collections.abc import Callable, Coroutine

SHORT, BULK, NOBODY = 9001, 9002, 9003
SHORT_BYTES = 4096
_CHUNK = b"b" * (1 << 16)
_BULKS = 6
_STALLED, _STALLED_S = 20, 300.0
_DEAD_S, _DEAD_FOR_S = 0.25, 20.0  # between two clients, of which each waits so long: more than may be pending
_SHORT_S = 2.0
_LIMIT_S = 30.0


async def serve(address: str) -> None:
    """Serve short and endless transfers."""

    async def short(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(2)
        writer.write(bytes(SHORT_BYTES))
        writer.close()

    async def bulk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del reader
        try:
            while True:
                writer.write(_CHUNK)
                await writer.drain()
        except ConnectionError:
            writer.close()

    for port, take in ((SHORT, short), (BULK, bulk)):
        await asyncio.start_server(take, address, port, backlog=1024)
    print('{"type":"ready"}', flush=True)
    await asyncio.Event().wait()


class Load:
    """What has come of the connections."""

    def __init__(self, server: str, dead: str, interval_s: float) -> None:
        self._server = server
        self._dead = dead
        self._interval_s = interval_s
        self._draw = random.Random(1)
        self.bulk_bytes = 0
        self.good = 0
        self.failed: list[str] = []
        self.slowest_s = 0.0
        self.dead = 0

    async def run(self) -> None:
        """Load until the end, and print a line at every interval."""
        print('{"type":"ready"}', flush=True)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_BULKS):
                tasks.create_task(self._bulk())
            for number in range(_STALLED):
                tasks.create_task(self._stall(number))
            tasks.create_task(self._report())
            tasks.create_task(self._every(_DEAD_S, self._ask_the_dead, tasks))
            tasks.create_task(self._every(_SHORT_S, self._short, tasks))

    async def _every(
        self, interval_s: float, act: Callable[[], Coroutine[None, None, None]], tasks: asyncio.TaskGroup
    ) -> None:
        while True:
            await asyncio.sleep(self._draw.uniform(0, 2 * interval_s))
            tasks.create_task(act())

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            found = {name: value for name, value in vars(self).items() if not name.startswith("_")}
            print(json.dumps({"type": "load", **found}), flush=True)

    async def _bulk(self) -> None:
        reader, _ = await asyncio.open_connection(self._server, BULK)
        while data := await reader.read(1 << 16):
            self.bulk_bytes += len(data)
        self.failed.append("a bulk transfer ended")

    async def _stall(self, number: int) -> None:
        await asyncio.sleep(number * _STALLED_S / _STALLED)
        while True:
            with socket.socket() as client:
                client.setblocking(False)
                await asyncio.get_running_loop().sock_connect(client, (self._server, BULK))
                await asyncio.sleep(_STALLED_S)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def _ask_the_dead(self) -> None:
        self.dead += 1
        with socket.socket() as client:
            client.setblocking(False)
            try:
                async with asyncio.timeout(_DEAD_FOR_S):
                    await asyncio.get_running_loop().sock_connect(client, (self._dead, NOBODY))
                await asyncio.sleep(_DEAD_FOR_S)  # accepted by a PEP, early
            except OSError:  # among them TimeoutError
                pass

    async def _short(self) -> None:
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(_LIMIT_S):
                reader, writer = await asyncio.open_connection(self._server, SHORT)
                writer.write(b"go")
                got = len(await reader.read(-1))
                writer.close()
        except OSError as error:
            self.failed.append(f"a short transfer: {error!r}")
            return
        if got == SHORT_BYTES:
            self.good += 1
        else:
            self.failed.append(f"a short transfer: {got} bytes")
        self.slowest_s = max(self.slowest_s, round(time.monotonic() - began_s, 3))


if __name__ == "__main__":
    asyncio.run(
        serve(sys.argv[2]) if sys.argv[1] == "serve" else Load(sys.argv[2], sys.argv[3], float(sys.argv[4])).run()
    )
