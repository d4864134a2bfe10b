# SPDX-License-Identifier: Apache-2.0
"""A program for a machine of the laboratory: sends VLAN-tagged frames and times those that come back.

    tagged_frames.py INTERFACE COUNT VLAN[,VLAN...]

Sends COUNT rounds of one frame per VLAN id (0: untagged), 2 ms apart, waits a second for stragglers and prints one
JSON object: {"VLAN": [delay in ms, ...]}, by the tag that the frames came back with.
"""

import json
import socket
import struct
import sys
import time

ETH_P_ALL = 3
SOL_PACKET = 263
PACKET_AUXDATA = 8
PACKET_OUTGOING = 4
TP_STATUS_VLAN_VALID = 1 << 4
AUXDATA = struct.Struct("=IIIHHHH")  # struct tpacket_auxdata: status, len, snaplen, mac, net, vlan_tci, vlan_tpid
ADDRESSES = bytes.fromhex("020000000002020000000001")
IPV4_BYTES = 100
GAP_S = 0.002
LINGER_S = 1.0


def frame(vlan: int) -> bytes:
    """An IPv4 frame whose payload is the time of sending (ns)."""
    tag = struct.pack("!HH", 0x8100, vlan) if vlan else b""
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, IPV4_BYTES, 0, 0, 64, 253, 0, b"\x0a\x0a\0\1", b"\x0a\x14\0\1")
    payload = struct.pack("!Q", time.monotonic_ns()).ljust(IPV4_BYTES - len(header), b"\0")
    return ADDRESSES + tag + b"\x08\x00" + header + payload


def receive(port: socket.socket, delays: dict[int, list[float]]) -> None:
    """Note the tags and delays of what has arrived."""
    while True:
        try:
            data, ancillary, _, address = port.recvmsg(4096, 256)
        except BlockingIOError:
            return
        if address[2] == PACKET_OUTGOING or data[12:14] != b"\x08\x00" or data[23] != 253:
            continue
        status, _, _, _, _, tci, _ = AUXDATA.unpack_from(ancillary[0][2])
        vlan = tci & 0xFFF if status & TP_STATUS_VLAN_VALID else 0
        sent_ns = struct.unpack_from("!Q", data, 34)[0]
        delays.setdefault(vlan, []).append((time.monotonic_ns() - sent_ns) / 1e6)


def main() -> None:
    """Send, receive, tell."""
    interface, count, vlans = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(",")
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    port.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    port.setblocking(False)
    port.bind((interface, ETH_P_ALL))
    delays: dict[int, list[float]] = {}
    for _ in range(count):
        for vlan in vlans:
            port.send(frame(int(vlan)))
        until = time.monotonic() + GAP_S
        while time.monotonic() < until:
            receive(port, delays)
    until = time.monotonic() + LINGER_S
    while time.monotonic() < until:
        receive(port, delays)
        time.sleep(0.0005)
    print(json.dumps(delays))


if __name__ == "__main__":
    main()
