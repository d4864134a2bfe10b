# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of the daemon and of `atoll watch`: limits of connections, errors as JSON objects, the page."""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import Path

from aiohttp import web

from atoll_core.errors import AtollError, shown
from atoll_daemon.http.http_errors import RequestError, internal_error
from atoll_daemon.http.responses import error_answer

_SHUTDOWN_TIMEOUT_S = 2.0
_KEEP_ALIVE_TIMEOUT_S = 30.0
_LINGERING_TIME_S = 2.0  # how long the rest of a refused body is read, so that the client can read the answer

# aiohttp logs each malformed request with a traceback, so clients could fill the disk. Internal errors are logged here.
_SILENT_LOGGER = logging.getLogger("atoll_daemon.http")
_SILENT_LOGGER.setLevel(logging.CRITICAL)

HttpHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_runner(application: web.Application) -> web.AppRunner:
    """The runner of an application; a request is cancelled when its connection ends."""
    return web.AppRunner(
        application,
        handler_cancellation=True,
        shutdown_timeout=_SHUTDOWN_TIMEOUT_S,
        keepalive_timeout=_KEEP_ALIVE_TIMEOUT_S,
        lingering_time=_LINGERING_TIME_S,
        access_log=None,
        logger=_SILENT_LOGGER,
    )


@web.middleware
async def errors_as_json(request: web.Request, handler: HttpHandler) -> web.StreamResponse:
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


PAGE_PATH = "/watch/"

_INDEX = "index.html"
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
"""Media types by file name extensions; other files are not served."""

_PAGE_HEADERS = {
    "Cache-Control": "no-cache",  # a daemon of a newer version has another page at the same address
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def add_page(application: web.Application) -> None:
    """Serve the live page's files at /watch/, to which ``/`` and ``/watch`` are redirected, without a token.

    They contain no data of a lab: the page gets all data from the API, which needs the token. Only files in the package
    can be requested, so no path leads out of it.
    """
    application.router.add_get("/", _redirect_to_page)
    application.router.add_get(PAGE_PATH.rstrip("/"), _redirect_to_page)
    application.router.add_get(PAGE_PATH + "{name:.*}", _serve_file)


def is_page(request: web.Request) -> bool:
    """Whether a request is for the page or its files."""
    return request.match_info.handler in (_serve_file, _redirect_to_page)


async def _redirect_to_page(_: web.Request) -> web.StreamResponse:
    return web.Response(status=307, headers={**_PAGE_HEADERS, "Location": PAGE_PATH})


async def _serve_file(request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"] or _INDEX
    path = _page_files(Path(str(files("atoll_dashboards") / "live_page"))).get(name)
    if path is None:
        raise RequestError(404, f"the page has no file {shown(name)}", exit_code=1)
    return web.Response(body=path.read_bytes(), headers={**_PAGE_HEADERS, "Content-Type": _MEDIA_TYPES[path.suffix]})


@functools.cache
def _page_files(folder: Path) -> dict[str, Path]:
    """The page's files by their names below /watch/."""
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.suffix in _MEDIA_TYPES}
