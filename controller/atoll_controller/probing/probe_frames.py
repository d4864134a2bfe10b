# SPDX-License-Identifier: Apache-2.0
"""Probe frames, as bytes: the mark and the packets are those of ``atoll-host probe`` (docs/contracts.md).

A probe of ICMP is an echo request, which any host answers; TCP has RST alone (RFC 9293, 3.5.2: never answered), UDP
goes to the discard port (RFC 863), any other protocol has no header.
"""

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address

from atoll_core.openflow_wire.encoder import TPID

ICMP, TCP, UDP = 1, 6, 17  # IANA, Assigned Internet Protocol Numbers
OTHER_PROTOCOL = 253  # for experimentation (RFC 3692): represents every protocol without a name here

_MARK_TEXT = b"atoll probe\0"
_MARK = struct.Struct("!12sIIHBx")
_DISCARD = 9
_ECHO_REQUEST = 8
_RST = 0x04
_TTL = 64
_IPV4, _IHL = 0x0800, 0x45
_SHORTEST_FRAME = 60  # bytes of an Ethernet frame, without its check sequence


@dataclass(frozen=True, slots=True)
class ProbeMark:
    """The identity of a probe: its session, its number in it, and the attempt."""

    session: int
    number: int
    attempt: int


@dataclass(frozen=True, slots=True)
class ProbeEnd:
    """The source or the destination of a probe."""

    mac: str
    address: IPv4Address


def probe_frame(src: ProbeEnd, dst: ProbeEnd, vlan: int | None, protocol: int, mark: ProbeMark) -> bytes:
    """An Ethernet frame without its check sequence; ``vlan``: the id of its 802.1Q tag, None for an untagged one."""
    tag = b"" if vlan is None else struct.pack("!HH", TPID, vlan)
    head = bytes.fromhex(dst.mac.replace(":", "")) + bytes.fromhex(src.mac.replace(":", "")) + tag
    frame = head + struct.pack("!H", _IPV4) + probe_packet(src.address, dst.address, protocol, mark)
    return frame.ljust(_SHORTEST_FRAME, b"\0")


def probe_packet(src: IPv4Address, dst: IPv4Address, protocol: int, mark: ProbeMark) -> bytes:
    """The IPv4 packet of a probe."""
    segment = _segment(src, dst, protocol, mark)
    length = 20 + len(segment)
    header = struct.pack("!BBHHHBBH", _IHL, 0, length, 0, 0, _TTL, protocol, 0) + src.packed + dst.packed
    return _with_checksum(header, 10) + segment


def _segment(src: IPv4Address, dst: IPv4Address, protocol: int, mark: ProbeMark) -> bytes:
    payload = _MARK.pack(_MARK_TEXT, mark.session, mark.number, mark.attempt, 0)
    pseudo = src.packed + dst.packed
    match protocol:
        case 1:
            echo = struct.pack("!BBHHH", _ECHO_REQUEST, 0, 0, mark.session & 0xFFFF, mark.attempt)
            return _with_checksum(echo + payload, 2)
        case 6:
            segment = struct.pack("!HHIIBBHHH", _DISCARD, _DISCARD, 0, 0, 5 << 4, _RST, 0, 0, 0) + payload
            return _with_checksum(segment, 16, pseudo + struct.pack("!HH", protocol, len(segment)))
        case 17:
            length = 8 + len(payload)
            segment = struct.pack("!HHHH", _DISCARD, _DISCARD, length, 0) + payload
            return _with_checksum(segment, 6, pseudo + struct.pack("!HH", protocol, length))
        case _:
            return payload


def _with_checksum(packet: bytes, offset: int, pseudo: bytes = b"") -> bytes:
    """The packet with its Internet checksum (RFC 1071) at that place; ``pseudo``: the pseudo-header."""
    covered = pseudo + packet
    total = sum(struct.unpack(f"!{len(covered) // 2}H", covered))
    while total > 0xFFFF:
        total = (total >> 16) + (total & 0xFFFF)
    return packet[:offset] + struct.pack("!H", ~total & 0xFFFF) + packet[offset + 2 :]
