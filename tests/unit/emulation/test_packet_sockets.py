# SPDX-License-Identifier: Apache-2.0
"""What the kernel says of packet sockets, byte by byte: sock_diag(7), <linux/packet_diag.h>."""

import errno
import struct

import pytest

from atoll_core.errors import LabError
from atoll_emulation.this_machine.packet_sockets import (
    PacketSocketCounters,
    packet_sockets_of,
    parse_reply,
    set_receive_buffers,
)

DONE = struct.pack("IHHIIi", 20, 3, 2, 1, 0, 0)


def answer(inode: int, interface: int, drops: int) -> bytes:
    """A socket's message: information, what else the kernel may add, memory."""
    info = struct.pack("HH6I", 28, 0, interface, 0, 0, 0, 0, 0)
    odd = struct.pack("HHHxx", 6, 5, 7)  # two bytes long, and padded
    memory = struct.pack("HH9I", 40, 6, 0, 212_992, 0, 212_992, 0, 0, 176, 0, drops)
    body = struct.pack("BBHIII", 17, 3, 3, inode, 1, 0) + info + odd + memory
    return struct.pack("IHHII", 16 + len(body), 20, 2, 1, 0) + body


def test_sockets_are_told_with_interface_and_what_they_dropped() -> None:
    """A reply may hold several and need not be the last."""
    found, last = parse_reply(answer(4711, 3, 4744) + answer(4712, 0, 0))
    assert found == [(4711, 3, PacketSocketCounters(4744, 212_992)), (4712, 0, PacketSocketCounters(0, 212_992))]
    assert not last
    assert parse_reply(DONE) == ([], True)
    assert parse_reply(answer(4711, 3, 1) + DONE) == ([(4711, 3, PacketSocketCounters(1, 212_992))], True)


def test_a_kernel_that_cannot_tell_says_so() -> None:
    """ENOENT: there is no packet_diag."""
    refused = struct.pack("IHHIIi", 36, 2, 0, 1, 0, -errno.ENOENT) + bytes(16)
    with pytest.raises(FileNotFoundError):
        parse_reply(refused)


def test_a_process_that_is_not_there_is_not_taken_for_the_kernels_silence() -> None:
    """Numbers of processes end at 2**22 (proc(5), pid_max)."""
    with pytest.raises(LabError, match="the packet sockets of process 4194305 could not be read: "):
        packet_sockets_of(2**22 + 1)


def test_buffers_of_a_process_that_has_ended_cannot_be_set() -> None:
    with pytest.raises(LabError, match="the receive buffers of process 4194305 could not be set: "):
        set_receive_buffers(2**22 + 1, 1 << 20)
