# SPDX-License-Identifier: Apache-2.0
"""The server of `atoll watch`: the live page, replays, and the API of the running daemon.

It outlives daemons. Without a daemon the page says so, and runs can still be replayed
(docs/decisions/0026-a-page-that-outlives-keepers.md).
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

from aiohttp import web

from atoll_core.errors import LabError
from atoll_core.platforms import LabTarget
from atoll_daemon.http.auth import WATCH_REALM, AccessControl, only_locally
from atoll_daemon.http.http_app import Serve, add_page, errors_as_json, is_page, runner_of
from atoll_daemon.http.http_errors import RequestError
from atoll_daemon.http.responses import json_answer
from atoll_daemon.http.tcp_listener import ListenAddress, ServedPort
from atoll_daemon.replays.proxy import Upstream
from atoll_daemon.replays.replay_handlers import replay_answer, replays_answer, stream_points
from atoll_daemon.replays.replay_index import Replays

_LIST_TIMEOUT_S = 2.0  # for the daemon to list its runs


class WatchServer:
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
    async def _authorize(self, request: web.Request, handler: Serve) -> web.StreamResponse:
        self._access.authorize(request, public=is_page(request))
        return await handler(request)

    async def _list_replays(self, request: web.Request) -> web.StreamResponse:
        await self._add_daemon_runs()
        return json_answer(await replays_answer(self._replays, request))

    async def _get_replay(self, request: web.Request) -> web.StreamResponse:
        return json_answer(await replay_answer(self._replays, request))

    async def _get_points(self, request: web.Request) -> web.StreamResponse:
        return await stream_points(self._replays, request)

    def _with_retry(self, handler: Serve) -> Serve:
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
            async with asyncio.timeout(_LIST_TIMEOUT_S):
                answer = await self._upstream.get("/v1/runs")
            for run in (answer or {}).get("runs", ()):
                if run["run_dir"] is not None:
                    self._replays.add(Path(run["run_dir"]))


async def _refuse(_: web.Request) -> web.StreamResponse:
    raise only_locally()


@contextlib.asynccontextmanager
async def serving_page(target: LabTarget, address: ListenAddress, token: str, replays: Replays) -> AsyncGenerator[str]:
    """Serve the page of a lab while the block lasts; yields its URL without the token. Raises LabError."""
    access = AccessControl("`atoll watch` has printed an address that contains it", WATCH_REALM)
    access.set_token(token)
    access.names.add(address.host.lower())
    async with contextlib.AsyncExitStack() as ending:
        upstream = Upstream(target)
        ending.push_async_callback(upstream.close)
        runner = runner_of(WatchServer(replays, upstream, access).application())
        await runner.setup()
        ending.push_async_callback(runner.cleanup)
        if runner.server is None:
            raise LabError("the page cannot be served")
        port = await ServedPort.open(address, runner.server)
        ending.callback(port.close)
        yield port.address.url + "/watch/"
