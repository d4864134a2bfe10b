# SPDX-License-Identifier: Apache-2.0
"""The daemon's abstract Unix socket, which is also the lock of the emulated lab or of a lab of real machines.

The socket belongs to the network namespace, needs no file and disappears with the process, however that ends
(docs/decisions/0002-abstract-socket-keeper-lock.md). A lab of real machines is identified by the path of its inventory.
"""

import hashlib
import os
import pwd
import socket
import struct
from pathlib import Path

from atoll_core.errors import LabError
from atoll_core.platforms import LabTarget

DAEMON_MODULE = "atoll_daemon"
"""The daemon's module for ``python -m``."""

LISTEN_BACKLOG = 64
"""Connections that wait to be accepted. At most about four times as many are open before foreign ones are closed."""

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: unix(7), SO_PEERCRED
_CONNECT_TIMEVAL = struct.pack("ll", 5, 0)  # s, us


def socket_name(target: LabTarget) -> str:
    """The daemon's socket name for people, with @ for the zero byte of abstract names."""
    if target.inventory is None:
        return "@atoll-daemon"
    return f"@atoll-daemon-{hashlib.sha256(str(target.inventory.resolve()).encode()).hexdigest()[:16]}"


def socket_address(target: LabTarget) -> str:
    """The daemon's socket name for the kernel."""
    return "\0" + socket_name(target)[1:]


def bind_daemon_socket(target: LabTarget) -> socket.socket:
    """Bind the daemon's socket. Raises LabError if another process has bound the name."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(socket_address(target))
    except OSError:
        listener.close()
        holder = daemon_holder(target)
        raise LabError(f"{target} is in use" + (f" by {describe_holder(*holder)}" if holder else "")) from None
    listener.listen(LISTEN_BACKLOG)
    return listener


def daemon_holder(target: LabTarget) -> tuple[int, int] | None:
    """(pid, uid) of the process that has bound the daemon's name; None if there is none."""
    try:
        with _connection(target) as probe:
            return peer_credentials(probe)
    except OSError:
        return None


def connect_to_daemon(target: LabTarget) -> socket.socket:
    """Connect to the daemon and check that its process is this user's or root's, before anything is sent.

    Raises OSError if no process has bound the name, LabError if another user's process has.
    """
    connection = _connection(target)
    holder = peer_credentials(connection)
    if not is_trusted(holder[1]):
        connection.close()
        raise foreign_daemon_error(target, holder)
    return connection


def foreign_daemon_error(target: LabTarget, holder: tuple[int, int]) -> LabError:
    """The error for a process of another user that has bound the daemon's name."""
    remedy = "run the command as that user, or end that process (atoll sent nothing to it)"
    return LabError(f"{target} is in use by {describe_holder(*holder)}; {remedy}")


def root_owned_error(target: LabTarget, holder: tuple[int, int]) -> LabError | None:
    """The error for a user whose connections a daemon of root closes; None if the process is something else.

    The kernel vouches for the process and its user; its command line shows whether it is a daemon.
    """
    pid, uid = holder
    if uid != 0 or os.geteuid() == 0:
        return None
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    if DAEMON_MODULE.encode() not in arguments:
        return None
    return LabError(f"{target} is up and belongs to root (process {pid}); only root can use it")


def _connection(target: LabTarget) -> socket.socket:
    """Connect, waiting while the queue of connections is full; a non-blocking socket would be refused (EAGAIN)."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _CONNECT_TIMEVAL)
        connection.connect(socket_address(target))
    except BaseException:
        connection.close()
        raise
    return connection


def peer_credentials(connection: socket.socket) -> tuple[int, int]:
    """(pid, uid) of the process at the other end."""
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid


def describe_holder(pid: int, uid: int) -> str:
    """A process and its user, in words."""
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = f"uid {uid}"
    return f"{user}'s process {pid}"


def is_trusted(uid: int) -> bool:
    """Whether the process at the other end is trusted: it is this user's or root's."""
    return uid in (0, os.geteuid())
