# SPDX-License-Identifier: Apache-2.0
"""A transparent TCP relay for a box of kind `program`: ``relay.py WORLD ISLAND``, the names of the box's interfaces.

A TCP connection through the box becomes two. The client's ends here; another one goes on to the server, from the
client's address and port, so that neither end sees the box. All other packets pass as through a router. The kernel
hands TCP to this program by TPROXY (Linux, Documentation/networking/tproxy.rst).
"""

import asyncio
import socket
import struct
import subprocess
import sys
from asyncio import StreamReader, StreamWriter

IP_TRANSPARENT = 19  # linux/in.h
PORT = 4000
RULES = """
table ip relay
delete table ip relay
table ip relay {{
    chain divert {{
        type filter hook prerouting priority mangle
        iifname {{ "{world}", "{island}" }} meta l4proto tcp tproxy to :{port} meta mark set 1 accept
    }}
}}
"""
IP_COMMANDS = ("link set lo up", "rule add fwmark 1 lookup 100", "route replace local default dev lo table 100")


def take_tcp(world: str, island: str) -> None:
    """Have the kernel deliver TCP that enters by these interfaces to PORT, whatever its destination."""
    rules = RULES.format(world=world, island=island, port=PORT)
    subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True)
    subprocess.run(["ip", "rule", "del", "fwmark", "1"], stderr=subprocess.DEVNULL, check=False)  # of an earlier start
    for command in IP_COMMANDS:
        subprocess.run(["ip", *command.split()], check=True)


def transparent(address: tuple[str, int]) -> socket.socket:
    """A socket with an address that need not be this machine's."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_IP, IP_TRANSPARENT, 1)
    made.setblocking(False)
    made.bind(address)
    return made


async def relay(from_client: StreamReader, to_client: StreamWriter) -> None:
    """Relay a connection that a client began: to its server, until both directions have ended or one is reset."""
    client, server = to_client.get_extra_info("peername"), to_client.get_extra_info("sockname")
    writers = [to_client]
    try:
        onward = transparent(client)
        await asyncio.get_running_loop().sock_connect(onward, server)
        from_server, to_server = await asyncio.open_connection(sock=onward)
        writers.append(to_server)
        async with asyncio.TaskGroup() as both:
            sent = both.create_task(pass_on(from_client, to_server))
            received = both.create_task(pass_on(from_server, to_client))
        outcome = f"{sent.result()} bytes sent, {received.result()} received"
    except* OSError as errors:
        outcome = str(errors.exceptions[0])
        for writer in writers:
            reset(writer)
    for writer in writers:
        writer.close()
    print(f"{client[0]}:{client[1]} to {server[0]}:{server[1]}: {outcome}", flush=True)


async def pass_on(source: StreamReader, sink: StreamWriter) -> int:
    """Pass one direction on, its end included; returns its bytes."""
    count = 0
    while data := await source.read(1 << 16):
        sink.write(data)
        await sink.drain()
        count += len(data)
    sink.write_eof()
    return count


def reset(writer: StreamWriter) -> None:
    """End a connection by RST: closing a socket that does not linger sends one (socket(7), SO_LINGER)."""
    if not writer.transport.is_closing():
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


async def main(world: str, island: str) -> None:
    """Relay connections until killed."""
    take_tcp(world, island)
    everywhere = transparent(("", PORT))
    listener = await asyncio.start_server(relay, sock=everywhere, backlog=1024)
    print(f"relaying TCP between {world} and {island}", flush=True)
    await listener.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
