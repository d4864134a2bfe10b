# SPDX-License-Identifier: Apache-2.0
"""Connections to the daemon over its Unix socket, whose peer is checked before anything is sent.

Any user may bind the daemon's name once the daemon has ended, so each connection is checked, not only the first: the
requests carry tokens, descriptions and commands.
"""

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp

from atoll_daemon.socket_lock import connect_to_daemon, socket_address

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler


class DaemonConnector(aiohttp.UnixConnector):
    """What a session to the daemon connects by. Requests raise LabError where another user holds its name."""

    def __init__(self, *, force_close: bool = False) -> None:
        super().__init__(socket_address(), limit=0, force_close=force_close)

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> "ResponseHandler":  # noqa: ASYNC109 - theirs
        """The one method that connectors of aiohttp differ in (3.9 to 3.14)."""
        del traces, timeout
        try:
            connection = await asyncio.to_thread(connect_to_daemon)
        except OSError as error:
            raise aiohttp.ClientConnectorError(req.connection_key, error) from error
        factory: Any = self._factory  # a partial, whose type aiohttp leaves open
        _, protocol = await self._loop.create_unix_connection(factory, sock=connection)
        return protocol
