# SPDX-License-Identifier: Apache-2.0
"""What one request is: who answers it, what may be asked, what comes back."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from atoll_daemon.http import api_models
from atoll_daemon.lab_daemon import LabDaemon

Handler = Callable[[LabDaemon, web.Request], Awaitable[dict[str, Any] | web.StreamResponse]]

DESCRIPTION = "description"
"""A body that describes an experiment, or what is to change of the one that stands."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One request. ``body``: DESCRIPTION, or the class of an object; ``lines``: it may also be answered in lines.

    ``errors``: statuses it may end with besides those that any request may (400, 401, 403, 404, 405, 500).
    """

    method: str
    path: str
    handler: Handler
    topic: str
    summary: str
    answer: type[Any]
    query: type[api_models.Request] = api_models.Nothing
    body: str | type[api_models.Request] | None = None
    lines: bool = False
    success: int = 200
    errors: tuple[int, ...] = (409,)
    note: str = ""
