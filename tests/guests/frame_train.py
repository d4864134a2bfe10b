# SPDX-License-Identifier: Apache-2.0
"""A program for a machine of the laboratory: sends a train of frames as fast as it can.

    frame_train.py INTERFACE COUNT [PID]

Each frame is known by its number, so that a test can compare what was captured with :func:`frame`. With PID, that
process gets SIGTERM as soon as the last frame is sent. Prints CLOCK_REALTIME before and after, ns.
"""

import os
import signal
import socket
import struct
import sys
import time

ADDRESSES = bytes.fromhex("02000000ff02020000000001")  # to a machine that does not exist


def frame(number: int) -> bytes:
    """Frame ``number``: of 60 to 1514 bytes, every third one tagged with a VLAN of its own."""
    tag = struct.pack("!HH", 0x8100, 0x2000 | 100 + number % 7) if number % 3 == 0 else b""
    return (ADDRESSES + tag + struct.pack("!HI", 0x88B5, number)).ljust(60 + number * 61 % 1455, b"\x5a")


def main() -> None:
    """Send, signal, tell."""
    interface, count, *pids = sys.argv[1:]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as port:
        port.bind((interface, 0))
        begin_ns = time.time_ns()
        for number in range(int(count)):
            port.send(frame(number))
        for pid in pids:
            os.kill(int(pid), signal.SIGTERM)
    print(begin_ns, time.time_ns())


if __name__ == "__main__":
    main()
