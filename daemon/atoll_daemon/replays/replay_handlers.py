# SPDX-License-Identifier: Apache-2.0
"""Answers about runs that can be watched again: the daemon gives them, and `atoll watch` without one."""

import asyncio
import contextlib
import time
from typing import Any

from aiohttp import web

from atoll_analysis.run_directory.metrics_spool import SpoolTail
from atoll_core.errors import RunDirError
from atoll_daemon.http.api_models import Nothing
from atoll_daemon.http.http_errors import RequestError
from atoll_daemon.http.request_parsing import parameters
from atoll_daemon.http.responses import line_bytes, lines_response
from atoll_daemon.http.watch_models import Replaying
from atoll_daemon.replays.raw_log_reader import UnspooledTail
from atoll_daemon.replays.replay_index import Replay, Replays

_LOOK_S = 0.5  # between looks at a spool that grows by a frame a second


async def list_replays(replays: Replays, request: web.Request) -> dict[str, Any]:
    """The runs there are."""
    parameters(request, Nothing)
    return {"replays": await asyncio.to_thread(replays.listed)}


async def tell_replay(replays: Replays, request: web.Request) -> dict[str, Any]:
    """All of a run but its points. Raises RequestError."""
    parameters(request, Nothing)
    replay = await asyncio.to_thread(replays.find, request.match_info["id"])
    try:
        return await asyncio.to_thread(replay.whole)
    except RunDirError as error:
        raise RequestError(422, str(error), exit_code=1) from None


async def tell_points(replays: Replays, request: web.Request) -> web.StreamResponse:
    """The points of a run as JSON lines, a second each; of one that is being made, with ``follow``, until it is over.

    A damaged spool ends the answer early, as one that was cut by a kill does.
    """
    asked = parameters(request, Replaying)
    replay = await asyncio.to_thread(replays.find, request.match_info["id"])
    response = lines_response()
    with contextlib.suppress(ConnectionError, RunDirError):
        await response.prepare(request)
        await _tell_all(replay, asked, response)
    return response


async def _tell_all(replay: Replay, asked: Replaying, response: web.StreamResponse) -> None:
    tail: SpoolTail | UnspooledTail | None = None
    try:
        while True:
            grows = await asyncio.to_thread(replay.growing)  # before the last look, not after it
            tail = tail or await asyncio.to_thread(replay.tail)
            if tail is not None:
                await _tell_new(replay, tail, asked, response, beside_it=grows)
            if not (grows and asked.follow):
                return
            await asyncio.sleep(_LOOK_S)
    finally:
        if tail is not None:
            tail.close()


async def _tell_new(
    replay: Replay,
    tail: SpoolTail | UnspooledTail,
    asked: Replaying,
    response: web.StreamResponse,
    *,
    beside_it: bool,
) -> None:
    """``beside_it``: while the run is made, whose machine this may be: half of one processor at the most."""
    frames = tail.frames()
    while (frame := await asyncio.to_thread(next, frames, None)) is not None:
        began = time.monotonic()
        message = await asyncio.to_thread(replay.message, frame, asked.from_ns, asked.to_ns, asked.chosen)
        if message is not None:
            await response.write(await asyncio.to_thread(line_bytes, message))
        if beside_it:
            await asyncio.sleep(time.monotonic() - began)
