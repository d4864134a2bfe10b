# SPDX-License-Identifier: Apache-2.0
"""Network interfaces and namespaces by system call: setns(2), netdevice(7), ethtool's ioctl.

A process start costs ten milliseconds and a lab has a hundred interfaces; these cost microseconds. Everything acts
on the network namespace the calling thread is in. Errors are OSErrors that name the interface.
"""

import contextlib
import ctypes
import fcntl
import os
import re
import socket
import struct
from collections.abc import Generator
from pathlib import Path

CLONE_NEWNET = 0x40000000

# <linux/sockios.h>
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_SIOCETHTOOL = 0x8946
_IFF_UP = 0x1

# <linux/ethtool.h>
_ETHTOOL_GSTRINGS = 0x1B
_ETHTOOL_GSSET_INFO = 0x37
_ETHTOOL_SFEATURES = 0x3B
_ETH_SS_FEATURES = 4
_ETH_GSTRING_LEN = 32

# A super-packet or an unfinished checksum would falsify the counts of queues and captures. By the kernel's
# names and not by the few old groups (tso, gso, gro): new kernels keep adding members that those leave on.
_OFFLOADS = re.compile(r"[rt]x-checksum.*|tx-scatter-gather.*|tx-.*segmentation|tx-gso-.*|rx-gro.*|rx-lro")

_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def in_namespace_of(pid: int) -> Generator[None]:
    """Enter the network namespace of process ``pid`` for the block, then return to the previous one."""
    own_namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        target = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(target)
        finally:
            os.close(target)
        try:
            yield
        finally:
            _enter(own_namespace)
    finally:
        os.close(own_namespace)


def set_up(interface: str) -> None:
    """Bring an interface up."""
    with _request_socket() as sock:
        request = struct.pack("16s24x", interface.encode())
        flags = struct.unpack_from("H", _ioctl(sock, _SIOCGIFFLAGS, request, interface), 16)[0]
        _ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH22x", interface.encode(), flags | _IFF_UP), interface)


def disable_offloads(interface: str) -> None:
    """Switch off every offload, so that frames have wire size and complete checksums."""
    with _request_socket() as sock:
        bits = [bit for bit, name in enumerate(_feature_names(interface)) if _OFFLOADS.fullmatch(name)]
        masks = [0] * (max(bits, default=0) // 32 + 1)
        for bit in bits:
            masks[bit // 32] |= 1 << bit % 32
        blocks = [field for valid in masks for field in (valid, 0)]  # valid: these bits; requested: none of them
        _ethtool(sock, interface, struct.pack(f"II{len(blocks)}I", _ETHTOOL_SFEATURES, len(masks), *blocks))


def disable_ipv6() -> None:
    """Disable IPv6 on every interface, also later ones: captures would contain its neighbour discovery."""
    for scope in ("all", "default"):
        setting = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
        if setting.exists():  # a kernel without IPv6 has none
            setting.write_text("1")


def _feature_names(interface: str) -> tuple[str, ...]:
    """Names of the kernel's feature bits, in their order."""
    with _request_socket() as sock:
        command = struct.pack("IIQI4x", _ETHTOOL_GSSET_INFO, 0, 1 << _ETH_SS_FEATURES, 0)
        count = struct.unpack_from("I", _ethtool(sock, interface, command), 16)[0]
        command = struct.pack("III", _ETHTOOL_GSTRINGS, _ETH_SS_FEATURES, count) + bytes(count * _ETH_GSTRING_LEN)
        names = _ethtool(sock, interface, command)[12:]
    return tuple(name.rstrip(b"\0").decode() for (name,) in struct.iter_unpack(f"{_ETH_GSTRING_LEN}s", names))


def _ethtool(sock: socket.socket, interface: str, command: bytes) -> bytes:
    buffer = ctypes.create_string_buffer(command, len(command))
    _ioctl(sock, _SIOCETHTOOL, struct.pack("16sQ16x", interface.encode(), ctypes.addressof(buffer)), interface)
    return buffer.raw


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


def _request_socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def _ioctl(sock: socket.socket, command: int, request: bytes, interface: str) -> bytes:
    try:
        return fcntl.ioctl(sock, command, request)
    except OSError as error:
        raise OSError(error.errno, f"{interface}: ioctl {command:#x}: {error.strerror}") from None
