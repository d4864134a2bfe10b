# SPDX-License-Identifier: Apache-2.0
"""`GET /v1/events`: events and samples as a WebSocket, or as JSON lines to who asks plainly (``curl -N``)."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Coroutine

from aiohttp import WSCloseCode, web

from atoll_daemon.event_log import Event, EventLog, Subscription
from atoll_daemon.http.api_models import Listening
from atoll_daemon.http.auth import SUBPROTOCOL
from atoll_daemon.http.responses import line_bytes, lines_response

_PING_S = 20.0
"""Between pings of a WebSocket; who does not answer one within half of that is gone."""

_LONGEST_MESSAGE = 1024
"""Bytes of what a client says; it has nothing to say."""

Send = Callable[[Event], Awaitable[None]]
Tell = Callable[[web.WebSocketResponse], Coroutine[None, None, None]]


async def serve_events(request: web.Request, log: EventLog, asked: Listening) -> web.StreamResponse:
    """Answer one request for events until it has all of what it asked for, goes away, or falls too far behind."""
    upgraded = request.headers.get("Upgrade", "").lower() == "websocket"
    return await (_by_websocket if upgraded else _by_lines)(request, log, asked)


async def _by_lines(request: web.Request, log: EventLog, asked: Listening) -> web.StreamResponse:
    response = lines_response()
    with contextlib.suppress(ConnectionError):
        await response.prepare(request)
        await _tell(request, log, asked, lambda event: response.write(line_bytes(event)))
    return response


async def _by_websocket(request: web.Request, log: EventLog, asked: Listening) -> web.StreamResponse:
    async def tell(socket: web.WebSocketResponse) -> None:
        await _tell(request, log, asked, lambda event: socket.send_str(json.dumps(event, separators=(",", ":"))))

    return await serve_websocket(request, tell, WSCloseCode.OK)


async def serve_websocket(request: web.Request, tell: Tell, code: WSCloseCode) -> web.StreamResponse:
    """A WebSocket whose client has nothing to say.

    It lasts until ``tell`` is done, and is closed with this code then, or until the client goes.
    """
    socket = web.WebSocketResponse(heartbeat=_PING_S, max_msg_size=_LONGEST_MESSAGE, protocols=(SUBPROTOCOL,))
    await socket.prepare(request)
    telling = asyncio.create_task(tell(socket))
    telling.add_done_callback(lambda _: asyncio.ensure_future(socket.close(code=code)))
    try:
        async for _ in socket:
            pass
    finally:
        telling.cancel()
        await asyncio.wait([telling])
    return socket


async def _tell(request: web.Request, log: EventLog, asked: Listening, send: Send) -> None:
    transport = request.transport
    if transport is None:
        return
    listener = log.subscribe(_begin(log, asked), _name(request), samples=asked.samples, drop=transport.abort)
    hello = {"type": "hello", "seq": log.seq, "oldest": log.oldest}
    try:
        with contextlib.suppress(ConnectionError):
            await send(hello)
            await (_send_all(listener, send) if asked.follow else _send_held(listener, send))
    finally:
        log.unsubscribe(listener)


async def _send_all(listener: Subscription, send: Send) -> None:
    while (event := await listener.take()) is not None:
        await send(event)


async def _send_held(listener: Subscription, send: Send) -> None:
    while (event := listener.take_now()) is not None:
        await send(event)


def _begin(log: EventLog, asked: Listening) -> int:
    """The number after which events are wanted."""
    if asked.after is not None:
        return asked.after
    if asked.last is not None:
        return max(log.oldest - 1, log.seq - asked.last)
    return log.seq if asked.follow else log.oldest - 1


def _name(request: web.Request) -> str:
    """What a listener is called in an event about it."""
    return request.remote or request.headers.get("Forwarded") or "a listener on the Unix socket"
