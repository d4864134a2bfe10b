# SPDX-License-Identifier: Apache-2.0
"""The daemon's side of `atoll shell`: Mininet's command line over a WebSocket (docs/contracts.md, "Daemon")."""

import asyncio
import contextlib
import json
from typing import Any

from aiohttp import WSMessage, WSMsgType, web

from atoll_core.errors import LabError
from atoll_daemon.http.http_errors import no_lab_is_up
from atoll_daemon.lab_daemon import LabDaemon
from atoll_emulation.mininet_lab.emulated_lab import LabShell
from atoll_testbed.testbed import Testbed

_LONGEST_MESSAGE = 16 * 1024 * 1024  # a script is one message


async def serve_shell(request: web.Request, daemon: LabDaemon) -> web.WebSocketResponse:
    """Serve a shell until the session or the connection ends."""
    socket = web.WebSocketResponse(max_msg_size=_LONGEST_MESSAGE)
    await socket.prepare(request)
    asked = await socket.receive()
    if asked.type is not WSMsgType.TEXT:
        return socket
    if daemon.testbed is None:
        await _end(socket, no_lab_is_up(daemon.target))
        return socket
    try:
        shell = await _open(daemon.testbed, json.loads(asked.data))
    except LabError as error:  # a lab of real machines has no Mininet
        await _end(socket, str(error))
        return socket
    printing = asyncio.create_task(_print(shell, socket))
    try:
        async for message in socket:
            await _forward(message, shell)
    finally:
        printing.cancel()
        await asyncio.shield(shell.close())  # this handler may be cancelled here, by the end of the connection
    return socket


async def _open(testbed: Testbed, asked: dict[str, Any]) -> LabShell:
    if "script" in asked:
        return await testbed.lab.run_script(asked["script"])
    return await testbed.lab.open_shell(asked["columns"], asked["rows"])


async def _forward(message: WSMessage, shell: LabShell) -> None:
    if message.type is WSMsgType.BINARY:
        await shell.write(message.data)
    elif message.type is WSMsgType.TEXT:
        size = json.loads(message.data)
        await shell.resize(size["columns"], size["rows"])


async def _print(shell: LabShell, socket: web.WebSocketResponse) -> None:
    with contextlib.suppress(ConnectionError):  # the client has disconnected
        while printed := await shell.read():
            await socket.send_bytes(printed)
        await _end(socket, shell.refused)


async def _end(socket: web.WebSocketResponse, why: str | None) -> None:
    """Send the last message, which says how the session ended."""
    last = {"type": "done"} if why is None else {"type": "error", "message": why, "exit_code": LabError.exit_code}
    await socket.send_json(last)
    await socket.close()
