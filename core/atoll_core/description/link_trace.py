# SPDX-License-Identifier: Apache-2.0
"""Read and write trace files: a link direction as a function of time (CSV), and lists of lost packets.

docs/traces.md describes both.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from atoll_core.description.referenced_files import FileContent, LineReader
from atoll_core.errors import Diagnostic, shown
from atoll_core.experiment.experiment import LinkTrace, LossTrace, TraceRow
from atoll_core.units import Duration, Rate

MAX_ROWS = 50_000  # steps of 10 ms last 500 s
MAX_TRACE_PACKETS = 500_000
COLUMNS = ("t_s", "rate_bit_s", "delay_ms", "loss", "blocked")

_NUMBER = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?")
_MIN_BIT_S, _MAX_BIT_S = 1000, 100 * 10**9  # as in experiment.yaml
_MAX_DELAY_NS = 60 * 10**9
_MAX_T_NS = 168 * 3600 * 10**9


def read_trace(text: str, file: str) -> FileContent[LinkTrace]:
    """Parse a trace from CSV; ``file`` is its name in messages."""
    reader = LineReader(file, text)
    header = next(reader, None)
    if header is None:
        return FileContent(
            None,
            (Diagnostic(file, 1, "has no rows; a trace begins with a line of column names, such as 't_s,rate_bit_s'"),),
        )
    columns = [name.strip() for name in header.split(",")]
    if problem := _wrong_columns(columns):
        return FileContent(None, (Diagnostic(file, reader.line, problem),))
    rows: list[TraceRow] = []
    lines: list[int] = []
    for cells in reader.rows(columns):
        if row := _read_row(reader, dict(zip(columns, cells, strict=True))):
            _check_order(reader, rows, row)
            rows.append(row)
            lines.append(reader.line)
        if len(rows) > MAX_ROWS:
            reader.note(f"more than {MAX_ROWS} rows; leave out rows that change little")
            break
    if not rows and not reader.mistakes:
        reader.note("there is no row below the column names; add one for t_s 0")
    return FileContent(None if reader.mistakes else LinkTrace(file, tuple(rows)), tuple(reader.mistakes), tuple(lines))


def read_loss_trace(text: str, file: str) -> FileContent[LossTrace]:
    """Parse a loss trace, one packet a line; ``file`` is its name in messages."""
    reader = LineReader(file, text)
    lost: list[bool] = []
    for line in reader:
        if line not in {"0", "1"}:
            reader.note(f"{shown(line)} is neither 0 (the packet passes) nor 1 (it is lost)")
        lost.append(line == "1")
        if len(lost) > MAX_TRACE_PACKETS:
            reader.note(f"more than {MAX_TRACE_PACKETS} packets; write fewer, since the trace repeats")
            break
    if not lost:
        reader.note("has no packets; write a line with 0 (passes) or 1 (lost) for each")
    return FileContent(None if reader.mistakes else LossTrace(file, tuple(lost)), tuple(reader.mistakes))


def loss_trace_text(lost: Iterable[bool], comments: Iterable[str] = ()) -> str:
    """The text of a loss trace below ``comments``; :func:`read_loss_trace` reads it."""
    return "\n".join([*(f"# {comment}" for comment in comments), *("01"[bit] for bit in lost)]) + "\n"


def trace_csv(trace: LinkTrace, comments: Iterable[str] = ()) -> str:
    """The CSV of a trace with the columns that it needs, below ``comments``."""
    used_columns = [column for column in COLUMNS if any(_CELL[column](row) for row in trace.rows)]
    columns = [column for column in COLUMNS if column == "t_s" or column in used_columns]
    lines = [f"# {comment}" for comment in comments]
    lines.append(",".join(columns))
    # No blockage is written as 0; None in another column is an empty cell.
    lines += [
        ",".join(_CELL[column](row) or ("0" if column == "blocked" else "") for column in columns) for row in trace.rows
    ]
    return "\n".join(lines) + "\n"


_CELL: Mapping[str, Callable[[TraceRow], str]] = {
    "t_s": lambda row: _decimal(row.t.ns, 9),
    "rate_bit_s": lambda row: "" if row.rate is None else str(row.rate.bit_s),
    "delay_ms": lambda row: "" if row.delay is None else _decimal(row.delay.ns, 6),
    "loss": lambda row: "" if row.loss is None else f"{Decimal(repr(row.loss)):f}",
    "blocked": lambda row: "1" if row.blocked else "",
}


def _decimal(number: int, digits: int) -> str:
    text = f"{Decimal(number).scaleb(-digits):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _wrong_columns(columns: list[str]) -> str | None:
    unknown = [name for name in columns if name not in COLUMNS]
    names = ", ".join(COLUMNS)
    if unknown:
        return f"unknown column {shown(unknown[0])}; known columns: {names}"
    repeated = [name for name in columns if columns.count(name) > 1]
    if repeated:
        return f"column {repeated[0]} occurs twice; keep one of them"
    if columns[:1] != ["t_s"]:
        return "the first column must be t_s, the time in seconds"
    if len(columns) == 1:
        return f"no column has values that change with time; add one or more of {names}"
    return None


def _check_order(reader: LineReader, rows: list[TraceRow], row: TraceRow) -> None:
    if not rows and row.t.ns:
        reader.note("the first row must have t_s 0; it also applies before the load begins")
    if rows and row.t <= rows[-1].t:
        reader.note(
            f"t_s {_decimal(row.t.ns, 9)} is not later than {_decimal(rows[-1].t.ns, 9)} of the previous row; put "
            "rows in ascending order"
        )


def _read_row(reader: LineReader, cells: Mapping[str, str]) -> TraceRow | None:
    row: dict[str, Any] = {}
    for column, cell in cells.items():
        if cell == "" and column != "t_s":
            continue
        try:
            row[column] = _READERS[column](cell)
        except ValueError as error:
            reader.note(f"{column}: {error}")
            return None
    return TraceRow(row["t_s"], row.get("rate_bit_s"), row.get("delay_ms"), row.get("loss"), row.get("blocked", False))


def _scaled(cell: str, unit: int, minimum: int, maximum: int, allowed: str) -> int:
    """A decimal number in the smallest unit; ``unit``: smallest units in one."""
    if not _NUMBER.fullmatch(cell):
        msg = f"{shown(cell)} is not a number without sign, unit or exponent, such as '62.5'"
        raise ValueError(msg)
    scaled = Decimal(cell) * unit
    if not minimum <= scaled <= maximum:
        msg = f"{cell} is not {allowed}"
        raise ValueError(msg)
    return int(scaled.to_integral_value())


def _read_blocked(cell: str) -> bool:
    if cell not in {"0", "1"}:
        msg = f"{shown(cell)} is neither 0 nor 1"
        raise ValueError(msg)
    return cell == "1"


_PROBABILITY_STEPS = 10**15  # of a probability: the decimals that a float can represent

_READERS: Mapping[str, Callable[[str], Any]] = {
    "t_s": lambda cell: Duration(_scaled(cell, 10**9, 0, _MAX_T_NS, "from 0 to 604800 (168 h)")),
    "rate_bit_s": lambda cell: Rate(_scaled(cell, 1, _MIN_BIT_S, _MAX_BIT_S, "from 1000 to 100000000000")),
    "delay_ms": lambda cell: Duration(_scaled(cell, 10**6, 0, _MAX_DELAY_NS, "from 0 to 60000")),
    "loss": lambda cell: _scaled(cell, _PROBABILITY_STEPS, 0, _PROBABILITY_STEPS, "from 0 to 1") / _PROBABILITY_STEPS,
    "blocked": _read_blocked,
}
