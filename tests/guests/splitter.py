# SPDX-License-Identifier: Apache-2.0
"""A performance-enhancing proxy that somebody might bring along: ``python splitter.py WORLD ISLAND [SWALLOW]``.

TCP connections that come in by these interfaces end here and begin anew towards where they were going, under the
client's address, so that neither end sees the box (Linux's TPROXY, Documentation/networking/tproxy.rst). A broken one
drops every SWALLOW-th of the pieces in which it reads what goes to the island.
"""

import contextlib
import itertools
import socket
import subprocess
import sys
import threading

_IP_TRANSPARENT = 19  # linux/in.h
_PORT = 4000
_pieces = itertools.count(1)
_RULES = """
table ip splitter
delete table ip splitter
table ip splitter {{
    chain in {{
        type filter hook prerouting priority mangle
        iifname {{ "{world}", "{island}" }} meta l4proto tcp tproxy to :{port} meta mark set 1 accept
    }}
}}
"""


def transparent() -> socket.socket:
    """A socket that may have any address."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_IP, _IP_TRANSPARENT, 1)
    return made


def pass_on(source: socket.socket, sink: socket.socket, swallow: int = 0) -> None:
    """One direction of a connection, its end included; what ends badly ends badly on the other side."""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            if not swallow or next(_pieces) % swallow:
                sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def split(client: socket.socket, swallow: int) -> None:
    """One connection: the other half of it, and the two joined."""
    with client, transparent() as server:
        server.bind((client.getpeername()[0], 0))
        server.connect(client.getsockname())
        back = threading.Thread(target=pass_on, args=(server, client, swallow), daemon=True)
        back.start()
        pass_on(client, server)
        back.join()


def main(world: str, island: str, swallow: str = "0") -> None:
    """Take connections until killed."""
    rules = _RULES.format(world=world, island=island, port=_PORT)
    subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True)
    for words in ("rule add fwmark 1 lookup 100", "route replace local default dev lo table 100", "link set lo up"):
        subprocess.run(["ip", *words.split()], check=True)
    with transparent() as listener:
        listener.bind(("0.0.0.0", _PORT))
        listener.listen()
        while True:
            client, _ = listener.accept()
            threading.Thread(target=split, args=(client, int(swallow)), daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
