# SPDX-License-Identifier: Apache-2.0
"""What a pcap file holds, read without the product's help."""

import struct
from dataclasses import dataclass
from pathlib import Path

import zstandard

_FILE_HEADER = struct.Struct("<IHHiIII")
_RECORD_HEADER = struct.Struct("<IIII")
_NANOSECONDS = 0xA1B23C4D
_ETHERNET = 1


@dataclass(frozen=True)
class Record:
    """One captured frame: instant (ns since 1970), length on the wire, and what was kept of it."""

    t_ns: int
    wire_bytes: int
    kept: bytes


def unpacked(path: Path) -> bytes:
    """The content of a file that zstd has compressed."""
    return zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read()


def read_capture(path: Path) -> list[Record]:
    """The records of a nanosecond pcap file of Ethernet frames; AssertionError if it does not end with a whole one.

    The file may be compressed, as a run directory has it.
    """
    data = unpacked(path) if path.suffix == ".zst" else path.read_bytes()
    magic, _, _, _, _, snap_bytes, link_type = _FILE_HEADER.unpack_from(data)
    assert (magic, link_type) == (_NANOSECONDS, _ETHERNET)
    records: list[Record] = []
    at = _FILE_HEADER.size
    while at < len(data):
        seconds, nanoseconds, kept, wire_bytes = _RECORD_HEADER.unpack_from(data, at)
        at += _RECORD_HEADER.size
        assert nanoseconds < 10**9
        assert kept == min(wire_bytes, snap_bytes)
        assert at + kept <= len(data), "the last record is torn"
        records.append(Record(seconds * 10**9 + nanoseconds, wire_bytes, data[at : at + kept]))
        at += kept
    return records
