# SPDX-License-Identifier: Apache-2.0
"""Field of a frame that a byte is in: Ethernet, 802.1Q, IPv4 (RFC 791), TCP (RFC 9293), UDP, ICMP echo."""

from itertools import pairwise

_Layout = tuple[tuple[str, int], ...]

_ETHERNET: _Layout = (("destination MAC", 0), ("source MAC", 6), ("EtherType", 12), ("", 14))
_VLAN: _Layout = (("VLAN tag", 0), ("EtherType", 2), ("", 4))
_IPV4: _Layout = (
    ("IP version and header length", 0), ("DSCP and ECN", 1), ("IP length", 2), ("IP identification", 4),
    ("IP fragment", 6), ("TTL", 8), ("protocol", 9), ("IP checksum", 10), ("source address", 12),
    ("destination address", 16), ("", 20),
)  # fmt: skip
_TCP: _Layout = (
    ("TCP source port", 0), ("TCP destination port", 2), ("TCP sequence number", 4), ("TCP acknowledgement", 8),
    ("TCP header length", 12), ("TCP flags", 13), ("TCP window", 14), ("TCP checksum", 16), ("urgent pointer", 18),
    ("", 20),
)  # fmt: skip
_UDP: _Layout = (("UDP source port", 0), ("UDP destination port", 2), ("UDP length", 4), ("UDP checksum", 6), ("", 8))
_ICMP: _Layout = (
    ("ICMP type", 0), ("ICMP code", 1), ("ICMP checksum", 2), ("ICMP identifier", 4), ("ICMP sequence", 6), ("", 8),
)  # fmt: skip
_TRANSPORTS = {1: _ICMP, 6: _TCP, 17: _UDP}
_VLAN_TYPE, _IPV4_TYPE = b"\x81\x00", b"\x08\x00"


def frame_field_at(frame: bytes, offset: int) -> tuple[str, int, int]:
    """(name, first byte, byte after the last) of the field that byte ``offset`` of an Ethernet frame lies in."""
    begin = 0
    for layout, length in _layers(frame):
        for (name, start), (_, end) in pairwise(layout):
            if begin + start <= offset < begin + end:
                return name, begin + start, begin + end
        if offset < begin + length:
            name = "TCP options" if layout is _TCP else "IP options"
            return name, begin + layout[-1][1], begin + length
        begin += length
    return "payload", offset, offset + 1


def _layers(frame: bytes) -> list[tuple[_Layout, int]]:
    """The headers of a frame from the outside in: layout and length in bytes."""
    layers = [(_ETHERNET, 14)]
    kind, offset = frame[12:14], 14
    if kind == _VLAN_TYPE:
        layers.append((_VLAN, 4))
        kind, offset = frame[16:18], 18
    if kind != _IPV4_TYPE or len(frame) <= offset:
        return layers
    layers.append((_IPV4, 4 * (frame[offset] & 0x0F)))
    transport = _TRANSPORTS.get(frame[offset + 9]) if len(frame) > offset + 9 else None
    offset += layers[-1][1]
    if transport is _TCP and len(frame) > offset + 12:
        layers.append((_TCP, 4 * (frame[offset + 12] >> 4)))
    elif transport is not None:
        layers.append((transport, transport[-1][1]))
    return layers
