# SPDX-License-Identifier: Apache-2.0
"""Network interfaces and namespaces by system call: setns(2), netdevice(7), ethtool's ioctl.

A process start costs ten milliseconds and a lab has a hundred interfaces; these cost microseconds. Everything acts
on the network namespace the calling thread is in. Errors are OSErrors that name the interface.
"""

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

CLONE_NEWNET = 0x40000000

# <linux/sockios.h>
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_SIOCETHTOOL = 0x8946
_IFF_UP = 0x1

# <linux/ethtool.h>: a super-packet or an unfinished checksum would falsify what a queue counts and a capture shows.
_OFFLOADS = {
    "rx-checksumming": 0x15,  # ETHTOOL_SRXCSUM
    "tx-checksumming": 0x17,  # ETHTOOL_STXCSUM
    "scatter-gather": 0x19,  # ETHTOOL_SSG
    "tcp-segmentation-offload": 0x1F,  # ETHTOOL_STSO
    "generic-segmentation-offload": 0x24,  # ETHTOOL_SGSO
    "generic-receive-offload": 0x2C,  # ETHTOOL_SGRO
}

_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def inside(pid: int) -> Iterator[None]:
    """Be in the network namespace of process ``pid``, then back in one's own."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        other = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(other)
        finally:
            os.close(other)
        try:
            yield
        finally:
            _enter(own)
    finally:
        os.close(own)


def set_up(interface: str) -> None:
    """Bring an interface up."""
    with _request_socket() as sock:
        request = _request(interface)
        flags = struct.unpack_from("H", _ioctl(sock, _SIOCGIFFLAGS, request, interface), 16)[0]
        _ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH22x", interface.encode(), flags | _IFF_UP), interface)


def offloads_off(interface: str) -> None:
    """Switch off every offload: frames are wire-size and carry finished checksums."""
    with _request_socket() as sock:
        for command in _OFFLOADS.values():
            setting = ctypes.create_string_buffer(struct.pack("II", command, 0), 8)
            _ioctl(sock, _SIOCETHTOOL, struct.pack("16sQ16x", interface.encode(), ctypes.addressof(setting)), interface)


def disable_ipv6() -> None:
    """No IPv6 on any interface, present or future: neighbour discovery would be noise in every capture."""
    for scope in ("all", "default"):
        setting = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
        if setting.exists():  # a kernel without IPv6 has none
            setting.write_text("1")


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


def _request_socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def _request(interface: str) -> bytes:
    return struct.pack("16s24x", interface.encode())


def _ioctl(sock: socket.socket, command: int, request: bytes, interface: str) -> bytes:
    try:
        return fcntl.ioctl(sock, command, request)
    except OSError as error:
        raise OSError(error.errno, f"{interface}: ioctl {command:#x}: {error.strerror}") from None
