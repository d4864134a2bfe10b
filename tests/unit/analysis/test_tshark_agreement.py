# SPDX-License-Identifier: Apache-2.0
"""Packets and bytes of connections as the decoder counts them and as tshark does, on captures with difficulties."""

import random
import re
import shutil
import struct
import subprocess
from collections import Counter
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import polars as pl
import pytest

from atoll_analysis.tables.packet_records import decode, scan_records
from atoll_hosts.binary import find_binary

pytestmark = pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not here (apt install tshark)")

ISLAND = IPv4Network("10.20.0.0/16")
SERVER, CLIENTS = "10.10.0.1", ("10.20.0.1", "10.20.0.2")
SNAP = 96
SEGMENT = 1000

Frames = list[bytes]
End = tuple[str, int]
Counts = dict[tuple[End, End], tuple[int, int, int]]
"""By sender and receiver: packets, IP bytes, bytes of TCP payload."""


def frame(source: End, target: End, seq: int, payload: bytes, *, flags: int = 0x10, vlan: int | None = None) -> bytes:
    """An Ethernet frame with a TCP segment and right checksums of IP."""
    tcp = struct.pack(">HHIIBBHHH", source[1], target[1], seq, 1, 0x50, flags, 65535, 0, 0) + payload
    ends = IPv4Address(source[0]).packed + IPv4Address(target[0]).packed
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), seq & 0xFFFF, 0x4000, 64, 6, 0) + ends
    words = sum(struct.unpack(">10H", header))
    words = (words & 0xFFFF) + (words >> 16)
    header = header[:10] + struct.pack(">H", ~(words + (words >> 16)) & 0xFFFF) + header[12:]
    tag = b"" if vlan is None else struct.pack(">HH", 0x8100, vlan)
    return bytes(12) + tag + b"\x08\x00" + header + tcp


def connections(*, vlan: int | None = None) -> Frames:
    """Two connections, each from its SYN to its FIN, segments of one after those of the other."""
    frames: Frames = []
    for client in CLIENTS:
        near, far = (client, 40000), (SERVER, 5001)
        frames.append(frame(near, far, 0, b"", flags=0x02, vlan=vlan))
        frames.append(frame(far, near, 0, b"", flags=0x12, vlan=vlan))
        for number in range(20):
            data = bytes([number]) * (SEGMENT if number < 19 else 7)
            frames.append(frame(far, near, 1 + number * SEGMENT, data, vlan=vlan))
            frames.append(frame(near, far, 1, b"", vlan=vlan))
        frames.append(frame(far, near, 1 + 19 * SEGMENT + 7, b"", flags=0x11, vlan=vlan))
    return frames


def reordered() -> Frames:
    frames = connections()
    random.Random(1).shuffle(frames)
    return frames


def retransmitted() -> Frames:
    frames = connections()
    data = [each for each in frames if len(each) > SEGMENT]
    return [*frames[:30], data[3], data[3], *frames[30:], data[10], data[25]]


CAPTURES = {
    "plain": (connections(), 65535, 0),
    "reordered": (reordered(), 65535, 0),
    "retransmitted": (retransmitted(), 65535, 0),
    "VLAN tags": (connections(vlan=106), 65535, 0),
    "short snap length": (reordered() + retransmitted(), SNAP, 0),
    "cut-off file": (connections(), 65535, 30),
}


def write_capture(path: Path, frames: Iterable[bytes], snap: int, cut: int) -> None:
    """Write a pcap file with the first ``snap`` bytes of each frame, its last ``cut`` bytes left out."""
    parts = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, snap, 1)]
    for number, each in enumerate(frames):
        kept = each[:snap]
        parts += [struct.pack("<IIII", 1_700_000_000, number * 1000, len(kept), len(each)), kept]
    data = b"".join(parts)
    path.write_bytes(data[: len(data) - cut])


def by_tshark(capture: Path) -> Counts:
    """Frames by conversation as ``-z conv,tcp`` counts them; bytes by the fields of each frame."""
    plain = ["tshark", "-n", "-r", str(capture), "-o", "ip.defragment:FALSE"]
    fields = ["ip.src", "tcp.srcport", "ip.dst", "tcp.dstport", "ip.len", "tcp.len"]
    # A file that ends within a frame makes tshark exit with 2, after all frames before it.
    command = [*plain, "-T", "fields", *(f"-e{each}" for each in fields)]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    frames, sizes, payload = Counter[tuple[End, End]](), Counter[tuple[End, End]](), Counter[tuple[End, End]]()
    for line in listed.stdout.splitlines():
        source, sport, target, dport, size, data = line.split("\t")
        way = (source, int(sport)), (target, int(dport))
        frames[way] += 1
        sizes[way] += int(size)
        payload[way] += int(data)
    table = subprocess.run([*plain, "-q", "-z", "conv,tcp"], capture_output=True, text=True, check=False).stdout
    number = r"\s+(\d+)\s[\d,.]+\s?\w+"
    for match in re.finditer(rf"^(\S+):(\d+)\s+<->\s+(\S+):(\d+){number}{number}", table, re.MULTILINE):
        one, other = (match[1], int(match[2])), (match[3], int(match[4]))
        assert (frames[other, one], frames[one, other]) == (int(match[5]), int(match[6])), match[0]
    assert table.count("<->") == len({frozenset(way) for way in frames})
    return {way: (frames[way], sizes[way], payload[way]) for way in frames}


def by_decoder(capture: Path, folder: Path) -> Counts:
    decode(capture, folder / "records", ISLAND, find_binary())
    rows = (
        scan_records(folder / "records")
        .group_by("src", "sport", "dst", "dport")
        .agg(pl.len(), pl.col("ip_bytes", "payload_bytes").cast(pl.Int64).sum())
        .collect()
    )
    return {
        ((str(IPv4Address(src)), sport), (str(IPv4Address(dst)), dport)): (packets, size, payload)
        for src, sport, dst, dport, packets, size, payload in rows.iter_rows()
    }


@pytest.mark.parametrize("name", CAPTURES)
def test_decoder_and_tshark_count_the_same(tmp_path: Path, name: str) -> None:
    write_capture(tmp_path / "capture.pcap", *CAPTURES[name])
    counted = by_decoder(tmp_path / "capture.pcap", tmp_path)
    assert counted == by_tshark(tmp_path / "capture.pcap")
    assert len(counted) == 4
    assert sum(packets for packets, *_ in counted.values()) >= len(CAPTURES[name][0]) - (1 if "cut" in name else 0)
