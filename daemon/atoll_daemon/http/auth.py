# SPDX-License-Identifier: Apache-2.0
"""Access control: the Unix socket is for the daemon's user and root, TCP for requests with the token.

The kernel identifies the user at the other end of a Unix socket, so connections of others are closed before they send
a request. It does not identify the user of a TCP connection: every local user may connect to loopback.
docs/decisions/0020-listening-and-tokens.md.
"""

import hmac
import ipaddress
import os
import re
import secrets
import socket
import stat
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web

from atoll_core.errors import MachineError, UsageError
from atoll_core.secret_variables import TOKEN_VARIABLE
from atoll_daemon.http.http_errors import RequestError

SUBPROTOCOL = "atoll.v1"
"""The subprotocol of WebSockets. Browsers cannot send an Authorization header with one; they add ``bearer.TOKEN``."""

_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,200}")  # RFC 6750 without characters that need quoting; too long to be guessed
_BEARER = "bearer."
DAEMON_REALM = "atoll"
WATCH_REALM = "atoll watch"
"""The realms identify the server in its challenge, which needs no token (RFC 6750, section 3)."""


def find_token(state: Path) -> tuple[str, str]:
    """The token and its source: the environment, else the file ``state/token``, which is created if needed.

    Raises UsageError for a token that is too easy to guess, MachineError for a file that other users may read.
    """
    from_environment = os.environ.get(TOKEN_VARIABLE)
    if from_environment is not None:
        return _valid_token(from_environment, TOKEN_VARIABLE), TOKEN_VARIABLE
    path = state / "token"
    try:
        state.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            return _valid_token(_read_private(path), str(path)), str(path)
        with os.fdopen(descriptor, "w") as file:
            token = secrets.token_urlsafe(32)
            file.write(token + "\n")
    except OSError as error:
        raise MachineError(f"{path}: the token cannot be stored there: {error.strerror}") from None
    return token, str(path)


def _read_private(path: Path) -> str:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077 or status.st_uid not in (0, os.geteuid()):
            raise MachineError(
                f"{path}: other users may read or write this file; remove it, then a new token is created"
            )
        return file.read(1024).strip()


def _valid_token(token: str, source: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise UsageError(f"{source}: a token is 16 to 200 letters, digits, '.', '_', '~' and '-'")
    return token


class AccessControl:
    """Authorizes each request before its body is read. ``host_names``: those of this machine.

    ``remedy``: how to get the token, for the error; ``realm``: of the challenge.
    """

    def __init__(self, remedy: str = "`atoll status` says where it is", realm: str = DAEMON_REALM) -> None:
        self._remedy = remedy
        self._challenge = f'Bearer realm="{realm}"'
        self.host_names = {"localhost", socket.gethostname().lower()}
        self._token: bytes | None = None

    def set_token(self, token: str) -> None:
        """Set the token that requests over TCP need."""
        self._token = token.encode()

    def authorize(self, request: web.Request, *, public: bool = False) -> None:
        """Raise RequestError (400, 401, 403) unless the request is allowed. ``public``: it needs no token."""
        connection = _connection(request)
        if connection is None:
            raise RequestError(400, "the connection has ended")
        if connection.family == socket.AF_UNIX:
            return  # its user was checked when it was accepted (atoll_daemon.http.tcp_listener)
        self._check_host(request.headers.get("Host", ""))
        _check_origin(request)
        if not public:
            self._check_token(request)

    def _check_host(self, host_header: str) -> None:
        """Refuse names of other hosts, which point here by DNS rebinding."""
        name = _host_of(host_header)
        if name.lower() not in self.host_names and not _is_address(name):
            raise RequestError(403, "not a name of this machine; use its address", where="Host")

    def _check_token(self, request: web.Request) -> None:
        token = _token_of(request)
        if token is None:
            msg = f"token missing: send Authorization: Bearer TOKEN; {self._remedy}"
            raise RequestError(401, msg, where="Authorization", headers={"WWW-Authenticate": self._challenge})
        if self._token is None or not hmac.compare_digest(token, self._token):
            challenge = {"WWW-Authenticate": f'{self._challenge}, error="invalid_token"'}
            raise RequestError(401, "wrong token for this lab", where="Authorization", headers=challenge)


def is_local(request: web.Request) -> bool:
    """Whether a request came over the Unix socket, so from a user with the rights of the daemon.

    A request that `atoll watch` forwards from its TCP port has a ``Forwarded`` header (RFC 7239) and is not local.
    """
    connection = _connection(request)
    return "Forwarded" not in request.headers and connection is not None and connection.family == socket.AF_UNIX


def _connection(request: web.Request) -> socket.socket | None:
    return request.transport.get_extra_info("socket") if request.transport is not None else None


def local_only_error() -> RequestError:
    """The error for a request over TCP that is allowed on the Unix socket only."""
    return RequestError(403, "not available over TCP; use the `atoll` command on the lab's machine")


def _check_origin(request: web.Request) -> None:
    """Refuse requests of pages of other origins. No CORS header ever allows one."""
    origin = request.headers.get("Origin")
    if origin is not None and _authority(origin) != request.headers.get("Host", "").lower():
        raise RequestError(403, "pages of other origins may not access this lab", where="Origin")


def _authority(origin: str) -> str | None:
    """The host and port of an origin; None if the header is invalid."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _token_of(request: web.Request) -> bytes | None:
    scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip().encode(errors="surrogateescape")
    protocols = request.headers.get("Sec-WebSocket-Protocol", "").split(",")
    tokens = [protocol.strip().removeprefix(_BEARER) for protocol in protocols if protocol.strip().startswith(_BEARER)]
    return tokens[0].encode(errors="surrogateescape") if tokens else None


def _host_of(host_header: str) -> str:
    """The host of ``host:port``, ``[v6]:port`` or either without a port."""
    if host_header.startswith("["):
        return host_header[1:].partition("]")[0]
    return host_header.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
