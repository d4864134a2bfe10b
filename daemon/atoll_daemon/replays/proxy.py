# SPDX-License-Identifier: Apache-2.0
"""Requests passed on to the daemon that is there at the moment, by its Unix socket, with the rights of TCP.

Each request has a connection of its own: daemons come and go, and one that has gone is told at once. The token stays
here; ``Forwarded`` (RFC 7239) takes from a request what the Unix socket would let it do.
"""

import contextlib
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from atoll_core.errors import LabError
from atoll_daemon.connector import DaemonConnector
from atoll_daemon.http.auth import SUBPROTOCOL
from atoll_daemon.http.event_stream import serve_websocket
from atoll_daemon.http.http_errors import RequestError, no_lab_is_up
from atoll_daemon.http.request_parsing import read_bytes
from atoll_daemon.socket_lock import daemon_holder, foreign_daemon, may_talk

_CONNECT_S = 5.0
_PASSED_ON = ("Accept", "Content-Type")
_OF_THE_CONNECTION = frozenset({"connection", "date", "keep-alive", "server", "transfer-encoding"})  # not of the answer


class Upstream:
    """The way to the daemon, whichever there is; close it at the end."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=DaemonConnector(force_close=True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            auto_decompress=False,
        )

    async def close(self) -> None:
        """End what is left of connections."""
        await self._session.close()

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        """Answer what the daemon answers. Raises RequestError (503) when there is none."""
        _require_daemon()
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._pass_on_websocket(request)
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        body = await read_bytes(request)
        try:
            async with self._session.request(
                request.method,
                _address(request),
                headers={**headers, **_forwarded(request)},
                data=body or None,
                allow_redirects=False,
            ) as answer:
                return await _answer(request, answer)
        except aiohttp.ClientConnectionError:
            raise _no_lab() from None

    async def get(self, path: str) -> dict[str, Any] | None:
        """What there is at a path of the API; None when no daemon answers that it is there."""
        try:
            _require_daemon()
            async with self._session.get(f"http://daemon{path}") as answer:
                return await answer.json() if answer.ok else None
        except (LabError, RequestError, aiohttp.ClientError, ValueError):
            return None

    async def _pass_on_websocket(self, request: web.Request) -> web.StreamResponse:
        try:
            daemon = await self._session.ws_connect(
                _address(request), protocols=(SUBPROTOCOL,), headers=_forwarded(request), max_msg_size=0
            )
        except aiohttp.WSServerHandshakeError as error:
            msg = f"{request.path}: the daemon serves no WebSocket for this ({error.status}); ask without one why"
            # What is served without a WebSocket is answered plainly: no success of this request.
            raise RequestError(max(error.status, 400), msg, exit_code=1) from None
        except aiohttp.ClientConnectionError:
            raise _no_lab() from None
        async with daemon:
            return await serve_websocket(request, lambda socket: _tell(daemon, socket), aiohttp.WSCloseCode.GOING_AWAY)


async def _tell(daemon: aiohttp.ClientWebSocketResponse, socket: web.WebSocketResponse) -> None:
    """Messages as they come, until the daemon ends. Who does not take them holds up the daemon's, which drops it."""
    with contextlib.suppress(ConnectionError):
        async for message in daemon:
            if message.type is aiohttp.WSMsgType.TEXT:
                await socket.send_str(message.data)


async def _answer(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """The daemon's answer, as it comes; cut off where the daemon's ends too early."""
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    for name, text in answer.headers.items():
        if name.lower() not in _OF_THE_CONNECTION:
            response.headers.add(name, text)
    await response.prepare(request)
    try:
        async for part in answer.content.iter_any():
            await response.write(part)
        await response.write_eof()
    except aiohttp.ClientError:
        if request.transport is not None:
            request.transport.abort()
    return response


def _require_daemon() -> None:
    """Raise RequestError (503) unless a daemon of ours is there: nothing is told to another user's process."""
    holder = daemon_holder()
    if holder is None:
        raise _no_lab()
    if not may_talk(holder[1]):
        raise RequestError(503, str(foreign_daemon(holder)), exit_code=1)


def _no_lab() -> RequestError:
    return RequestError(503, no_lab_is_up(), exit_code=1)


def _address(request: web.Request) -> URL:
    asked = request.rel_url
    return URL.build(
        scheme="http", host="daemon", path=asked.raw_path, query_string=asked.raw_query_string, encoded=True
    )


def _forwarded(request: web.Request) -> dict[str, str]:
    """Who asks, so that the daemon can say who stopped reading."""
    return {"Forwarded": f'for="{request.remote or "unknown"}"'}
