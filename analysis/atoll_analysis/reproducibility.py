# SPDX-License-Identifier: Apache-2.0
"""Compare two runs: captures and tables to the byte, the summary except keys that depend on place and time.

Files with equal SHA-256 are equal. Of files that differ the first difference is reported: packet, time and field of a
capture, row and column of a table, key of the summary.
"""

import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, cast

from atoll_analysis.run_directory import RunDir
from atoll_analysis.tables.frame_fields import frame_field_at

VOLATILE_KEYS = frozenset({"run_dir", "overhead_s"})
"""Keys of summary.json that tell two runs apart though everything repeats."""

_CHUNK_BYTES = 1 << 20
_PCAP_HEADER_BYTES = 24
_RECORD_HEADER_BYTES = 16


@dataclass(frozen=True, slots=True)
class _FileComparison:
    """Comparison of one file of both runs."""

    file: str  # below the run directory; a capture without the suffix of its compression
    sha256: tuple[str | None, str | None]  # of the uncompressed content; None: there is no such file

    @property
    def is_same(self) -> bool:
        """Whether both runs have the file with the same content."""
        return self.sha256[0] == self.sha256[1] is not None


@dataclass(frozen=True, slots=True)
class RepeatComparison:
    """Comparison of two runs."""

    runs: tuple[str, str]
    files: tuple[_FileComparison, ...]
    first_difference: str | None  # where, and what each of the runs has there

    @property
    def identical(self) -> bool:
        """Whether nothing differs."""
        return self.first_difference is None

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as ``--json`` prints it."""
        return {"identical": self.identical, **asdict(self)}

    def __str__(self) -> str:
        if self.identical:
            captures = sum(file.file.startswith("captures/") for file in self.files)
            tables = sum(file.file.startswith("tables/") for file in self.files)
            return f"identical: {captures} captures, {tables} tables and the summary of {' and '.join(self.runs)}"
        differing = ", ".join(file.file for file in self.files if not file.is_same)
        return f"different: {' and '.join(self.runs)} differ in {differing}\nfirst difference: {self.first_difference}"


def compare_runs(first: RunDir, second: RunDir) -> RepeatComparison:
    """Compare two analysed runs. Raises RunError when one was not analysed."""
    names = sorted(_names(first) | _names(second), key=_sort_key)
    files = [_FileComparison(name, (_sha256(first, name), _sha256(second, name))) for name in names]
    summaries = [_comparable(run.summary()) for run in (first, second)]
    digests = [hashlib.sha256(json.dumps(summary).encode()).hexdigest() for summary in summaries]
    files.append(_FileComparison("summary.json", (digests[0], digests[1])))
    different = next((file for file in files if not file.is_same), None)
    difference = None if different is None else f"{different.file}: {_difference(different, first, second, summaries)}"
    return RepeatComparison((str(first.path), str(second.path)), tuple(files), difference)


def _names(run: RunDir) -> set[str]:
    captures = {f"captures/{path.name.removesuffix('.zst')}" for path in run.captures.glob("*.pcap*")}
    return captures | {f"tables/{path.name}" for path in run.tables.glob("*.parquet")}


def _sort_key(name: str) -> tuple[bool, str]:
    return not name.startswith("captures/"), name  # packets missing in a capture are missing in tables, too


def _comparable(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: figure for key, figure in summary.items() if key not in VOLATILE_KEYS}


def _open(run: RunDir, name: str) -> io.BufferedReader | None:
    """The file's content, uncompressed; None when there is no such file."""
    path = run.path / name
    if path.exists():
        return path.open("rb")
    compressed = path.with_name(f"{path.name}.zst")
    if not compressed.exists():
        return None
    import zstandard

    reader = zstandard.ZstdDecompressor().stream_reader(compressed.open("rb"), closefd=True)
    return io.BufferedReader(cast("io.RawIOBase", reader), _CHUNK_BYTES)


def _sha256(run: RunDir, name: str) -> str | None:
    file = _open(run, name)
    if file is None:
        return None
    with file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# The first difference


def _difference(file: _FileComparison, first: RunDir, second: RunDir, summaries: list[dict[str, Any]]) -> str:
    for run, digest in zip((first, second), file.sha256, strict=True):
        if digest is None:
            return f"not in {run.path}"
    if file.file == "summary.json":
        return _first_key(summaries[0], summaries[1])
    if file.file.startswith("tables/"):
        return _first_cell(first.path / file.file, second.path / file.file)
    first_file, second_file = _open(first, file.file), _open(second, file.file)
    if first_file is None or second_file is None:
        return "the file disappeared while it was read"
    with first_file, second_file:
        return _first_packet(first_file, second_file)


def _first_packet(first: IO[bytes], second: IO[bytes]) -> str:
    """Return the first difference of two captures: number of the packet from 1, its time in both, the field."""
    if first.read(_PCAP_HEADER_BYTES) != second.read(_PCAP_HEADER_BYTES):
        return "the file header"
    first_ns, number = 0, 0
    for number, (a, b) in enumerate(zip(_records(first), _records(second), strict=False), 1):
        first_ns = first_ns or a[0]
        if a != b:
            return f"packet {number}, {(a[0] - first_ns) / 1e9:.9f} s after the first: {_first_field(a, b)}"
    return f"one capture ends after packet {number}, the other has more packets"


def _records(capture: IO[bytes]) -> Iterator[tuple[int, int, bytes]]:
    """Yield (time stamp in ns since 1970, length on the wire, captured bytes) of each whole record."""
    while len(header := capture.read(_RECORD_HEADER_BYTES)) == _RECORD_HEADER_BYTES:
        seconds, nanoseconds, captured, length = (int.from_bytes(header[at : at + 4], "little") for at in (0, 4, 8, 12))
        data = capture.read(captured)
        if len(data) < captured:
            return
        yield seconds * 10**9 + nanoseconds, length, data


def _first_field(a: tuple[int, int, bytes], b: tuple[int, int, bytes]) -> str:
    shift = f", time stamps {abs(a[0] - b[0])} ns apart" if a[0] != b[0] else ""
    if a[2] != b[2]:
        index = next((i for i, (x, y) in enumerate(zip(a[2], b[2], strict=False)) if x != y), min(len(a[2]), len(b[2])))
        name, begin, end = frame_field_at(a[2], index)
        return f"{name} is {a[2][begin:end].hex()} and {b[2][begin:end].hex()} (byte {begin} of the frame){shift}"
    if a[1] != b[1]:
        return f"length is {a[1]} and {b[1]} bytes{shift}"
    return f"time stamp is {a[0]} and {b[0]} ns{shift}"


def _first_cell(first: Path, second: Path) -> str:
    """Return the first difference of two tables: row from 0, column."""
    from atoll_analysis.tables.table_schemas import scan_table

    a, b = (scan_table(path).collect() for path in (first, second))
    if a.schema != b.schema:
        return "its columns"
    for row in range(min(len(a), len(b))):
        for column, first_cell, second_cell in zip(a.columns, a.row(row), b.row(row), strict=True):
            if first_cell != second_cell:
                return f"row {row}, column {column}: {first_cell} and {second_cell}"
    if len(a) != len(b):
        return f"{len(a)} and {len(b)} rows"
    return "the same rows, stored in different bytes"


def _first_key(first: Any, second: Any, where: str = "") -> str:
    if isinstance(first, dict) and isinstance(second, dict):
        first_keys, second_keys = cast("dict[str, Any]", first), cast("dict[str, Any]", second)
        for key in first_keys | second_keys:
            if first_keys.get(key) != second_keys.get(key):
                return _first_key(first_keys.get(key), second_keys.get(key), f"{where}.{key}" if where else key)
    return f"{where}: {first} and {second}"
