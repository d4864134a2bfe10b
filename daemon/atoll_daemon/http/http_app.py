# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of the daemon and of `atoll watch`: limits of connections, and errors as JSON objects."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from atoll_core.errors import AtollError
from atoll_daemon.http.http_errors import RequestError, internal_error
from atoll_daemon.http.responses import error_answer

_SHUTDOWN_S = 2.0
_KEEP_ALIVE_S = 30.0
_LINGERING_S = 2.0  # how long the rest of a refused body is read, so that the client can read the answer

# aiohttp logs each malformed request with a traceback, so clients could fill the disk. Internal errors are logged here.
_SILENT = logging.getLogger("atoll_daemon.http")
_SILENT.setLevel(logging.CRITICAL)

Serve = Callable[[web.Request], Awaitable[web.StreamResponse]]


def runner_of(application: web.Application) -> web.AppRunner:
    """The runner of an application; a request is cancelled when its connection ends."""
    return web.AppRunner(
        application,
        handler_cancellation=True,
        shutdown_timeout=_SHUTDOWN_S,
        keepalive_timeout=_KEEP_ALIVE_S,
        lingering_time=_LINGERING_S,
        access_log=None,
        logger=_SILENT,
    )


@web.middleware
async def errors_as_json(request: web.Request, handler: Serve) -> web.StreamResponse:
    """Answer every error with the object of docs/api.md."""
    try:
        return await handler(request)
    except AtollError as error:
        return error_answer(error)
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        msg = f"{request.method} {request.path}: method not allowed; use {allowed}"
        return error_answer(RequestError(405, msg, headers={"Allow": allowed}))
    except web.HTTPException as error:
        remedy = "; GET /v1/openapi.json lists all paths" if error.status == 404 else ""
        return error_answer(RequestError(error.status, f"{request.method} {request.path}: {error.reason}{remedy}"))
    except (ConnectionError, asyncio.CancelledError):
        raise
    except Exception as error:  # noqa: BLE001 - any other error is internal
        return error_answer(internal_error(error))
