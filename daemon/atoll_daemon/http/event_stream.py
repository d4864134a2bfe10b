# SPDX-License-Identifier: Apache-2.0
"""`GET /v1/events`: events and samples over a WebSocket, or as JSON lines for a plain request (``curl -N``)."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Coroutine

from aiohttp import WSCloseCode, web

from atoll_daemon.event_log import EventJson, EventListener, EventLog
from atoll_daemon.http.api_models import EventsRequest
from atoll_daemon.http.auth import SUBPROTOCOL
from atoll_daemon.http.responses import line_bytes, lines_response

_PING_S = 20.0
"""Between pings of a WebSocket; a client that does not answer within half of that is disconnected."""

_LONGEST_MESSAGE = 1024
"""Bytes of a client's message; clients need not send any."""

Send = Callable[[EventJson], Awaitable[None]]
WriteMessages = Callable[[web.WebSocketResponse], Coroutine[None, None, None]]


async def serve_events(request: web.Request, log: EventLog, asked: EventsRequest) -> web.StreamResponse:
    """Answer a request for events until its end, or until the client disconnects or falls too far behind."""
    upgraded = request.headers.get("Upgrade", "").lower() == "websocket"
    return await (_by_websocket if upgraded else _by_lines)(request, log, asked)


async def _by_lines(request: web.Request, log: EventLog, asked: EventsRequest) -> web.StreamResponse:
    response = lines_response()
    with contextlib.suppress(ConnectionError):
        await response.prepare(request)
        await _send_events(request, log, asked, lambda event: response.write(line_bytes(event)))
    return response


async def _by_websocket(request: web.Request, log: EventLog, asked: EventsRequest) -> web.StreamResponse:
    async def write(socket: web.WebSocketResponse) -> None:
        await _send_events(request, log, asked, lambda event: socket.send_str(json.dumps(event, separators=(",", ":"))))

    return await serve_websocket(request, write, WSCloseCode.OK)


async def serve_websocket(request: web.Request, write: WriteMessages, code: WSCloseCode) -> web.StreamResponse:
    """Serve a WebSocket that only the server writes to.

    It ends when ``write`` returns, and is closed with this code then, or when the client disconnects.
    """
    socket = web.WebSocketResponse(heartbeat=_PING_S, max_msg_size=_LONGEST_MESSAGE, protocols=(SUBPROTOCOL,))
    await socket.prepare(request)
    writing = asyncio.create_task(write(socket))
    writing.add_done_callback(lambda _: asyncio.ensure_future(socket.close(code=code)))
    try:
        async for _ in socket:
            pass
    finally:
        writing.cancel()
        await asyncio.wait([writing])
    return socket


async def _send_events(request: web.Request, log: EventLog, asked: EventsRequest, send: Send) -> None:
    transport = request.transport
    if transport is None:
        return
    listener = log.subscribe(_first_number(log, asked), _name(request), samples=asked.samples, drop=transport.abort)
    hello = {"type": "hello", "seq": log.seq, "oldest": log.oldest}
    try:
        with contextlib.suppress(ConnectionError):
            await send(hello)
            await (_send_all(listener, send) if asked.follow else _send_kept(listener, send))
    finally:
        log.unsubscribe(listener)


async def _send_all(listener: EventListener, send: Send) -> None:
    while (event := await listener.take()) is not None:
        await send(event)


async def _send_kept(listener: EventListener, send: Send) -> None:
    while (event := listener.take_now()) is not None:
        await send(event)


def _first_number(log: EventLog, asked: EventsRequest) -> int:
    """The number after which events are sent."""
    if asked.after is not None:
        return asked.after
    if asked.last is not None:
        return max(log.oldest - 1, log.seq - asked.last)
    return log.seq if asked.follow else log.oldest - 1


def _name(request: web.Request) -> str:
    """The name of a listener in an event about it."""
    return request.remote or request.headers.get("Forwarded") or "a listener on the Unix socket"
