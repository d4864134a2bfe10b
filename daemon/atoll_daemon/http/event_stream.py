# SPDX-License-Identifier: Apache-2.0
"""`GET /v1/events`: events and samples over a WebSocket, or as JSON lines for a plain request (``curl -N``)."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine

from aiohttp import WSCloseCode, web

from atoll_daemon.event_log import EventJson, EventLog
from atoll_daemon.http.api_models import EventsRequest
from atoll_daemon.http.auth import SUBPROTOCOL
from atoll_daemon.http.responses import line_bytes, line_text, lines_response

_PING_INTERVAL_S = 20.0
"""Between pings of a WebSocket; a client that does not answer within half of that is disconnected."""

_LONGEST_MESSAGE = 1024
"""Bytes of a client's message; clients need not send any."""

Send = Callable[[EventJson], Awaitable[None]]
WriteMessages = Callable[[web.WebSocketResponse], Coroutine[None, None, None]]


async def serve_events(request: web.Request, log: EventLog, query: EventsRequest) -> web.StreamResponse:
    """Answer a request for events until its end, or until the client disconnects or falls too far behind."""

    async def write(socket: web.WebSocketResponse) -> None:
        await _send_events(request, log, query, lambda event: socket.send_str(line_text(event)))

    if is_upgrade(request):
        return await serve_websocket(request, write, WSCloseCode.OK)
    response = lines_response()
    with contextlib.suppress(ConnectionError):
        await response.prepare(request)
        await _send_events(request, log, query, lambda event: response.write(line_bytes(event)))
    return response


def is_upgrade(request: web.Request) -> bool:
    """Whether the request asks for a WebSocket."""
    return request.headers.get("Upgrade", "").lower() == "websocket"


async def serve_websocket(request: web.Request, write: WriteMessages, code: WSCloseCode) -> web.StreamResponse:
    """Serve a WebSocket that only the server writes to.

    It ends when ``write`` returns, and is closed with this code then, or when the client disconnects.
    """
    socket = web.WebSocketResponse(heartbeat=_PING_INTERVAL_S, max_msg_size=_LONGEST_MESSAGE, protocols=(SUBPROTOCOL,))
    await socket.prepare(request)
    writer = asyncio.create_task(write(socket))
    writer.add_done_callback(lambda _: asyncio.ensure_future(socket.close(code=code)))
    try:
        async for _ in socket:
            pass
    finally:
        writer.cancel()
        await asyncio.wait([writer])
    return socket


async def _send_events(request: web.Request, log: EventLog, query: EventsRequest, send: Send) -> None:
    transport = request.transport
    if transport is None:
        return
    listener = log.subscribe(
        _last_received(log, query), _name(request), takes_samples=query.samples, drop=transport.abort
    )
    hello = {"type": "hello", "seq": log.seq, "oldest": log.oldest}
    try:
        with contextlib.suppress(ConnectionError):
            await send(hello)
            while (event := await listener.get() if query.follow else listener.get_nowait()) is not None:
                await send(event)
    finally:
        log.unsubscribe(listener)


def _last_received(log: EventLog, query: EventsRequest) -> int:
    """The number after which events are sent."""
    if query.after is not None:
        return query.after
    if query.last is not None:
        return max(log.oldest - 1, log.seq - query.last)
    return log.seq if query.follow else log.oldest - 1


def _name(request: web.Request) -> str:
    """The name of a listener in an event about it."""
    return request.remote or request.headers.get("Forwarded") or "a listener on the Unix socket"
