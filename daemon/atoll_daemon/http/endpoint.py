# SPDX-License-Identifier: Apache-2.0
"""One request of the API: method, path, handler, parameters, body and answer."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from atoll_daemon.http import api_models
from atoll_daemon.lab_daemon import LabDaemon

Handler = Callable[[LabDaemon, web.Request], Awaitable[dict[str, Any] | web.StreamResponse]]

DESCRIPTION = "description"
"""A body that is an experiment, or a change of the applied one."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One request. ``body``: DESCRIPTION, or the class of an object; ``lines``: JSON lines are possible as answer.

    ``errors``: possible statuses in addition to those of every request (400, 401, 403, 404, 405, 500).
    """

    method: str
    path: str
    handler: Handler
    topic: str
    summary: str
    answer: type[Any]
    query: type[api_models.Request] = api_models.NoParameters
    body: str | type[api_models.Request] | None = None
    lines: bool = False
    success: int = 200
    errors: tuple[int, ...] = (409,)
    note: str = ""
