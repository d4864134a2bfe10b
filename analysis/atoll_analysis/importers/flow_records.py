# SPDX-License-Identifier: Apache-2.0
"""Flow records that other programs exported, as flow sizes: nfdump, Argus, Zeek, or a capture (docs/imports.md).

A flow is one direction of a connection, as in NetFlow; its size is its IP bytes, headers included. A bidirectional
record is two flows; a direction without packets is no flow. nfdump and Argus write several records of a long flow;
these are joined. Flows of IPv6 are left out, as captures are decoded for IPv4.
"""

import gzip
import io
import itertools
import json
import math
import shutil
import tempfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, ip_address
from pathlib import Path
from typing import IO, Any, TextIO, cast

import polars as pl

from atoll_analysis.tables.packet_records import CaptureError, decode, scan_records
from atoll_core.errors import DescriptionError, Diagnostic, shown
from atoll_core.plural import counted

_ETHERNET_HEADER_BYTES = 14  # Argus counts frames
_PCAP_MAGICS = (b"\xa1\xb2\xc3\xd4", b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\x3c\x4d", b"\x4d\x3c\xb2\xa1")
_PCAPNG_MAGIC, _ZSTD_MAGIC = b"\x0a\x0d\x0d\x0a", b"\x28\xb5\x2f\xfd"
_CAPTURE_MAGICS = (*_PCAP_MAGICS, _PCAPNG_MAGIC, _ZSTD_MAGIC)
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_ERRORS = (zlib.error, EOFError, gzip.BadGzipFile)
_GZIP_DAMAGED = "the compressed file is damaged; copy or export it again"
_PROTOCOL_NUMBERS = {"icmp": 1, "tcp": 6, "udp": 17}
_LONGEST_LINE_CHARACTERS = 1_000_000

_MOST_GAP_S = 60.0
"""A record that begins within this time after another one of the same addresses and ports continues it. Exporters end a
flow that is idle for 15 s (Cisco) to 120 s (Argus), and each writes at least one record a packet."""

_REASSEMBLY_NS = 30 * 10**9  # IP_FRAG_TIME of Linux


class Format(StrEnum):
    """File formats of flow records."""

    NFDUMP = "nfdump"
    ARGUS = "argus"
    ZEEK = "zeek"
    PCAP = "pcap"


@dataclass(frozen=True, slots=True)
class FlowFilter:
    """Filter of flows: towards these addresses, of this protocol; None: all."""

    to: IPv4Network | None = None
    protocol: str | None = None  # tcp, udp, icmp

    def matches(self, protocol: str, dst: str) -> bool:
        """Return whether a flow passes the filter. Raises ValueError for what is no address."""
        if self.protocol is not None and protocol.lower() not in (self.protocol, str(_PROTOCOL_NUMBERS[self.protocol])):
            return False
        address = ip_address(dst)
        return address.version == 4 and (self.to is None or address in self.to)


@dataclass(slots=True)
class Import:
    """The sizes of a file's flows, the IP bytes that each address sent in them, and the unreadable records."""

    file_format: Format
    counts: Counter[int] = field(default_factory=Counter[int])
    bytes_by_source: Counter[str] = field(default_factory=Counter[str])
    records: int = 0
    excluded: int = 0  # flows that were not wanted
    joined: int = 0  # records that continue a flow of an earlier one
    damaged: int = 0  # records
    first_damage: str = ""  # place and reason
    truncated: bool = False  # of a capture: it ends within a packet

    @property
    def warnings(self) -> Iterator[str]:
        """What of the file was left out or joined, a line each."""
        if self.damaged:
            count = f"{self.damaged} of {self.records} records are damaged and were left out"
            yield f"{count}; the first: {self.first_damage}"
        if self.joined:
            yield f"{counted(self.joined, 'record')} continue flows of other records and were joined"
        if self.truncated:
            yield "the capture ends in the middle of a packet, which was left out"


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow of a record, or a part of one."""

    protocol: str
    src: str
    dst: str
    ip_bytes: int
    ports: tuple[str, str] | None = None  # None: it is no part
    begin_s: float = 0.0
    end_s: float = 0.0
    opens: bool = False  # begins a TCP connection
    closes: bool = False  # ends one


def import_flows(path: Path, file_format: Format | None, flow_filter: FlowFilter, binary: Callable[[], Path]) -> Import:
    """Return the flows of a file. ``file_format`` None: detected. ``binary``: atoll-host, which reads captures.

    Damaged records are counted and left out. Raises DescriptionError when nothing can be read, RunError if
    captures cannot be decoded here.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="atoll-flows-") as scratch:
            return _import(path, seekable(path, Path(scratch)), file_format, flow_filter, binary)
    except _GZIP_ERRORS:
        raise _error(path, 0, _GZIP_DAMAGED) from None
    except OSError as error:
        raise _error(path, 0, f"cannot be read: {error.strerror or error}") from None


def seekable(path: Path, scratch: Path) -> Path:
    """A file that can be read several times, or a copy of a pipe in the folder ``scratch``. Raises OSError."""
    if path.is_file():
        return path
    copy = scratch / "input"
    with path.open("rb") as pipe, copy.open("wb") as target:
        shutil.copyfileobj(pipe, target)
    return copy


def _import(path: Path, file: Path, kind: Format | None, flow_filter: FlowFilter, binary: Callable[[], Path]) -> Import:
    """``path``: for messages; ``file``: with its content."""
    with file.open("rb") as raw:
        is_gzip = raw.read(2) == _GZIP_MAGIC
    with _open(file, is_gzip=is_gzip) as content:
        beginning = content.read(4)
    if kind is Format.PCAP or (kind is None and beginning in _CAPTURE_MAGICS):
        return _import_capture(path, file, flow_filter, binary())
    with _open(file, is_gzip=is_gzip) as content:
        text = io.TextIOWrapper(content, encoding="utf-8-sig", errors="replace")
        return _import_text(path, text, kind, flow_filter)


def _open(file: Path, *, is_gzip: bool) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(file, "rb")) if is_gzip else file.open("rb")


def _error(path: Path, line: int, message: str) -> DescriptionError:
    return DescriptionError([Diagnostic(str(path), line, message)])


def _import_capture(path: Path, file: Path, flow_filter: FlowFilter, binary: Path) -> Import:
    with tempfile.TemporaryDirectory(prefix="atoll-flows-") as scratch:
        records = Path(scratch) / "records.bin"
        try:
            decoded = decode(file, records, flow_filter.to or IPv4Network("0.0.0.0/0"), binary)
        except CaptureError as error:
            raise _error(path, 0, str(error).replace(str(file), str(path))) from None
        packets = scan_records(records)
        if flow_filter.to is not None:
            packets = packets.filter(pl.col("to_island") == 1)
        if flow_filter.protocol is not None:
            packets = packets.filter(pl.col("proto") == _PROTOCOL_NUMBERS[flow_filter.protocol])
        if decoded.fragments:
            packets = _with_flows_of_fragments(packets)
        flows = packets.group_by("flow", "src", "dst").agg(pl.col("ip_bytes").cast(pl.Int64).sum())
        sizes = flows.collect()
    if sizes.is_empty():
        raise _error(path, 0, "has no IPv4 packets of the selected flows")
    sources = sizes.group_by("src").agg(pl.col("ip_bytes").sum()).rows()
    bytes_by_source = Counter({str(IPv4Address(address)): ip_bytes for address, ip_bytes in sources})
    counts: Counter[int] = Counter(sizes["ip_bytes"].to_list())
    return Import(Format.PCAP, counts, bytes_by_source, records=decoded.packets, truncated=decoded.truncated)


def _with_flows_of_fragments(packets: pl.LazyFrame) -> pl.LazyFrame:
    """The packets; fragments, of which only a datagram's first one has ports, with the flow of that one."""
    datagram = ["src", "dst", "proto", "ip_id"]
    with_ports = (pl.col("sport") != 0) | (pl.col("dport") != 0)
    first_parts = packets.filter(with_ports).select(*datagram, "t_ns", first_flow="flow").sort(*datagram, "t_ns")
    later = packets.filter(~with_ports).sort(*datagram, "t_ns")
    joined = later.join_asof(
        first_parts, on="t_ns", by=datagram, strategy="nearest", tolerance=_REASSEMBLY_NS, check_sortedness=False
    )
    flow = pl.coalesce("first_flow", "flow").alias("flow")
    return pl.concat([packets.filter(with_ports), joined.with_columns(flow).drop("first_flow")])


def _import_text(path: Path, text: TextIO, file_format: Format | None, flow_filter: FlowFilter) -> Import:
    lines = _NumberedLines(path, text)
    first_line = next(lines, "")
    imported = Import(file_format or _detect_format(first_line) or _refuse_unknown(path))
    by_flow: _RecordsByFlow = defaultdict(list)
    try:
        readers = {Format.NFDUMP: _nfdump, Format.ARGUS: _argus, Format.ZEEK: _zeek}
        for read in readers[imported.file_format](first_line, lines):
            imported.records += 1
            try:
                _count(list(read()), flow_filter, imported, by_flow)
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                imported.damaged += 1
                reason = str(error) if isinstance(error, ValueError) else "a column is missing"
                imported.first_damage = imported.first_damage or f"{path}:{lines.number}: {reason}"
    except ValueError as error:
        raise _error(path, lines.number, str(error)) from None
    _join(by_flow, imported)
    if not imported.counts:
        reason = imported.first_damage.partition(": ")[2] or (
            "none of its flows is of IPv4 and matches --to and --protocol" if imported.excluded else "no record"
        )
        raise _error(path, lines.number if imported.damaged else 0, f"has no flow to import: {reason}")
    return imported


_RecordsByFlow = dict[tuple[str, ...], list[tuple[float, float, int, bool, bool]]]
"""By protocol, addresses and ports, of each record: begin, end, size, whether it opens and closes a connection."""


def _count(flows: list[Flow], flow_filter: FlowFilter, imported: Import, by_flow: _RecordsByFlow) -> None:
    for flow in flows:
        if flow.ip_bytes <= 0:
            continue
        if not flow_filter.matches(flow.protocol, flow.dst):
            imported.excluded += 1
            continue
        ip_address(flow.src)  # raises ValueError: the record is damaged
        imported.bytes_by_source[flow.src] += flow.ip_bytes
        if flow.ports is None:
            imported.counts[flow.ip_bytes] += 1
        else:
            record = (flow.begin_s, flow.end_s, flow.ip_bytes, flow.opens, flow.closes)
            by_flow[flow.protocol, flow.src, flow.dst, *flow.ports].append(record)


def _join(by_flow: _RecordsByFlow, imported: Import) -> None:
    """Add the sizes of flows, of which exporters write a long one in several records."""
    for records in by_flow.values():
        size, until_s = 0, 0.0
        for begin_s, end_s, ip_bytes, opens, closes in sorted(records):
            if size and (opens or begin_s > until_s + _MOST_GAP_S):
                imported.counts[size] += 1
                size = 0
            imported.joined += size > 0
            size += ip_bytes
            until_s = -math.inf if closes else max(until_s, end_s)
        imported.counts[size] += 1


class _NumberedLines(Iterator[str]):
    """Lines with their numbers, for messages about damaged ones."""

    def __init__(self, path: Path, text: TextIO) -> None:
        self._path = path
        self._text = text
        self.number = 0

    def __next__(self) -> str:
        """Raises DescriptionError if the file is compressed and damaged."""
        try:
            line = self._text.readline(_LONGEST_LINE_CHARACTERS)
        except _GZIP_ERRORS:
            raise _error(self._path, self.number, f"after this line {_GZIP_DAMAGED}") from None
        if not line:
            raise StopIteration
        self.number += 1
        return line.rstrip("\r\n")


def _refuse_unknown(path: Path) -> Format:
    raise _error(path, 1, f"its first line has no known format; name the format: --format, one of {', '.join(Format)}")


def _detect_format(first_line: str) -> Format | None:
    if first_line.startswith(("#separator", "{")):
        return Format.ZEEK
    columns = set(first_line.split(","))
    if {"sa", "da", "ibyt"} <= columns or {"srcAddr", "dstAddr", "bytes"} <= columns:
        return Format.NFDUMP
    return Format.ARGUS if {"SrcAddr", "DstAddr"} & columns else None


_RecordReaders = Iterator[Callable[[], Iterable[Flow]]]  # each reads its record, and raises if that is damaged


def _require(columns: list[str], needed: Iterable[str], remedy: str) -> None:
    missing = [name for name in needed if name not in columns]
    if missing:
        raise ValueError(f"there is no column {missing[0]}; {remedy}")


# Names before nfdump 1.7.5, which calls them by the names at the right.
_NFDUMP_COLUMNS = {
    "ts": "firstSeen",
    "pr": "proto",
    "sa": "srcAddr",
    "sp": "srcPort",
    "da": "dstAddr",
    "dp": "dstPort",
    "ibyt": "bytes",
    "td": "duration",
}
_NFDUMP_REMEDY = "export with: nfdump -r FILE -o csv (without -q)"


def _nfdump(first_line: str, lines: Iterable[str]) -> _RecordReaders:
    """``nfdump -o csv``: a header, a line for each unidirectional flow, then a summary."""
    header = [name.strip() for name in first_line.split(",")]
    columns = [_NFDUMP_COLUMNS.get(name, name) for name in header]
    names = dict(zip(columns, header, strict=True))
    _require(columns, _NFDUMP_COLUMNS.values(), _NFDUMP_REMEDY)

    def readers() -> _RecordReaders:
        in_summary = False
        for line in lines:
            if line in (first_line, "Summary"):  # a header: of a file that was appended
                in_summary = line == "Summary"
            elif line and not in_summary:
                yield lambda line=line: read(line)

    def read(line: str) -> Iterator[Flow]:
        row = _row(columns, line.split(","))
        src, dst, sport, dport = row["srcAddr"], row["dstAddr"], row["srcPort"], row["dstPort"]
        begin_s, flags = _seconds(names["firstSeen"], row["firstSeen"]), row.get("flg", "")
        span_and_flags = begin_s, begin_s + float(row["duration"]), "S" in flags, "F" in flags or "R" in flags
        yield _record(row["proto"], src, dst, _integer(names["bytes"], row["bytes"]), (sport, dport), *span_and_flags)
        if answer_bytes := _integer("obyt", row.get("obyt", "0")):
            yield _record(row["proto"], dst, src, answer_bytes, (dport, sport), *span_and_flags)

    return readers()


_ARGUS_COLUMNS = (
    *("Proto", "SrcAddr", "Sport", "DstAddr", "Dport", "StartTime", "LastTime"),
    *("SrcPkts", "DstPkts", "SrcBytes", "DstBytes"),
)
_ARGUS_REMEDY = (
    "export with: ra -u -n -c , -r FILE -s "
    "proto,saddr,sport,daddr,dport,stime,ltime,spkts,dpkts,sbytes,dbytes,state - ip"
)
_ARGUS_ENDED = ("FIN", "RST", "CLO")


def _argus(first_line: str, lines: Iterable[str]) -> _RecordReaders:
    """``ra -u -c ,``: a header, a line for each bidirectional flow; management records (``man``) are none."""
    columns = [name.strip() for name in first_line.split(",")]
    _require(columns, _ARGUS_COLUMNS, _ARGUS_REMEDY)

    def read(line: str) -> Iterator[Flow]:
        row = _row(columns, line.split(","))
        if row["Proto"] in ("man", "arp"):
            return
        try:
            span_and_flags = float(row["StartTime"]), float(row["LastTime"]), False, row.get("State") in _ARGUS_ENDED
        except ValueError:
            raise ValueError(f"{shown(row['StartTime'])} is no time in seconds; {_ARGUS_REMEDY}") from None
        sport, dport = row["Sport"], row["Dport"]
        for src, dst, ports in (("Src", "Dst", (sport, dport)), ("Dst", "Src", (dport, sport))):
            count, packets = (_integer(name, row[name]) for name in (f"{src}Bytes", f"{src}Pkts"))
            size = count - _ETHERNET_HEADER_BYTES * packets
            yield _record(row["Proto"], row[f"{src}Addr"], row[f"{dst}Addr"], size, ports, *span_and_flags)

    return ((lambda line=line: read(line)) for line in lines if line and line != first_line)


def _record(
    protocol: str,
    src: str,
    dst: str,
    ip_bytes: int,
    ports: tuple[str, str],
    begin_s: float,
    end_s: float,
    opens: bool,
    closes: bool,
) -> Flow:
    """A flow of TCP or UDP that may be continued; others have no ports."""
    is_tcp = protocol.lower() in ("tcp", "6")
    if not is_tcp and protocol.lower() not in ("udp", "17"):
        return Flow(protocol, src, dst, ip_bytes)
    return Flow(protocol, src, dst, ip_bytes, ports, begin_s, end_s, is_tcp and opens, is_tcp and closes)


_ZEEK_COLUMNS = ("proto", "id.orig_h", "id.resp_h", "orig_ip_bytes", "resp_ip_bytes")


def _zeek(first: str, lines: Iterable[str]) -> _RecordReaders:
    """``conn.log``, tab-separated with its header, or a JSON object a line. Logs may follow one another."""
    if first.startswith("{"):
        return ((lambda line=line: _zeek_flows(_json_row(line))) for line in itertools.chain([first], lines) if line)

    def readers() -> _RecordReaders:
        columns: list[str] = []
        for line in lines:
            if line.startswith("#fields"):
                columns = line.split("\t")[1:]
                _require(columns, _ZEEK_COLUMNS, "this file is not a conn.log, or its Zeek does not count IP bytes")
            elif line and not line.startswith("#"):
                if not columns:
                    break
                yield lambda line=line, columns=columns: _zeek_flows(_row(columns, line.split("\t")))
        if not columns:
            raise ValueError("there is no line '#fields'; a conn.log begins with such lines")

    return readers()


def _zeek_flows(row: Mapping[str, Any]) -> Iterator[Flow]:
    for src, dst in (("orig", "resp"), ("resp", "orig")):
        ip_bytes = row.get(column := f"{src}_ip_bytes", "-")
        size = 0 if ip_bytes == "-" else _integer(column, str(ip_bytes))
        yield Flow(str(row["proto"]), str(row[f"id.{src}_h"]), str(row[f"id.{dst}_h"]), size)


def _json_row(line: str) -> dict[str, Any]:
    try:
        return cast("dict[str, Any]", json.loads(line))
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error.msg}") from None


def _row(columns: list[str], cells: list[str]) -> dict[str, str]:
    if len(cells) != len(columns):
        raise ValueError(f"{len(cells)} cells where the header names {len(columns)} columns")
    return {name: cell.strip() for name, cell in zip(columns, cells, strict=True)}


def _seconds(column: str, text: str) -> float:
    """A time such as 2025-06-27 19:30:01.100. Raises ValueError."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise ValueError(f"{column} is {shown(text)}; write a time such as 2025-06-27 19:30:01.100") from None


def _integer(column: str, text: str) -> int:
    """A number of bytes or packets. Raises ValueError."""
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{column} is {shown(text)}, not a whole number")
    return int(text)
