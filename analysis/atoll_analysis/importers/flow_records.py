# SPDX-License-Identifier: Apache-2.0
"""Flow records that other programs exported, as flow sizes: nfdump, Argus, Zeek, or a capture (docs/imports.md).

A flow is one direction of a connection, as in NetFlow; its size is its IP bytes, headers included. A bidirectional
record is two flows; a direction without packets is no flow.
"""

import csv
import gzip
import itertools
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from pathlib import Path
from typing import Any, TextIO, cast

import polars as pl

from atoll_analysis.tables.packet_records import CaptureError, decode, scan_records
from atoll_core.errors import DescriptionError, Diagnostic, shown

_ETHERNET_HEADER_BYTES = 14  # Argus counts frames
_PCAP_MAGICS = (b"\xa1\xb2\xc3\xd4", b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\x3c\x4d", b"\x4d\x3c\xb2\xa1", b"\x28\xb5\x2f\xfd")
_PCAPNG_MAGIC = b"\x0a\x0d\x0d\x0a"
_GZIP_MAGIC = b"\x1f\x8b"
_NUMBERS = {"icmp": 1, "tcp": 6, "udp": 17}


class Form(StrEnum):
    """File formats of flow records."""

    NFDUMP = "nfdump"
    ARGUS = "argus"
    ZEEK = "zeek"
    PCAP = "pcap"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Filter of flows: towards these addresses, of this protocol; None: all."""

    to: IPv4Network | None = None
    protocol: str | None = None  # tcp, udp, icmp

    def matches(self, protocol: str, dst: str) -> bool:
        """Return whether a flow passes the filter. Raises ValueError for a filtered address that is not IPv4."""
        if self.protocol is not None and protocol.lower() not in (self.protocol, str(_NUMBERS[self.protocol])):
            return False
        return self.to is None or IPv4Address(dst) in self.to


@dataclass(slots=True)
class Imported:
    """The sizes of a file's flows, and its unreadable records."""

    form: Form
    counts: Counter[int] = field(default_factory=Counter[int])
    records: int = 0
    left_out: int = 0  # flows that were not wanted
    damaged: int = 0  # records
    first_damage: str = ""  # place and reason
    truncated: bool = False  # of a capture: it ends within a packet


Flow = tuple[str, str, int]  # protocol, destination, IP bytes


def import_flows(path: Path, form: Form | None, wanted: Wanted, binary: Callable[[], Path]) -> Imported:
    """Return the flows of a file. ``form`` None: detected. ``binary``: the atoll-host executable, which reads captures.

    Damaged records are counted and left out. Raises DescriptionError when nothing can be read, RunError for a capture
    that is none.
    """
    try:
        with path.open("rb") as file:
            beginning = file.read(4096)
        if form is Form.PCAP or (form is None and beginning[:4] in _PCAP_MAGICS):
            return _import_capture(path, wanted, binary())
        if beginning[:4] == _PCAPNG_MAGIC:
            raise _wrong(path, 0, f"is pcapng; make pcap of it: editcap -F pcap {path.name} {path.stem}.pcap")
        with _open_text(path, zipped=beginning[:2] == _GZIP_MAGIC) as text:
            return _import_text(path, text, form, wanted)
    except (OSError, EOFError) as error:
        raise _wrong(path, 0, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _open_text(path: Path, *, zipped: bool) -> TextIO:
    if zipped:
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    return path.open(encoding="utf-8", errors="replace")


def _wrong(path: Path, line: int, message: str) -> DescriptionError:
    return DescriptionError([Diagnostic(str(path), line, message)])


def _import_capture(path: Path, wanted: Wanted, binary: Path) -> Imported:
    with tempfile.TemporaryDirectory(prefix="atoll-flows-") as scratch:
        records = Path(scratch) / "records.bin"
        try:
            decoded = decode(path, records, wanted.to or IPv4Network("0.0.0.0/0"), binary)
        except CaptureError as error:
            raise _wrong(path, 0, str(error)) from None
        packets = scan_records(records)
        if wanted.to is not None:
            packets = packets.filter(pl.col("to_island") == 1)
        if wanted.protocol is not None:
            packets = packets.filter(pl.col("proto") == _NUMBERS[wanted.protocol])
        flows = packets.group_by("flow", "src", "dst").agg(pl.col("ip_bytes").cast(pl.Int64).sum())
        sizes: list[int] = flows.collect()["ip_bytes"].to_list()
    found = Imported(Form.PCAP, Counter(sizes), records=decoded.packets, truncated=decoded.truncated)
    if not sizes:
        raise _wrong(path, 0, "has no IPv4 packets of the selected flows")
    return found


def _import_text(path: Path, text: TextIO, form: Form | None, wanted: Wanted) -> Imported:
    lines = _Lines(text)
    first = next(lines, "")
    found = Imported(form or _form_of(first) or _unknown(path))
    try:
        rows = {Form.NFDUMP: _nfdump, Form.ARGUS: _argus, Form.ZEEK: _zeek}[found.form](first, lines)
    except ValueError as error:
        raise _wrong(path, lines.number, str(error)) from None
    for flows in rows:
        found.records += 1
        try:
            for protocol, dst, size in list(flows()):
                if size <= 0:
                    continue
                if wanted.matches(protocol, dst):
                    found.counts[size] += 1
                else:
                    found.left_out += 1
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            found.damaged += 1
            found.first_damage = found.first_damage or f"{path}:{lines.number}: {_why(error)}"
    if not found.counts:
        why = found.first_damage.partition(": ")[2] or (
            "none of its flows matches --to and --protocol" if found.left_out else "no record"
        )
        raise _wrong(path, lines.number if found.damaged else 0, f"has no flow to import: {why}")
    return found


class _Lines(Iterator[str]):
    """Lines with their numbers, for messages about damaged ones."""

    def __init__(self, text: TextIO) -> None:
        self._text = text
        self.number = 0

    def __next__(self) -> str:
        self.number += 1
        return next(self._text).rstrip("\r\n")


def _why(error: Exception) -> str:
    if isinstance(error, AddressValueError):
        return f"{error} (an IPv4 address)"
    return "a column is missing" if isinstance(error, (LookupError, TypeError, AttributeError)) else str(error)


def _unknown(path: Path) -> Form:
    known = ", ".join(Form)
    raise _wrong(path, 1, f"its first line has no known format; name the format: --format, one of {known}")


def _form_of(first: str) -> Form | None:
    if first.startswith(("#separator", "{")):
        return Form.ZEEK
    columns = first.split(",")
    if {"sa", "da", "ibyt"} <= set(columns):
        return Form.NFDUMP
    return Form.ARGUS if {"SrcAddr", "DstAddr"} & set(columns) else None


_Rows = Iterator[Callable[[], Iterable[Flow]]]  # each reads its record, and raises if that is damaged


def _columns(first: str, separator: str, needed: Iterable[str], remedy: str) -> list[str]:
    columns = [name.strip() for name in first.split(separator)]
    missing = [name for name in needed if name not in columns]
    if missing:
        msg = f"there is no column {missing[0]}; {remedy}"
        raise ValueError(msg)
    return columns


def _nfdump(first: str, lines: Iterable[str]) -> _Rows:
    """``nfdump -o csv``: a header, a line for each unidirectional flow, then a summary."""
    columns = _columns(first, ",", ("pr", "sa", "da", "ibyt"), "export with: nfdump -r FILE -o csv (without -q)")
    both = "obyt" in columns

    def rows() -> _Rows:
        for line in lines:
            if line == "Summary":
                return
            yield lambda line=line: read(line)

    def read(line: str) -> Iterator[Flow]:
        row = _row(columns, line)
        yield row["pr"], row["da"], _whole(row["ibyt"])
        if both and _whole(row["obyt"]):
            yield row["pr"], row["sa"], _whole(row["obyt"])

    return rows()


_ARGUS = ("Proto", "SrcAddr", "DstAddr", "SrcPkts", "DstPkts", "SrcBytes", "DstBytes")
_ARGUS_REMEDY = "export with: ra -n -c , -r FILE -s proto,saddr,daddr,spkts,dpkts,sbytes,dbytes - ip"


def _argus(first: str, lines: Iterable[str]) -> _Rows:
    """``ra -c ,``: a header, a line for each bidirectional flow; management records (``man``) are none."""
    columns = _columns(first, ",", _ARGUS, _ARGUS_REMEDY)

    def read(line: str) -> Iterator[Flow]:
        row = _row(columns, line)
        if row["Proto"] in ("man", "arp", "ipv6"):
            return
        for dst, end in (("DstAddr", "Src"), ("SrcAddr", "Dst")):
            frames, packets = _whole(row[f"{end}Bytes"]), _whole(row[f"{end}Pkts"])
            yield row["Proto"], row[dst], frames - _ETHERNET_HEADER_BYTES * packets

    return ((lambda line=line: read(line)) for line in lines if line)


_ZEEK = ("proto", "id.orig_h", "id.resp_h", "orig_ip_bytes", "resp_ip_bytes")


def _zeek(first: str, lines: Iterable[str]) -> _Rows:
    """``conn.log``, tab-separated with its header, or a JSON object a line."""
    if first.startswith("{"):
        return ((lambda line=line: _zeek_flows(_json_row(line))) for line in itertools.chain([first], lines) if line)
    fields = next((line for line in lines if line.startswith("#fields")), None)
    if fields is None:
        raise ValueError("there is no line '#fields'; a conn.log begins with such lines")
    columns = _columns(fields, "\t", _ZEEK, "this file is not a conn.log, or its Zeek does not count IP bytes")[1:]
    return (
        (lambda line=line: _zeek_flows(_row(columns, line, "\t")))
        for line in lines
        if line and not line.startswith("#")
    )


def _zeek_flows(row: Mapping[str, Any]) -> Iterator[Flow]:
    for dst, end in (("id.resp_h", "orig"), ("id.orig_h", "resp")):
        counted = row.get(f"{end}_ip_bytes", "-")
        yield str(row["proto"]), str(row[dst]), 0 if counted == "-" else _whole(str(counted))


def _json_row(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        msg = f"no JSON: {error.msg}"
        raise ValueError(msg) from None
    return cast("dict[str, Any]", row)


def _row(columns: list[str], line: str, separator: str = ",") -> dict[str, str]:
    cells = [cell for row in csv.reader([line], delimiter=separator) for cell in row]
    if len(cells) != len(columns):
        msg = f"{len(cells)} cells where the header names {len(columns)} columns"
        raise ValueError(msg)
    return {name: cell.strip() for name, cell in zip(columns, cells, strict=True)}


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        msg = f"{shown(text)} is not a number of bytes or packets"
        raise ValueError(msg)
    return int(text)
