# SPDX-License-Identifier: Apache-2.0
"""Answers about runs that can be watched again: the keeper gives them, and `atoll watch` without one."""

import asyncio
import contextlib
import time
from typing import Any

from aiohttp import web

from atoll.keeper.answering import line_bytes, lines_response
from atoll.keeper.answers import Nothing
from atoll.keeper.bodies import parameters
from atoll.keeper.problems import RequestError
from atoll.keeper.replays import Replay, Replays
from atoll.keeper.unspooled import UnspooledTail
from atoll.keeper.watched import Replaying
from atoll.model.errors import RunDirError
from atoll.rundir.spool import SpoolTail

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
