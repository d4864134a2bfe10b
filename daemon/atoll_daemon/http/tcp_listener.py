# SPDX-License-Identifier: Apache-2.0
"""The daemon's Unix socket and TCP ports, with limits for unauthenticated connections.

The Unix socket's credentials identify the user: connections of untrusted users are closed as soon as they are accepted.
On both kinds of sockets the number of connections is limited, and a connection without a request within seconds is
closed.
"""

import asyncio
import errno
import ipaddress
import os
import re
import socket
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from atoll_core.errors import LabError, UsageError, shown
from atoll_daemon.http.auth import DAEMON_REALM, WATCH_REALM
from atoll_daemon.http.http_app import PAGE_PATH
from atoll_daemon.socket_lock import LISTEN_BACKLOG, is_trusted, peer_credentials

FIRST_REQUEST_TIMEOUT_S = 10.0
MOST_CONNECTIONS = 128
MOST_LOCAL_CONNECTIONS = 512

_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:\[\]/\s]+):)?(?P<port>[0-9]{1,5})")
_LOOPBACK = "127.0.0.1"

_IDENTIFY_TIMEOUT_S = 1.0  # ours answers within milliseconds; another server may not answer at all
_REALM = re.compile(r'Bearer realm="([^"]*)"')
_SERVER_BY_REALM = {DAEMON_REALM: "the daemon of a lab", WATCH_REALM: "another `atoll watch`"}


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An address to listen on; port 0: any free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "ListenAddress":
        """Parse ``PORT``, ``HOST:PORT`` or ``[V6]:PORT``; without a host, loopback. Raises UsageError."""
        parts = _ADDRESS.fullmatch(text)
        if parts is None or int(parts["port"]) > 65535:
            msg = f"--listen {shown(text)}: write PORT or HOST:PORT, such as 8080, 0.0.0.0:8080 or [::1]:8080"
            raise UsageError(msg)
        return cls((parts["host"] or _LOOPBACK).strip("[]"), int(parts["port"]))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def url(self) -> str:
        """The URL for clients on this machine."""
        wildcards = {"0.0.0.0": _LOOPBACK, "::": "::1"}  # noqa: S104 - not bound here
        host = wildcards.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def bind(address: ListenAddress) -> socket.socket:
    """Bind a socket. Raises LabError."""
    try:
        resolved = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        msg = f"--listen {address}: {shown(address.host)} is not an address of this machine ({error.strerror})"
        raise LabError(msg) from None
    family, kind, protocol, _, socket_address = resolved[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(socket_address)
    except OSError as error:
        listener.close()
        raise LabError(f"--listen {address}: {_bind_failure(error)}") from error
    return listener


def _bind_failure(error: OSError) -> str:
    match error:
        case OSError(errno=errno.EADDRINUSE):
            return "the port is in use by another program; choose another one with --listen (0: any free port)"
        case OSError(errno=errno.EADDRNOTAVAIL):
            return "no interface of this machine has that address"
        case OSError(errno=errno.EACCES):
            return "ports below 1024 need root; choose a higher one"
        case _:
            return os.strerror(error.errno or 0)


class ServedPort:
    """A TCP port that is served."""

    def __init__(self, address: ListenAddress, server: asyncio.Server) -> None:
        self.address = address
        self._server = server

    @classmethod
    async def open(cls, address: ListenAddress, requests: web.Server) -> "ServedPort":
        """Listen on an address and pass requests to ``requests``. Raises LabError."""
        try:
            listener = bind(address)
        except LabError as error:
            in_use = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
            server_text = await _identify_server(address.url) if in_use else None
            raise (LabError(f"--listen {address}: {server_text}") if server_text else error) from None
        loop = asyncio.get_running_loop()
        connections: set[asyncio.Protocol] = set()
        server = await loop.create_server(
            lambda: _Connection(requests, connections, MOST_CONNECTIONS), sock=listener, backlog=32
        )
        return cls(ListenAddress(address.host, listener.getsockname()[1]), server)

    def close(self) -> None:
        """Accept no more connections."""
        self._server.close()


async def serve_locally(listener: socket.socket, requests: web.Server) -> asyncio.Server:
    """Serve the daemon's Unix socket, for this user and root."""
    connections: set[asyncio.Protocol] = set()
    return await asyncio.get_running_loop().create_unix_server(
        lambda: _Connection(requests, connections, MOST_LOCAL_CONNECTIONS), sock=listener, backlog=LISTEN_BACKLOG
    )


class _Connection(asyncio.Protocol):
    """Passes a connection to aiohttp within limits; ``siblings``: the open connections of the same port.

    aiohttp itself waits without a limit for the headers of a connection's first request.
    """

    _handler: web.RequestHandler

    def __init__(self, requests: web.Server, siblings: set[asyncio.Protocol], most_connections: int) -> None:
        self._requests = requests
        self._siblings = siblings
        self._most_connections = most_connections
        self._deadline: asyncio.TimerHandle | None = None
        self._last_bytes = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connection = transport.get_extra_info("socket")
        foreign = connection.family == socket.AF_UNIX and not is_trusted(peer_credentials(connection)[1])
        if (foreign or len(self._siblings) >= self._most_connections) and isinstance(transport, asyncio.Transport):
            transport.set_protocol(asyncio.Protocol())  # this one has no handler
            transport.abort()
            return
        self._handler = self._requests()
        self._handler.connection_made(transport)
        self._siblings.add(self)
        self._deadline = asyncio.get_running_loop().call_later(FIRST_REQUEST_TIMEOUT_S, transport.close)

    def data_received(self, data: bytes) -> None:
        if self._deadline is not None:
            if b"\r\n\r\n" in self._last_bytes + data:
                self._cancel_deadline()
            self._last_bytes = (self._last_bytes + data)[-3:]
        self._handler.data_received(data)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def eof_received(self) -> bool | None:
        return self._handler.eof_received()

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._siblings.discard(self)
        self._handler.connection_lost(exc)


async def _identify_server(url: str) -> str | None:
    """Identify a daemon or `atoll watch` that uses the port by the realm of its challenge, with the remedy.

    None if the server at ``url`` is neither.
    """
    timeout = aiohttp.ClientTimeout(total=_IDENTIFY_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{url}/v1/status", allow_redirects=False) as answer,
        ):
            realm = _REALM.match(answer.headers.get("WWW-Authenticate", ""))
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError):  # ValueError: the answer is not HTTP
        realm = None
    server = _SERVER_BY_REALM.get(realm[1]) if realm else None
    remedy = f"open {url}{PAGE_PATH}, or choose another port with --listen (0: any free port)"
    return server and f"{server} uses this port and serves the page; {remedy}"
