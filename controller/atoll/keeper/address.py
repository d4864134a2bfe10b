# SPDX-License-Identifier: Apache-2.0
"""Where the keeper is found: an abstract Unix socket, which is a lock as well: of the machine, or of a rack.

It belongs to the network namespace, needs no file and vanishes with the process, however that ends
(see docs/decisions/0002-abstract-socket-keeper-lock.md). A rack is named by its inventory's file, in the environment:
so is the keeper that is meant, by every verb and by the keeper itself.
"""

import hashlib
import os
import pwd
import socket
import struct
from pathlib import Path

from atoll.model.errors import LabError

INVENTORY_VARIABLE = "ATOLL_INVENTORY"

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: unix(7), SO_PEERCRED


def rack() -> Path | None:
    """The inventory of the rack that is meant; None: the lab that this machine emulates."""
    named = os.environ.get(INVENTORY_VARIABLE)
    return Path(named) if named else None


def socket_name() -> str:
    """The name of the keeper that is meant, as one writes it: with @ for the zero byte of abstract names."""
    inventory = rack()
    if inventory is None:
        return "@atoll-keeper"
    return f"@atoll-keeper-{hashlib.sha256(str(inventory.resolve()).encode()).hexdigest()[:16]}"


def socket_address() -> str:
    """The name as the kernel has it."""
    return "\0" + socket_name()[1:]


def what_it_keeps() -> str:
    """What the lock is of, in words."""
    inventory = rack()
    return "this machine's lab" if inventory is None else f"the rack of {inventory}"


def bind_keeper_socket() -> socket.socket:
    """The keeper's listening socket.

    Raises LabError when another keeper (or anything else) holds the name.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(socket_address())
    except OSError:
        listener.close()
        holder = keeper_holder()
        msg = f"{what_it_keeps()} is taken" + (f" by {describe_holder(*holder)}" if holder else "")
        raise LabError(msg) from None
    listener.listen(64)
    return listener


def keeper_holder() -> tuple[int, int] | None:
    """(pid, uid) of the process that holds the keeper's name; None when nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2)
        try:
            probe.connect(socket_address())
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
