# SPDX-License-Identifier: Apache-2.0
"""The trap: a client that serves its sockets in the order of their descriptors, and starts over after each.

Flows that are over free low descriptors, which new flows take at once; where the client is what is slow, those are
ready again before it comes to the others. As a process it prints how many flows each channel completed, and the
longest that a ready socket waited for its service, from the look that first reported it (s), as JSON:
``python -m tests.guests.naive_client ADDRESS PORT CHANNELS BYTES SECONDS [WORK_US]``. Where computing takes no time
(virtual time), WORK_US, which it sleeps before it serves a socket, stands for the time that it would compute.
"""

import json
import resource
import select
import socket
import struct
import sys
import time

_READ_BYTES = 65536
_OWN_DESCRIPTORS = 20


class NaiveClient:
    """Channels that fetch flow after flow of the same size."""

    def __init__(self, server: tuple[str, int], channels: int, size: int, work_s: float = 0) -> None:
        self.completed = [0] * channels
        self._ready_since: dict[int, float] = {}  # by descriptor
        self._longest_wait_s = 0.0
        self._server = server
        self._work_s = work_s
        self._request = struct.pack("!Q", size)
        self._poll = select.epoll()
        self._flows: dict[int, tuple[int, socket.socket, bool]] = {}  # by descriptor: channel, socket, asked
        for channel in range(channels):
            self._begin(channel)

    def run(self, seconds: float) -> None:
        """Serve the ready socket with the lowest descriptor, then look again."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ready = self._poll.poll(1, len(self._flows))
            if ready:
                for descriptor, _ in ready:
                    self._ready_since.setdefault(descriptor, time.monotonic())
                if self._work_s:
                    time.sleep(self._work_s)
                lowest = min(descriptor for descriptor, _ in ready)
                self._longest_wait_s = max(self._longest_wait_s, time.monotonic() - self._ready_since.pop(lowest))
                self._serve(lowest)

    @property
    def longest_wait_s(self) -> float:
        """The longest that a ready socket waited for its service, those that still wait included."""
        now = time.monotonic()
        return max(self._longest_wait_s, *(now - since for since in self._ready_since.values()), 0.0)

    def _begin(self, channel: int) -> None:
        peer = socket.socket()
        peer.setblocking(False)
        peer.connect_ex(self._server)
        self._flows[peer.fileno()] = (channel, peer, False)
        self._poll.register(peer.fileno(), select.EPOLLOUT)

    def _serve(self, descriptor: int) -> None:
        channel, peer, asked = self._flows[descriptor]
        if not asked:
            peer.send(self._request)
            self._flows[descriptor] = (channel, peer, True)
            self._poll.modify(descriptor, select.EPOLLIN)
        elif not peer.recv(_READ_BYTES):
            self._poll.unregister(descriptor)
            del self._flows[descriptor]
            peer.close()
            self.completed[channel] += 1
            self._begin(channel)


if __name__ == "__main__":
    address, port, channels, size, seconds, *work_us = sys.argv[1:]
    descriptors = int(channels) + _OWN_DESCRIPTORS
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    client = NaiveClient((address, int(port)), int(channels), int(size), float(*work_us) / 1e6)
    client.run(float(seconds))
    print(json.dumps({"completed": client.completed, "longest_wait_s": client.longest_wait_s}))
