# SPDX-License-Identifier: Apache-2.0
"""How work is answered: one JSON object at its end, or JSON lines as it goes on, whichever the request accepts.

Either way the work belongs to the connection: when that ends, it is cancelled and undone.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from atoll_core.errors import AtollError
from atoll_daemon.http.http_errors import RequestError, error_json, internal_error
from atoll_daemon.task_runner import Emit, Line

LINES = "application/x-ndjson"

Begin = Callable[[Emit], "asyncio.Task[Line]"]


def wants_lines(request: web.Request) -> bool:
    """Whether the request asks for lines (``Accept: application/x-ndjson``)."""
    return LINES in request.headers.get("Accept", "")


async def answer(request: web.Request, begin: Begin) -> web.StreamResponse:
    """Begin work and answer with what becomes of it. Raises what the work raises, unless in lines."""
    if wants_lines(request):
        return await _answer_lines(request, begin)
    task = begin(lambda _: None)
    try:
        await asyncio.wait([task])
    finally:
        await cancelled(task)
    return json_answer(result_of(task))


def result_of(task: "asyncio.Task[Line]") -> Line:
    """What work that is over has come to. Raises its error."""
    if task.cancelled():
        raise RequestError(503, "cancelled", exit_code=1)
    return task.result()


async def cancelled(task: "asyncio.Task[Line]") -> None:
    """Cancel work; returns when it has undone what it has to."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])


def json_answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """An answer of one object; nobody is to keep it, nor to take it for anything else."""
    return web.json_response(body, status=status, headers={**_HEADERS, **(headers or {})}, dumps=_dumps)


def error_answer(error: AtollError) -> web.Response:
    """The answer that tells an error."""
    told = error_json(error)
    headers = error.headers if isinstance(error, RequestError) else {}
    return json_answer({"error": told}, told["status"], headers)


def lines_response() -> web.StreamResponse:
    """An answer of JSON lines, yet to be prepared."""
    return web.StreamResponse(headers={**_HEADERS, "Content-Type": LINES})


def line_bytes(line: Line) -> bytes:
    """A line as it is sent."""
    return _dumps(line).encode() + b"\n"


async def _answer_lines(request: web.Request, begin: Begin) -> web.StreamResponse:
    lines: asyncio.Queue[Line | None] = asyncio.Queue()
    task = begin(lines.put_nowait)
    task.add_done_callback(lambda _: lines.put_nowait(None))
    response = lines_response()
    try:
        await response.prepare(request)
        while (line := await lines.get()) is not None:
            await response.write(line_bytes(line))
        await response.write(line_bytes(_last(task)))
    except ConnectionError:
        pass  # whoever asked is gone
    finally:
        await cancelled(task)
    return response


def _last(task: "asyncio.Task[Line]") -> Line:
    try:
        return {"type": "done", **result_of(task)}
    except AtollError as error:
        return {"type": "error", **error_json(error)}
    except Exception as error:  # noqa: BLE001 - a fault of ours must not leave the verb waiting
        return {"type": "error", **error_json(internal_error(error))}


def _dumps(thing: Any) -> str:
    return json.dumps(thing, separators=(",", ":"))


_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
