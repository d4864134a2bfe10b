# SPDX-License-Identifier: Apache-2.0
"""Who listens at an address that is taken already: one of ours says so in its challenge (atoll_daemon.http.auth)."""

import re

import aiohttp

from atoll_daemon.http.auth import KEEPER_REALM, WATCH_REALM
from atoll_daemon.http.static_files import PAGE

_PATIENCE_S = 1.0  # ours answers within milliseconds; whoever else is there need not answer at all
_REALM = re.compile(r'Bearer realm="([^"]*)"')
_OURS = {KEEPER_REALM: "the daemon of a lab", WATCH_REALM: "another `atoll watch`"}


async def find_ours(url: str) -> str | None:
    """What to say of one of ours that listens there, and what to do; None if it is none. ``url``: how to ask it."""
    timeout = aiohttp.ClientTimeout(total=_PATIENCE_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{url}/v1/status", allow_redirects=False) as answer,
        ):
            realm = _REALM.match(answer.headers.get("WWW-Authenticate", ""))
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):  # ValueError: what it sends is no HTTP
        realm = None
    ours = _OURS.get(realm[1]) if realm else None
    remedy = f"{url}{PAGE}; open that, or choose another port with --listen, 0 for any that is free"
    return ours and f"{ours} serves the page there: {remedy}"
