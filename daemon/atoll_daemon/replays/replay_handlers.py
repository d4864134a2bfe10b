# SPDX-License-Identifier: Apache-2.0
"""Handlers of requests for replays, used by the daemon and by `atoll watch`."""

import asyncio
import contextlib
import time
from typing import Any

from aiohttp import web

from atoll_analysis.run_directory.metrics_spool import SpoolTail
from atoll_core.errors import RunDirError
from atoll_daemon.http.api_models import ReplayPointsRequest, Request
from atoll_daemon.http.http_errors import RequestError
from atoll_daemon.http.request_parsing import parameters
from atoll_daemon.http.responses import line_bytes, lines_response
from atoll_daemon.replays.replay_index import RawLogTail, Replay, Replays

_POLL_S = 0.5  # interval to read a spool that grows by a frame a second


async def replays_answer(replays: Replays, request: web.Request) -> dict[str, Any]:
    """All runs that can be replayed."""
    parameters(request, Request)
    return {"replays": await asyncio.to_thread(replays.summaries)}


async def replay_answer(replays: Replays, request: web.Request) -> dict[str, Any]:
    """A run without its points. Raises RequestError."""
    parameters(request, Request)
    replay = await asyncio.to_thread(replays.find, request.match_info["id"])
    try:
        return await asyncio.to_thread(replay.details)
    except RunDirError as error:
        raise RequestError(422, str(error), exit_code=1) from None


async def stream_points(replays: Replays, request: web.Request) -> web.StreamResponse:
    """Stream the points of a run as JSON lines of a second each; with ``follow``, until a run in progress has ended.

    A damaged or truncated spool ends the answer early.
    """
    query = parameters(request, ReplayPointsRequest)
    replay = await asyncio.to_thread(replays.find, request.match_info["id"])
    response = lines_response()
    with contextlib.suppress(ConnectionError, RunDirError):
        await response.prepare(request)
        await _stream_points(replay, query, response)
    return response


async def _stream_points(replay: Replay, query: ReplayPointsRequest, response: web.StreamResponse) -> None:
    tail: SpoolTail | RawLogTail | None = None
    try:
        while True:
            is_growing = await asyncio.to_thread(replay.is_growing)  # before the last read, not after it
            tail = tail or await asyncio.to_thread(replay.tail)
            if tail is not None:
                await _stream_new(replay, tail, query, response, throttled=is_growing)
            if not (is_growing and query.follow):
                return
            await asyncio.sleep(_POLL_S)
    finally:
        if tail is not None:
            tail.close()


async def _stream_new(
    replay: Replay,
    tail: SpoolTail | RawLogTail,
    query: ReplayPointsRequest,
    response: web.StreamResponse,
    *,
    throttled: bool,
) -> None:
    """Stream the points not read yet. ``throttled``: use at most half a CPU, as the run may be on this machine."""
    frames = tail.frames()
    while (frame := await asyncio.to_thread(next, frames, None)) is not None:
        start_s = time.monotonic()
        message = await asyncio.to_thread(
            replay.points_sample, frame, query.from_ns, query.to_ns, query.measurement_names
        )
        if message is not None:
            await response.write(await asyncio.to_thread(line_bytes, message))
        if throttled:
            await asyncio.sleep(time.monotonic() - start_s)
