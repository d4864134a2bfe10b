# SPDX-License-Identifier: Apache-2.0
"""Packets as fixed-size records: made from captures by `atoll-host pcap records`, read by Polars."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from atoll_analysis.run_directory.atomic_files import error_from_message
from atoll_analysis.tables.directions import TO_ISLAND, Direction
from atoll_core.clone import remedy
from atoll_core.errors import RunError

RECORD = np.dtype(
    [
        ("t_ns", "<i8"),  # capture instant, CLOCK_REALTIME
        ("src", "<u4"),  # IPv4 address as a number
        ("dst", "<u4"),
        ("ip_bytes", "<u4"),  # total length of the IP packet, as its header says it
        ("payload_bytes", "<u4"),  # of TCP, UDP or ICMP
        ("new_payload_bytes", "<u4"),  # TCP: bytes never seen before at this capture
        ("seq", "<u4"),
        ("ack", "<u4"),
        ("flow", "<u4"),  # index of the 5-tuple, both directions one
        ("window", "<u4"),
        ("sport", "<u2"),  # ICMP echo: identifier
        ("dport", "<u2"),  # ICMP echo: sequence
        ("ip_id", "<u2"),
        ("vlan", "<u2"),  # 0: untagged
        ("proto", "u1"),
        ("tcp_flags", "u1"),
        ("to_island", "u1"),  # 1: destination in the island's prefix
        ("icmp_type", "u1"),
        ("reserved", "V8"),
    ]
)
"""Layout of one record, 64 bytes, little endian (docs/contracts.md, "flows and pcap")."""

ETHERNET_HEADER_BYTES = 14
ICMP, TCP, UDP = 1, 6, 17
ECHO_REQUEST = 8

_POLARS_TYPES: dict[str, type[pl.DataType]] = {"<i8": pl.Int64, "<u4": pl.UInt32, "<u2": pl.UInt16, "|u1": pl.UInt8}
SCHEMA: dict[str, type[pl.DataType]] = {
    name: _POLARS_TYPES[RECORD[name].str] for name in RECORD.names or () if name != "reserved"
}
"""Columns of a packets table: the record's fields without the reserved bytes."""

# Polars imports NumPy when it first sees an array, and fails with a TypeError when two threads make it do so at once
# (2.1: `_LazyModule._import`). Batches are read in threads of its own: it sees one now, while there are none.
pl.Series(np.empty(0, np.uint8))

_BATCH_RECORDS = 1 << 17  # records a batch: 8 MB, so that a capture of any length takes the same memory


@dataclass(frozen=True, slots=True)
class Decoded:
    """The decoder's report on one capture."""

    packets: int
    other_frames: int  # not IPv4, or left out
    truncated: bool  # the file ends within a packet; it was read up to there
    senders: tuple[tuple[str, str, bool], ...] = ()
    """IPv4 addresses, each with a MAC address in lower case and whether an ARP packet claimed it for that one."""
    fragments: int = 0  # packets that are parts of larger ones


class CaptureError(RunError):
    """A capture that the decoder refuses."""


def decode(
    capture: Path, out: Path | None, island: IPv4Network, binary: Path, *, control_network: IPv4Network | None = None
) -> Decoded:
    """Decode a capture (pcap or pcapng, or compressed) into a file of records; ``island``: its prefix.

    ``out``: None if records are only to be counted. ``control_network``: of in-band control; packets between two of
    its addresses are left out. Raises RunError with the decoder's own line.
    """
    words = ["records", str(capture), *([str(out)] if out else []), "--side", str(island)]
    if control_network is not None:
        words += ["--without", str(control_network)]
    report = _pcap(binary, words, capture, out)
    return Decoded(
        packets=int(report["packets"]),
        other_frames=int(report.get("other_frames", 0)),
        truncated=bool(report.get("truncated", False)),
        senders=tuple((sender["address"], sender["mac"], sender["arp"]) for sender in report.get("senders", ())),
        fragments=int(report.get("fragments", 0)),
    )


def convert(capture: Path, out: Path, binary: Path, clock: tuple[int, float, int] | None = None) -> None:
    """Write a capture as pcap with nanoseconds. A cut one stays cut. Raises RunError with the converter's own line.

    ``clock``: how far the capture's clock is ahead in ns, how fast it is in parts of 10^9, and since when in ns since
    1970; instants are corrected by that.
    """
    options = [] if clock is None else ["--clock", ",".join(map(str, clock))]
    _pcap(binary, ["convert", str(capture), str(out), *options], capture, out)


def _pcap(binary: Path, words: list[str], capture: Path, out: Path | None) -> dict[str, Any]:
    """The report of `atoll-host pcap`."""
    try:
        result = subprocess.run([str(binary), "pcap", *words], capture_output=True, text=True, check=False)
    except OSError as error:
        advice = remedy("`make setup` builds it", "install atoll again")
        msg = f"{binary} cannot be started ({error.strerror}); {advice}"
        raise RunError(msg) from error
    if result.returncode != 0:
        error_lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
        refusal = CaptureError(f"{capture.name} cannot be decoded: {error_lines[-1]}")
        raise error_from_message(out or capture, error_lines[-1], refusal)
    return json.loads(result.stdout.strip().splitlines()[-1])


def bound(direction: Direction) -> pl.Expr:
    """Whether a row of packets has this direction."""
    return pl.col("to_island") == (1 if direction is TO_ISLAND else 0)


def scan_records(path: Path) -> pl.LazyFrame:
    """The records of a file as a lazy Polars table (columns of SCHEMA), read in batches."""

    def batches(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        remaining = path.stat().st_size // RECORD.itemsize if n_rows is None else n_rows
        with path.open("rb") as file:  # read and not mapped: pages of a mapped file count as this process's memory
            while True:
                records = np.fromfile(file, RECORD, min(remaining, batch_size or _BATCH_RECORDS))
                remaining -= len(records)
                frame = pl.DataFrame({name: np.ascontiguousarray(records[name]) for name in SCHEMA}, schema=SCHEMA)
                if predicate is not None:
                    frame = frame.filter(predicate)
                yield frame if with_columns is None else frame.select(with_columns)
                if len(records) == 0 or remaining == 0:
                    return

    return register_io_source(batches, schema=SCHEMA, is_pure=True)
