# SPDX-License-Identifier: Apache-2.0
"""Who may ask: on the Unix socket our own user and root, over TCP whoever has the token.

The kernel says who is at the other end of a Unix socket: others are turned away before they ask anything. It does not
say so of a TCP connection, not even of one from this machine: every local user may connect to loopback.
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
"""What a WebSocket of ours speaks. Browsers can send no Authorization with one: ``bearer.TOKEN`` beside it says it."""

_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,200}")  # RFC 6750 less what needs quoting, and too long to be guessed
_BEARER = "bearer."
KEEPER_REALM = "atoll"
WATCH_REALM = "atoll watch"
"""By these two who is asked says what it is, before it knows who asks (RFC 6750, section 3)."""


def find_token(state: Path) -> tuple[str, str]:
    """The token, and where it is from: of the environment, else of ``state/token``, which is made if it is not there.

    Raises UsageError for one that is too easily guessed, MachineError for a file that others may read.
    """
    named = os.environ.get(TOKEN_VARIABLE)
    if named is not None:
        return _usable(named, TOKEN_VARIABLE), TOKEN_VARIABLE
    path = state / "token"
    try:
        state.mkdir(parents=True, exist_ok=True)
        try:
            made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            return _usable(_read_private(path), str(path)), str(path)
        with os.fdopen(made, "w") as file:
            token = secrets.token_urlsafe(32)
            file.write(token + "\n")
    except OSError as error:
        raise MachineError(f"{path}: the token cannot be kept there: {error.strerror}") from None
    return token, str(path)


def _read_private(path: Path) -> str:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
        held = os.fstat(file.fileno())
        if not stat.S_ISREG(held.st_mode) or held.st_mode & 0o077 or held.st_uid not in (0, os.geteuid()):
            raise MachineError(f"{path}: others may read or write this token; remove it, a new one is then made")
        return file.read(1024).strip()


def _usable(token: str, where: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise UsageError(f"{where}: a token is 16 to 200 letters, digits, '.', '_', '~' and '-'")
    return token


class AccessControl:
    """Decides of each request, before anything of its body is read. ``names``: host names this machine is called by.

    ``remedy``: what helps who has no token; ``realm``: what asks for it.
    """

    def __init__(self, remedy: str = "`atoll status` says where it is", realm: str = KEEPER_REALM) -> None:
        self._remedy = remedy
        self._challenge = f'Bearer realm="{realm}"'
        self.names = {"localhost", socket.gethostname().lower()}
        self._token: bytes | None = None

    def set_token(self, token: str) -> None:
        """The token that requests over TCP have to have."""
        self._token = token.encode()

    def admit(self, request: web.Request, *, public: bool = False) -> None:
        """Raise RequestError (400, 401, 403) unless whoever asks may. ``public``: what needs no token."""
        connection: socket.socket | None = (
            request.transport.get_extra_info("socket") if request.transport is not None else None
        )
        if connection is None:
            raise RequestError(400, "the connection has ended")
        if connection.family == socket.AF_UNIX:
            return  # its user was checked when it was accepted (atoll_daemon.http.tcp_listener)
        self._admit_host(request.headers.get("Host", ""))
        _admit_origin(request)
        if not public:
            self._admit_token(request)

    def _admit_host(self, named: str) -> None:
        """Names that are not ours come from pages whose name was made to lead here (DNS rebinding)."""
        name = _host_of(named)
        if name.lower() not in self.names and not _is_address(name):
            raise RequestError(403, "this is no name of this machine; ask it by its address", where="Host")

    def _admit_token(self, request: web.Request) -> None:
        given = _token_of(request)
        if given is None:
            msg = f"a token is needed: send Authorization: Bearer TOKEN; {self._remedy}"
            raise RequestError(401, msg, where="Authorization", headers={"WWW-Authenticate": self._challenge})
        if self._token is None or not hmac.compare_digest(given, self._token):
            challenge = {"WWW-Authenticate": f'{self._challenge}, error="invalid_token"'}
            raise RequestError(401, "this is not the token of this lab", where="Authorization", headers=challenge)


def is_local(request: web.Request) -> bool:
    """Whether a request came by the Unix socket: from who could do by themselves what they ask for.

    One that `atoll watch` passes on says so (``Forwarded``, RFC 7239): it is of somebody on its TCP port.
    """
    if "Forwarded" in request.headers:
        return False
    connection = request.transport.get_extra_info("socket") if request.transport is not None else None
    return connection is not None and connection.family == socket.AF_UNIX


def only_locally() -> RequestError:
    """The answer over TCP to what is for the Unix socket alone."""
    return RequestError(403, "only by the Unix socket: use the verbs of `atoll` for it")


def _admit_origin(request: web.Request) -> None:
    """Pages of other origins may not even ask. None is ever allowed to by CORS headers."""
    origin = request.headers.get("Origin")
    if origin is not None and _authority(origin) != request.headers.get("Host", "").lower():
        raise RequestError(403, "pages of other origins may not ask this lab", where="Origin")


def _authority(origin: str) -> str | None:
    """The host and port of an origin; None for what is none: a stranger may send anything."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _token_of(request: web.Request) -> bytes | None:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return given.strip().encode(errors="surrogateescape")
    offered = request.headers.get("Sec-WebSocket-Protocol", "").split(",")
    words = [word.strip().removeprefix(_BEARER) for word in offered if word.strip().startswith(_BEARER)]
    return words[0].encode(errors="surrogateescape") if words else None


def _host_of(named: str) -> str:
    """The host of ``host:port``, ``[v6]:port`` or either without a port."""
    if named.startswith("["):
        return named[1:].partition("]")[0]
    return named.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
