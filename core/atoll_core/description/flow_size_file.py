# SPDX-License-Identifier: Apache-2.0
"""Read and write files of flow sizes (docs/flow-sizes.md)."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal

from atoll_core.description.referenced_files import FileContent, LineReader
from atoll_core.errors import Diagnostic, shown
from atoll_core.experiment.flow_sizes import SIZE_MAX_BYTES, FlowSizes, curve, from_counts

_SIZE_COLUMNS = ("size_bytes", "size")
_VALUE_COLUMNS = ("count", "probability", "quantile")
_WHOLE_NUMBER = re.compile(r"[0-9]{1,18}")
_DECIMAL = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,30})?(?:[eE]-[0-9]{1,2})?")
_MAX_FLOWS = 10**15
_SUM_TOLERANCE = 1e-3  # of rounded probabilities


def read_flow_sizes(text: str, file: str) -> FileContent[FlowSizes]:
    """Parse a distribution; ``file`` is its name in messages."""
    reader = LineReader(file, text)
    first = next(reader, None)
    if first is None:
        message = "has no sizes; write one size per line, or CSV with the columns size_bytes and count"
        return FileContent(None, (Diagnostic(file, 1, message),))
    columns = [name.strip().lower() for name in first.split(",")]
    if _WHOLE_NUMBER.fullmatch(first):
        sizes = _read_list(reader, first, file)
    elif problem := _wrong_columns(columns):
        reader.note(problem)
        sizes = None
    elif len(columns) == 1:
        sizes = _read_list(reader, None, file)
    else:
        sizes = _read_table(reader, columns, file)
    return FileContent(None if reader.mistakes else sizes, tuple(reader.mistakes))


def flow_sizes_text(counts: Iterable[tuple[int, int]], comments: Iterable[str] = ()) -> str:
    """The CSV of flows counted by size, below ``comments``; ``read_flow_sizes`` reads it."""
    lines = [*(f"# {comment}" for comment in comments), "size_bytes,count"]
    lines += [f"{size},{count}" for size, count in counts]
    return "\n".join(lines) + "\n"


def _wrong_columns(columns: list[str]) -> str | None:
    names = [name for name in columns if name not in _SIZE_COLUMNS]
    unknown = [name for name in names if name not in _VALUE_COLUMNS]
    if unknown:
        if all(_DECIMAL.fullmatch(name) for name in columns):
            return "the first line must name the columns, such as 'size_bytes,count'"
        return f"unknown column {shown(unknown[0])}; known columns: size_bytes, {', '.join(_VALUE_COLUMNS)}"
    if len(columns) - len(names) != 1:
        return "the column size_bytes is missing; add the sizes in bytes"
    if len(names) > 1:
        return f"{names[0]} and {names[1]} exclude each other; keep one of them"
    return None


def _read_list(reader: LineReader, first: str | None, file: str) -> FlowSizes | None:
    counts: Counter[int] = Counter()
    for line in itertools.chain([first] if first else [], reader):
        if size := _read_size(reader, line):
            counts[size] += 1
    if not counts and not reader.mistakes:
        reader.note("there is no size below the column name; add some")
    return from_counts(file, counts) if counts else None


def _read_table(reader: LineReader, columns: list[str], file: str) -> FlowSizes | None:
    size_index = next(index for index, name in enumerate(columns) if name in _SIZE_COLUMNS)
    column = columns[1 - size_index]
    rows: list[tuple[Decimal, int]] = []
    for cells in reader.rows(columns):
        size, value = _read_size(reader, cells[size_index]), _read_value(reader, column, cells[1 - size_index])
        if size and value is not None:
            if column == "quantile":
                _check_quantile(reader, rows, value, size)
            rows.append((value, size))
    if reader.mistakes:
        return None
    if column == "quantile":
        return _read_curve(reader, rows, file)
    weights: dict[int, float] = {}
    for value, size in rows:
        weights[size] = weights.get(size, 0.0) + float(value)
    total = sum(value for value, _ in rows)
    if column == "probability" and abs(float(total) - 1) > _SUM_TOLERANCE:
        reader.note(f"the probabilities add up to {float(total):.6g}; they must add up to 1")
    elif total == 0:
        reader.note("all counts are 0; add a row with a count above 0")
    return from_counts(file, weights) if not reader.mistakes else None


def _read_curve(reader: LineReader, rows: list[tuple[Decimal, int]], file: str) -> FlowSizes | None:
    if len(rows) < 2 or rows[0][0] != 0 or rows[-1][0] != 1:
        reader.note("quantiles begin with 0, the smallest size, and end with 1, the largest")
        return None
    return curve(file, [(float(quantile), size) for quantile, size in rows])


def _check_quantile(reader: LineReader, rows: list[tuple[Decimal, int]], quantile: Decimal, size: int) -> None:
    if rows and quantile - rows[-1][0] < Decimal("1e-9"):
        reader.note(
            f"quantile {quantile} is not larger than {rows[-1][0]}, the quantile of the previous row, by at least "
            "10^-9; put rows in ascending order"
        )
    elif rows and size < rows[-1][1]:
        reader.note(f"size {size} is below {rows[-1][1]}, the size of the previous quantile")


def _read_size(reader: LineReader, cell: str) -> int | None:
    size = int(cell) if _WHOLE_NUMBER.fullmatch(cell) else 0
    if 1 <= size <= SIZE_MAX_BYTES:
        return size
    reader.note(f"{shown(cell)} is not a size; write a whole number of bytes from 1 to 2^53")
    return None


def _read_value(reader: LineReader, column: str, cell: str) -> Decimal | None:
    if column == "count":
        if _WHOLE_NUMBER.fullmatch(cell) and int(cell) <= _MAX_FLOWS:
            return Decimal(cell)
        reader.note(f"{shown(cell)} is not a count; write a whole number of flows")
    else:
        if _DECIMAL.fullmatch(cell) and Decimal(cell) <= 1:
            return Decimal(cell)
        reader.note(f"{shown(cell)} is not a {column}; write a number from 0 to 1, such as 0.25")
    return None
