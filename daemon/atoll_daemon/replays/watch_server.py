# SPDX-License-Identifier: Apache-2.0
"""The server of `atoll watch`: the live page, replays, and the API of the running daemon.

It outlives daemons. Without a daemon the page says so, and runs can still be replayed
(docs/decisions/0026-a-page-that-outlives-keepers.md).
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from atoll_core.errors import LabError
from atoll_core.platforms import LabTarget
from atoll_daemon.client import DaemonConnector
from atoll_daemon.http.auth import SUBPROTOCOL, WATCH_REALM, AccessControl, local_only_error
from atoll_daemon.http.event_stream import is_upgrade, serve_websocket
from atoll_daemon.http.http_app import HttpHandler, add_page, errors_as_json, is_page, make_runner
from atoll_daemon.http.http_errors import RequestError, no_lab_error
from atoll_daemon.http.request_parsing import read_bytes
from atoll_daemon.http.responses import json_answer
from atoll_daemon.http.tcp_listener import ListenAddress, ServedPort
from atoll_daemon.replays.replay_handlers import replay_answer, replays_answer, stream_points
from atoll_daemon.replays.replay_index import Replays
from atoll_daemon.socket_lock import daemon_holder, foreign_daemon_error, is_trusted

_LIST_RUNS_TIMEOUT_S = 2.0  # for the daemon to list its runs
_CONNECT_TIMEOUT_S = 5.0
_FORWARDED_HEADERS = ("Accept", "Content-Type")
_UNFORWARDED_HEADERS = frozenset({"connection", "date", "keep-alive", "server", "transfer-encoding"})  # not forwarded


class Upstream:
    """Forwards requests to the running daemon over its Unix socket, with the rights of TCP; close it at the end.

    Each request has its own connection, as daemons start and end. The token is not forwarded; the ``Forwarded`` header
    (RFC 7239) removes the rights that the Unix socket would give.
    """

    def __init__(self, target: LabTarget) -> None:
        self._target = target
        self._session = aiohttp.ClientSession(
            connector=DaemonConnector(target, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S),
            auto_decompress=False,
        )

    async def close(self) -> None:
        """Close open connections."""
        await self._session.close()

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """Forward a request and the daemon's answer. Raises RequestError (503) if there is no daemon."""
        self._require_daemon()
        if is_upgrade(request):
            return await self._forward_websocket(request)
        headers = {name: request.headers[name] for name in _FORWARDED_HEADERS if name in request.headers}
        body = await read_bytes(request)
        try:
            async with self._session.request(
                request.method,
                _daemon_url(request),
                headers={**headers, **_forwarded_header(request)},
                data=body or None,
                allow_redirects=False,
            ) as answer:
                return await _forward_answer(request, answer)
        except aiohttp.ClientConnectionError:
            raise no_lab_error(self._target, 503) from None

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
            raise no_lab_error(self._target, 503)
        if not is_trusted(holder[1]):
            raise RequestError(503, str(foreign_daemon_error(self._target, holder)), exit_code=1)

    async def _forward_websocket(self, request: web.Request) -> web.StreamResponse:
        try:
            daemon = await self._session.ws_connect(
                _daemon_url(request), protocols=(SUBPROTOCOL,), headers=_forwarded_header(request), max_msg_size=0
            )
        except aiohttp.WSServerHandshakeError as error:
            msg = (
                f"{request.path}: the daemon refused a WebSocket ({error.status}); a request without WebSocket "
                "returns the reason"
            )
            # The daemon may answer such a path with success without a WebSocket; this request has failed.
            raise RequestError(max(error.status, 400), msg, exit_code=1) from None
        except aiohttp.ClientConnectionError:
            raise no_lab_error(self._target, 503) from None
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


async def _forward_answer(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """Forward the daemon's answer as it arrives; abort the connection if the answer ends too early."""
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    for name, text in answer.headers.items():
        if name.lower() not in _UNFORWARDED_HEADERS:
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


def _daemon_url(request: web.Request) -> URL:
    url = request.rel_url
    return URL.build(scheme="http", host="daemon", path=url.raw_path, query_string=url.raw_query_string, encoded=True)


def _forwarded_header(request: web.Request) -> dict[str, str]:
    """The header with the client's address, which the daemon names in events about the connection."""
    return {"Forwarded": f'for="{request.remote or "unknown"}"'}


class _WatchServer:
    """Serves the page and replays, and forwards other requests to the daemon."""

    def __init__(self, replays: Replays, upstream: Upstream, access: AccessControl) -> None:
        self._replays = replays
        self._upstream = upstream
        self._access = access

    def application(self) -> web.Application:
        """The application with all routes."""
        app = web.Application(middlewares=[errors_as_json, self._authorize])
        add_page(app)
        app.router.add_get("/v1/replays", self._list_replays)
        app.router.add_get("/v1/replays/{id}", self._with_retry(self._get_replay))
        app.router.add_get("/v1/replays/{id}/points", self._with_retry(self._get_points))
        # A daemon of an older version may not know that forwarded requests have the rights of TCP only.
        for method, path in (("POST", "/v1/lab"), ("*", "/v1/ports"), ("*", "/v1/shell")):
            app.router.add_route(method, path, _refuse)
        app.router.add_route("*", "/v1/{path:.*}", self._upstream.forward)
        return app

    @web.middleware
    async def _authorize(self, request: web.Request, handler: HttpHandler) -> web.StreamResponse:
        self._access.authorize(request, public=is_page(request))
        return await handler(request)

    async def _list_replays(self, request: web.Request) -> web.StreamResponse:
        await self._add_daemon_runs()
        return json_answer(await replays_answer(self._replays, request))

    async def _get_replay(self, request: web.Request) -> web.StreamResponse:
        return json_answer(await replay_answer(self._replays, request))

    async def _get_points(self, request: web.Request) -> web.StreamResponse:
        return await stream_points(self._replays, request)

    def _with_retry(self, handler: HttpHandler) -> HttpHandler:
        """Retry after 404 with the daemon's latest list of runs: the run may have started since."""

        async def serve(request: web.Request) -> web.StreamResponse:
            try:
                return await handler(request)
            except RequestError as error:
                if error.status != 404:
                    raise
            await self._add_daemon_runs()
            return await handler(request)

        return serve

    async def _add_daemon_runs(self) -> None:
        """Add the daemon's runs to the replays. They are read by this process and remain when the daemon has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LIST_RUNS_TIMEOUT_S):
                answer = await self._upstream.get("/v1/runs")
            for run in (answer or {}).get("runs", ()):
                if run["run_dir"] is not None:
                    self._replays.add(Path(run["run_dir"]))


async def _refuse(_: web.Request) -> web.StreamResponse:
    raise local_only_error()


@contextlib.asynccontextmanager
async def serving_page(target: LabTarget, address: ListenAddress, token: str, replays: Replays) -> AsyncGenerator[str]:
    """Serve the page of a lab while the block lasts; yields its URL without the token. Raises LabError."""
    access = AccessControl("`atoll watch` has printed an address that contains it", WATCH_REALM)
    access.set_token(token)
    access.host_names.add(address.host.lower())
    async with contextlib.AsyncExitStack() as cleanup:
        upstream = Upstream(target)
        cleanup.push_async_callback(upstream.close)
        runner = make_runner(_WatchServer(replays, upstream, access).application())
        await runner.setup()
        cleanup.push_async_callback(runner.cleanup)
        if runner.server is None:
            raise LabError("the page cannot be served")
        port = await ServedPort.open(address, runner.server)
        cleanup.callback(port.close)
        yield port.address.url + "/watch/"
