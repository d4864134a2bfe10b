# SPDX-License-Identifier: Apache-2.0
"""Where the keeper is found: an abstract Unix socket, which is the machine's lock as well.

It belongs to the network namespace, needs no file and vanishes with the process, however that ends
(see docs/decisions/0002-abstract-socket-keeper-lock.md).
"""

import os
import pwd
import socket
import struct

from atoll.model.errors import LabError

KEEPER_SOCKET = "\0atoll-keeper"

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: unix(7), SO_PEERCRED


def bind_keeper_socket() -> socket.socket:
    """The keeper's listening socket.

    Raises LabError when another keeper (or anything else) holds the name.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(KEEPER_SOCKET)
    except OSError:
        listener.close()
        holder = keeper_holder()
        msg = f"this machine's lab is taken by {describe_holder(*holder)}" if holder else "this machine's lab is taken"
        raise LabError(msg) from None
    listener.listen(64)
    return listener


def keeper_holder() -> tuple[int, int] | None:
    """(pid, uid) of the process that holds the keeper's name; None when nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2)
        try:
            probe.connect(KEEPER_SOCKET)
        except OSError:
            return None
        return peer(probe)


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
    """Whether a user may command this keeper: its own user and root may."""
    return uid in (0, os.geteuid())
