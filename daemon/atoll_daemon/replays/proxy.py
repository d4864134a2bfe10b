# SPDX-License-Identifier: Apache-2.0
"""Forward requests to the running daemon over its Unix socket, with the rights of TCP.

Each request has its own connection, as daemons start and end. The token is not forwarded; the ``Forwarded`` header
(RFC 7239) removes the rights that the Unix socket would give.
"""

import contextlib
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from atoll_core.errors import LabError
from atoll_core.platforms import LabTarget
from atoll_daemon.client import DaemonConnector
from atoll_daemon.http.auth import SUBPROTOCOL
from atoll_daemon.http.event_stream import serve_websocket
from atoll_daemon.http.http_errors import RequestError, no_lab
from atoll_daemon.http.request_parsing import read_bytes
from atoll_daemon.socket_lock import daemon_holder, foreign_daemon_error, is_trusted

_CONNECT_S = 5.0
_FORWARDED_HEADERS = ("Accept", "Content-Type")
_CONNECTION_HEADERS = frozenset({"connection", "date", "keep-alive", "server", "transfer-encoding"})  # not forwarded


class Upstream:
    """Forwards requests to the running daemon of a lab; close it at the end."""

    def __init__(self, target: LabTarget) -> None:
        self._target = target
        self._session = aiohttp.ClientSession(
            connector=DaemonConnector(target, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            auto_decompress=False,
        )

    async def close(self) -> None:
        """Close open connections."""
        await self._session.close()

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """Forward a request and the daemon's answer. Raises RequestError (503) if there is no daemon."""
        self._require_daemon()
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._forward_websocket(request)
        headers = {name: request.headers[name] for name in _FORWARDED_HEADERS if name in request.headers}
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
            raise no_lab(self._target, 503) from None

    async def get(self, path: str) -> dict[str, Any] | None:
        """GET a path of the API; None if there is no daemon or it answers with an error."""
        try:
            self._require_daemon()
            async with self._session.get(f"http://daemon{path}") as answer:
                return await answer.json() if answer.ok else None
        except (LabError, RequestError, aiohttp.ClientError, ValueError):
            return None

    def _require_daemon(self) -> None:
        """Raise RequestError (503) unless a trusted daemon is running: nothing is sent to another user's process."""
        holder = daemon_holder(self._target)
        if holder is None:
            raise no_lab(self._target, 503)
        if not is_trusted(holder[1]):
            raise RequestError(503, str(foreign_daemon_error(self._target, holder)), exit_code=1)

    async def _forward_websocket(self, request: web.Request) -> web.StreamResponse:
        try:
            daemon = await self._session.ws_connect(
                _address(request), protocols=(SUBPROTOCOL,), headers=_forwarded(request), max_msg_size=0
            )
        except aiohttp.WSServerHandshakeError as error:
            msg = (
                f"{request.path}: the daemon refused a WebSocket ({error.status}); a request without WebSocket "
                "returns the reason"
            )
            # The daemon may answer such a path with success without a WebSocket; this request has failed.
            raise RequestError(max(error.status, 400), msg, exit_code=1) from None
        except aiohttp.ClientConnectionError:
            raise no_lab(self._target, 503) from None
        async with daemon:
            return await serve_websocket(
                request, lambda socket: _forward_messages(daemon, socket), aiohttp.WSCloseCode.GOING_AWAY
            )


async def _forward_messages(daemon: aiohttp.ClientWebSocketResponse, socket: web.WebSocketResponse) -> None:
    """Forward messages until the daemon ends. If the client does not read them, the daemon drops this connection."""
    with contextlib.suppress(ConnectionError):
        async for message in daemon:
            if message.type is aiohttp.WSMsgType.TEXT:
                await socket.send_str(message.data)


async def _answer(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """Forward the daemon's answer as it arrives; abort the connection if the answer ends too early."""
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    for name, text in answer.headers.items():
        if name.lower() not in _CONNECTION_HEADERS:
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


def _address(request: web.Request) -> URL:
    asked = request.rel_url
    return URL.build(
        scheme="http", host="daemon", path=asked.raw_path, query_string=asked.raw_query_string, encoded=True
    )


def _forwarded(request: web.Request) -> dict[str, str]:
    """The header with the client's address, which the daemon names in events about the connection."""
    return {"Forwarded": f'for="{request.remote or "unknown"}"'}
