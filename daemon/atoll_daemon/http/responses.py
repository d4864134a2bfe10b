# SPDX-License-Identifier: Apache-2.0
"""Answers: a JSON object at the end of a task, or JSON lines while it runs, as the request accepts.

In both cases the task belongs to the connection: when the connection ends, the task is cancelled and cleans up.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from atoll_core.errors import AtollError
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import STREAMED
from atoll_daemon.http.http_errors import RequestError, error_json, internal_error
from atoll_daemon.task_runner import JsonObject

LINES = "application/x-ndjson"

Begin = Callable[[], "asyncio.Task[JsonObject]"]


def wants_lines(request: web.Request) -> bool:
    """Whether the request asks for lines (``Accept: application/x-ndjson``)."""
    return LINES in request.headers.get("Accept", "")


async def answer(request: web.Request, events: EventBus, begin: Begin) -> web.StreamResponse:
    """Start a task and answer with its result. Raises the task's error, unless the answer is in lines.

    ``events``: those of the lab while the task lasts, which works on it alone, become lines.
    """
    if wants_lines(request):
        return await _answer_lines(request, events, begin)
    task = begin()
    try:
        await asyncio.wait([task])
    finally:
        await cancel_task(task)
    return json_answer(result_of(task))


def result_of(task: "asyncio.Task[JsonObject]") -> JsonObject:
    """The result of a task that has ended. Raises its error."""
    if task.cancelled():
        raise RequestError(503, "cancelled", exit_code=1)
    return task.result()


async def cancel_task(task: "asyncio.Task[JsonObject]") -> None:
    """Cancel a task; returns when it has cleaned up."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])


def json_answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """An answer of one JSON object, with headers that forbid caching and type sniffing."""
    return web.json_response(body, status=status, headers={**_COMMON_HEADERS, **(headers or {})}, dumps=line_text)


def error_answer(error: AtollError) -> web.Response:
    """The answer to a request that failed."""
    body = error_json(error)
    headers = error.headers if isinstance(error, RequestError) else {}
    return json_answer({"error": body}, body["status"], headers)


def lines_response() -> web.StreamResponse:
    """An answer of JSON lines, not prepared yet."""
    return web.StreamResponse(headers={**_COMMON_HEADERS, "Content-Type": LINES})


def line_bytes(line: JsonObject) -> bytes:
    """A line of an answer."""
    return line_text(line).encode() + b"\n"


async def _answer_lines(request: web.Request, events: EventBus, begin: Begin) -> web.StreamResponse:
    lines: asyncio.Queue[JsonObject | None] = asyncio.Queue()
    task = begin()  # its work begins when this function waits
    subscription = events.subscribe(lambda event: lines.put_nowait(event.to_line()), *STREAMED)

    def end(_: "asyncio.Task[JsonObject]") -> None:
        subscription.close()
        lines.put_nowait(None)

    task.add_done_callback(end)
    response = lines_response()
    try:
        await response.prepare(request)
        while (line := await lines.get()) is not None:
            await response.write(line_bytes(line))
        await response.write(line_bytes(_last_line(task)))
    except ConnectionError:
        pass  # the client has disconnected
    finally:
        await cancel_task(task)
    return response


def _last_line(task: "asyncio.Task[JsonObject]") -> JsonObject:
    try:
        return {"type": "done", **result_of(task)}
    except AtollError as error:
        return {"type": "error", **error_json(error)}
    except Exception as error:  # noqa: BLE001 - an internal error must not leave the client waiting
        return {"type": "error", **error_json(internal_error(error))}


def line_text(line: Any) -> str:
    """A JSON object on one line."""
    return json.dumps(line, separators=(",", ":"))


_COMMON_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
