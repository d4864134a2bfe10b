# SPDX-License-Identifier: Apache-2.0
"""Packet sockets of a process: the frames they dropped, by netlink (sock_diag(7)), and how many frames they hold.

Open vSwitch's userspace datapath reads every port through a packet socket (lib/netdev-linux.c of Open vSwitch 3.1,
``netdev_linux_rxq_construct``). A frame that does not fit into its receive buffer is dropped and counted at the socket
(net/packet/af_packet.c of Linux 6.1, ``packet_rcv``) and nowhere else: the interface, and with it Open vSwitch's own
statistics, has counted it as received.
"""

import contextlib
import ctypes
import errno
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from atoll_core.errors import LabError

# <linux/netlink.h>, <linux/sock_diag.h>
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST, _NLM_F_DUMP = 0x1, 0x300
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_SK_MEMINFO_RCVBUF, _SK_MEMINFO_DROPS = 1, 8

# <linux/packet_diag.h>
_PACKET_SHOW_INFO, _PACKET_SHOW_MEMINFO = 0x1, 0x10
_PACKET_DIAG_INFO, _PACKET_DIAG_MEMINFO = 0, 6

_HEADER = struct.Struct("IHHII")  # nlmsghdr: length, type, flags, sequence number, port
_REQUEST = struct.Struct("BBxxIIII")  # packet_diag_req: family, protocol, inode, what to show, cookie
_SOCKET = struct.Struct("BBHIII")  # packet_diag_msg: family, type, protocol, inode, cookie
_ATTRIBUTE = struct.Struct("HH")
_PIDFD_GETFD = 438  # <asm/unistd.h>, on every architecture
_SO_RCVBUFFORCE = 33  # <asm-generic/socket.h>

_libc = ctypes.CDLL(None, use_errno=True)
_LONGEST_REPLY_BYTES = 1 << 16  # more than the kernel puts into one


@dataclass(frozen=True, slots=True)
class PacketSocketCounters:
    """Counters of a packet socket."""

    dropped_packets: int  # since it was opened
    receive_buffer_bytes: int  # what its frames may take of the kernel's memory, which is more than their own bytes


def packet_sockets_of(pid: int) -> dict[str, PacketSocketCounters]:
    """The packet sockets that process ``pid`` holds in this network namespace, by the interface each is bound to.

    Raises LabError where that cannot be read.
    """
    try:
        inodes, names = set(_socket_descriptors(pid).values()), dict(socket.if_nameindex())
    except OSError as error:
        raise LabError(f"the packet sockets of process {pid} could not be read: {error}") from None
    try:
        return {names[index]: counters for inode, index, counters in _sockets() if inode in inodes and index in names}
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EPROTONOSUPPORT):
            raise LabError("this kernel does not report packet sockets (it has no CONFIG_PACKET_DIAG)") from None
        raise LabError(f"the kernel does not report packet sockets: {error.strerror}") from None


def set_receive_buffers(pid: int, size_bytes: int) -> None:
    """Set the receive buffers of the packet sockets that process ``pid`` holds now, also beyond net.core.rmem_max.

    Raises LabError where the kernel does not allow it: pidfd_getfd(2), Linux 5.6.
    """
    try:
        with os.fdopen(os.pidfd_open(pid)) as process:
            for descriptor in _socket_descriptors(pid):
                with socket.socket(fileno=_copy_descriptor(process.fileno(), descriptor)) as shared:
                    if shared.family == socket.AF_PACKET:
                        # The kernel doubles the number: socket(7), SO_RCVBUF.
                        shared.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, size_bytes // 2)
    except OSError as error:
        raise LabError(f"the receive buffers of process {pid} could not be set: {error}") from None


def parse_reply(reply: bytes) -> tuple[list[tuple[int, int, PacketSocketCounters]], bool]:
    """Sockets of one reply to a dump - inode, index of the interface (0: of none), counts - and whether it is the last.

    Raises OSError with the kernel's error.
    """
    sockets: list[tuple[int, int, PacketSocketCounters]] = []
    while reply:
        length, kind, *_ = _HEADER.unpack_from(reply)
        message, reply = reply[_HEADER.size : length], reply[_aligned(length) :]
        if kind == _NLMSG_DONE:
            return sockets, True
        if kind == _NLMSG_ERROR:
            error_number = -struct.unpack_from("i", message)[0]
            raise OSError(error_number, os.strerror(error_number))
        _, _, _, inode, _, _ = _SOCKET.unpack_from(message)
        attributes = dict(_attributes(message[_SOCKET.size :]))
        memory = memoryview(attributes[_PACKET_DIAG_MEMINFO]).cast("I")
        index = struct.unpack_from("I", attributes[_PACKET_DIAG_INFO])[0]
        sockets.append((inode, index, PacketSocketCounters(memory[_SK_MEMINFO_DROPS], memory[_SK_MEMINFO_RCVBUF])))
    return sockets, False


def _sockets() -> Iterator[tuple[int, int, PacketSocketCounters]]:
    what_to_show = _PACKET_SHOW_INFO | _PACKET_SHOW_MEMINFO
    request = _REQUEST.pack(socket.AF_PACKET, 0, 0, what_to_show, 0, 0)
    header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST | _NLM_F_DUMP, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.bind((0, 0))
        kernel.send(header + request)
        is_last = False
        while not is_last:
            sockets, is_last = parse_reply(kernel.recv(_LONGEST_REPLY_BYTES))
            yield from sockets


def _copy_descriptor(process: int, descriptor: int) -> int:
    """A file descriptor of this process for the same open file as another process', which a pidfd names."""
    copy: int = _libc.syscall(_PIDFD_GETFD, process, descriptor, 0)
    if copy < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return copy


def _socket_descriptors(pid: int) -> dict[int, int]:
    """The sockets among a process' open files (proc(5): ``socket:[4711]``): inodes by file descriptor."""
    inodes: dict[int, int] = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            link = str(entry.readlink())
            if link.startswith("socket:["):
                inodes[int(entry.name)] = int(link[len("socket:[") : -1])
    return inodes


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data:
        length, kind = _ATTRIBUTE.unpack_from(data)
        yield kind, data[_ATTRIBUTE.size : length]
        data = data[_aligned(length) :]


def _aligned(length: int) -> int:
    """Netlink's messages and attributes begin at multiples of four bytes."""
    return (length + 3) & ~3
