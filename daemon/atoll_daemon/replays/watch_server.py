# SPDX-License-Identifier: Apache-2.0
"""What `atoll watch` serves: the live page, runs to be watched again, and the API of whichever daemon there is.

It outlives daemons: while there is none, the page says so, and runs can still be replayed
(docs/decisions/0026-a-page-that-outlives-daemons.md).
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

from aiohttp import web

from atoll_core.errors import LabError
from atoll_daemon.http.auth import WATCH_REALM, AccessControl, only_locally
from atoll_daemon.http.http_app import Serve, errors_as_json, runner_of
from atoll_daemon.http.http_errors import RequestError
from atoll_daemon.http.responses import json_answer
from atoll_daemon.http.static_files import add_page, is_page
from atoll_daemon.http.tcp_listener import ListenAddress, ServedPort
from atoll_daemon.replays.proxy import Upstream
from atoll_daemon.replays.replay_handlers import list_replays, tell_points, tell_replay
from atoll_daemon.replays.replay_index import Replays

_LEARN_S = 2.0  # for the daemon to say where it has put its runs


class WatchServer:
    """The page, our replays, and the way to the daemon."""

    def __init__(self, replays: Replays, upstream: Upstream, access: AccessControl) -> None:
        self._replays = replays
        self._upstream = upstream
        self._access = access

    def application(self) -> web.Application:
        """What is served."""
        app = web.Application(middlewares=[errors_as_json, self._admit])
        add_page(app)
        app.router.add_get("/v1/replays", self._list_replays)
        app.router.add_get("/v1/replays/{id}", self._finding(self._tell_replay))
        app.router.add_get("/v1/replays/{id}/points", self._finding(self._tell_points))
        # A daemon that an older version has started may not know that what is passed on has the rights of TCP only.
        for method, path in (("POST", "/v1/lab"), ("*", "/v1/ports"), ("*", "/v1/shell")):
            app.router.add_route(method, path, _refuse)
        app.router.add_route("*", "/v1/{path:.*}", self._upstream.pass_on)
        return app

    @web.middleware
    async def _admit(self, request: web.Request, handler: Serve) -> web.StreamResponse:
        self._access.admit(request, public=is_page(request))
        return await handler(request)

    async def _list_replays(self, request: web.Request) -> web.StreamResponse:
        await self._learn()
        return json_answer(await list_replays(self._replays, request))

    async def _tell_replay(self, request: web.Request) -> web.StreamResponse:
        return json_answer(await tell_replay(self._replays, request))

    async def _tell_points(self, request: web.Request) -> web.StreamResponse:
        return await tell_points(self._replays, request)

    def _finding(self, tell: Serve) -> Serve:
        """A run that is not among ours may be one that the daemon has begun since it was asked."""

        async def serve(request: web.Request) -> web.StreamResponse:
            try:
                return await tell(request)
            except RequestError as error:
                if error.status != 404:
                    raise
            await self._learn()
            return await tell(request)

        return serve

    async def _learn(self) -> None:
        """Ask where the daemon has put its runs. They are read here: that costs it nothing, and they outlive it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEARN_S):
                told = await self._upstream.get("/v1/runs")
            for run in (told or {}).get("runs", ()):
                if run["run_dir"] is not None:
                    self._replays.add(Path(run["run_dir"]))


async def _refuse(_: web.Request) -> web.StreamResponse:
    raise only_locally()


@contextlib.asynccontextmanager
async def serving_page(address: ListenAddress, token: str, replays: Replays) -> AsyncGenerator[str]:
    """While the block lasts the page is served there; gives its URL, without the token. Raises LabError."""
    access = AccessControl("it stands in the address that `atoll watch` has printed", WATCH_REALM)
    access.set_token(token)
    access.names.add(address.host.lower())
    async with contextlib.AsyncExitStack() as ending:
        upstream = Upstream()
        ending.push_async_callback(upstream.close)
        runner = runner_of(WatchServer(replays, upstream, access).application())
        await runner.setup()
        ending.push_async_callback(runner.cleanup)
        if runner.server is None:
            raise LabError("the page cannot be served")
        port = await ServedPort.open(address, runner.server)
        ending.callback(port.close)
        yield port.address.url + "/watch/"
