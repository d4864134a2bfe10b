# SPDX-License-Identifier: Apache-2.0
"""Where the daemon is found: an abstract Unix socket, which is a lock as well: of the machine, or of a rack.

It belongs to the network namespace, needs no file and vanishes with the process, however that ends
(see docs/decisions/0002-abstract-socket-daemon-lock.md). A rack is named by its inventory's file, in the environment:
so is the daemon that is meant, by every verb and by the daemon itself.
"""

import hashlib
import os
import pwd
import socket
import struct
from pathlib import Path

from atoll_core.errors import LabError

INVENTORY_VARIABLE = "ATOLL_INVENTORY"

KEEPER_MODULE = "atoll_daemon"
"""What ``python -m`` starts a daemon by."""

LISTEN_BACKLOG = 64
"""Connections that wait to be accepted; some four times as many are open at most until foreign ones are closed."""

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: unix(7), SO_PEERCRED
_CONNECT_TIMEVAL = struct.pack("ll", 5, 0)  # s, us


def rack() -> Path | None:
    """The inventory of the rack that is meant; None: the lab that this machine emulates."""
    named = os.environ.get(INVENTORY_VARIABLE)
    return Path(named) if named else None


def socket_name() -> str:
    """The name of the daemon that is meant, as one writes it: with @ for the zero byte of abstract names."""
    inventory = rack()
    if inventory is None:
        return "@atoll-daemon"
    return f"@atoll-daemon-{hashlib.sha256(str(inventory.resolve()).encode()).hexdigest()[:16]}"


def socket_address() -> str:
    """The name as the kernel has it."""
    return "\0" + socket_name()[1:]


def what_it_keeps() -> str:
    """What the lock is of, in words."""
    inventory = rack()
    return "this machine's lab" if inventory is None else f"the rack of {inventory}"


def bind_daemon_socket() -> socket.socket:
    """The daemon's listening socket.

    Raises LabError when another daemon (or anything else) holds the name.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(socket_address())
    except OSError:
        listener.close()
        holder = daemon_holder()
        msg = f"{what_it_keeps()} is taken" + (f" by {describe_holder(*holder)}" if holder else "")
        raise LabError(msg) from None
    listener.listen(LISTEN_BACKLOG)
    return listener


def daemon_holder() -> tuple[int, int] | None:
    """(pid, uid) of the process that holds the daemon's name; None when nobody does."""
    try:
        with _connection() as probe:
            return peer(probe)
    except OSError:
        return None


def connect_to_daemon() -> socket.socket:
    """A connection to the daemon, whose process is this user's or root's: nothing has been sent yet.

    Raises OSError when nobody holds the name, LabError when somebody else does.
    """
    connection = _connection()
    holder = peer(connection)
    if not may_talk(holder[1]):
        connection.close()
        raise foreign_daemon(holder)
    return connection


def foreign_daemon(holder: tuple[int, int]) -> LabError:
    """The error that names a process of another user which holds the daemon's name."""
    remedy = "nothing was sent to it; ask as that user, or end that process"
    return LabError(f"{what_it_keeps()} is taken by {describe_holder(*holder)}: {remedy}")


def roots_daemon(holder: tuple[int, int]) -> LabError | None:
    """The error for a plain user whose requests root's daemon closes; None where the process is something else.

    The kernel names the process and its user; only then does its command line say what it is.
    """
    pid, uid = holder
    if uid != 0 or os.geteuid() == 0:
        return None
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    if KEEPER_MODULE.encode() not in words:
        return None
    return LabError(f"{what_it_keeps()} is up and belongs to root (process {pid}); only root can use it")


def _connection() -> socket.socket:
    """Waits while the queue of connections is full; a connection that does not block would be refused (EAGAIN)."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _CONNECT_TIMEVAL)
        connection.connect(socket_address())
    except BaseException:
        connection.close()
        raise
    return connection


def peer(connection: socket.socket) -> tuple[int, int]:
    """(pid, uid) of the process at the other end."""
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid


def describe_holder(pid: int, uid: int) -> str:
    """Who that is, in words."""
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = f"uid {uid}"
    return f"{user}'s process {pid}"


def may_talk(uid: int) -> bool:
    """Whether the process at the other end is to be trusted: this user's own and root's are."""
    return uid in (0, os.geteuid())
