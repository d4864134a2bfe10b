# SPDX-License-Identifier: Apache-2.0
"""A transparent TCP proxy that accepts a client once the server has accepted: ``python accept_after.py PAIR..``.

A PAIR is INTERFACE:MARK:PORT: the interface of the clients, the mark that names the pair of legs, and the port of its
listener. The box's rules drop the first SYN of a client, which a packet socket has seen; it is sent again through lo,
with bit 0 of the mark set, when the server has accepted. A client gets ``proxied: `` and what the server sends.
"""

import socket
import struct
import sys
import threading

IP_TRANSPARENT = 19
PACKET_OUTGOING = 4
ETH_P_IP = 0x0800
TCP = 6
SYN, SYN_ACK = 0x02, 0x12


def transparent(mark: int) -> socket.socket:
    """A TCP socket that can have any address."""
    made = socket.socket()
    made.setsockopt(socket.SOL_IP, IP_TRANSPARENT, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
    return made


def serve(interface: str, mark: int, port: int) -> None:
    """Serve the clients of one pair of legs."""
    servers: dict[tuple[str, int], socket.socket] = {}
    listener = transparent(mark)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    again = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    again.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark | 1)
    seen = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_IP))
    seen.bind((interface, ETH_P_IP))

    def accept() -> None:
        while True:
            client, address = listener.accept()
            with client, servers.pop(address) as server:
                client.sendall(b"proxied: ")
                while data := server.recv(65536):
                    client.sendall(data)

    threading.Thread(target=accept, daemon=True).start()
    while True:
        packet, source = seen.recvfrom(2048)
        if source[2] == PACKET_OUTGOING or packet[9] != TCP:
            continue
        tcp = packet[(packet[0] & 15) * 4 :]
        if tcp[13] & SYN_ACK != SYN:
            continue
        client_port, server_port = struct.unpack("!HH", tcp[:4])
        client = (socket.inet_ntoa(packet[12:16]), client_port)
        address = socket.inet_ntoa(packet[16:20])
        servers[client] = server = transparent(mark)
        server.bind(client)
        server.connect((address, server_port))
        again.sendto(packet, (address, 0))


def main() -> None:
    for pair in sys.argv[1:]:
        interface, mark, port = pair.split(":")
        threading.Thread(target=serve, args=(interface, int(mark), int(port)), daemon=True).start()
    print('{"type":"ready"}', flush=True)
    threading.Event().wait()


main()
