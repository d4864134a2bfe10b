# SPDX-License-Identifier: Apache-2.0
"""Serve the live page's files (dashboards/atoll_dashboards/live_page) at /watch/ without a token.

They contain no data of a lab: the page gets all data from the API, which needs the token. Only files in the package can
be requested, so no path leads out of it.
"""

import functools
from importlib.resources import files
from pathlib import Path

from aiohttp import web

from atoll_core.errors import shown
from atoll_daemon.http.http_errors import RequestError

PAGE = "/watch/"

_INDEX = "index.html"
_TYPES = {
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

_HEADERS = {
    "Cache-Control": "no-cache",  # a daemon of a newer version has another page at the same address
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def add_page(application: web.Application) -> None:
    """Add the page's routes; ``/`` and ``/watch`` are redirected to ``/watch/``."""
    application.router.add_get("/", _to_page)
    application.router.add_get(PAGE.rstrip("/"), _to_page)
    application.router.add_get(PAGE + "{name:.*}", _serve_file)


def is_page(request: web.Request) -> bool:
    """Whether a request is for the page or its files."""
    return request.match_info.handler in (_serve_file, _to_page)


async def _to_page(_: web.Request) -> web.StreamResponse:
    return web.Response(status=307, headers={**_HEADERS, "Location": PAGE})


async def _serve_file(request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"] or _INDEX
    path = _page_files(Path(str(files("atoll_dashboards") / "live_page"))).get(name)
    if path is None:
        raise RequestError(404, f"the page has no file {shown(name)}", exit_code=1)
    return web.Response(body=path.read_bytes(), headers={**_HEADERS, "Content-Type": _TYPES[path.suffix]})


@functools.cache
def _page_files(folder: Path) -> dict[str, Path]:
    """The page's files by their names below /watch/."""
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.suffix in _TYPES}
