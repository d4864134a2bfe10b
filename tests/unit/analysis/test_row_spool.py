# SPDX-License-Identifier: Apache-2.0
"""Logs of long runs on their way to tables: in parts, in order, and never all of them in memory."""

import json
import tracemalloc
from pathlib import Path

import polars as pl

from atoll_analysis.run_directory import RunDir
from atoll_analysis.tables.job_logs import box_table
from atoll_analysis.tables.row_spool import RowSpool
from atoll_analysis.tables.run_data import read_run_data
from tests.support import synthetic_run

LINES = 5000
MANY = 40_000  # more than are kept in memory
LATE = 600_000  # several of the row groups that the writer of parquet keeps in memory


def test_rows_come_sorted_by_group_and_time_with_nulls_where_nothing_was_said(tmp_path: Path) -> None:
    rows = RowSpool(tmp_path, "x", ["box"], ["t_ns", "count"], "t_ns")
    said = [("ab"[number % 2], number + 7 * (number % 3), number if number % 5 else None) for number in range(MANY)]
    for box, t_ns, count in said:
        rows.append((box,), {"t_ns": t_ns, "count": count})
    assert rows.table().collect().rows() == sorted(said, key=lambda row: row[:2])
    assert RowSpool(tmp_path, "y", [], ["t_ns"], "t_ns").table().collect().schema == {"t_ns": pl.Int64}


def test_rows_that_come_late_are_put_in_order_without_all_in_memory(tmp_path: Path) -> None:
    """A lost ping is told of when its time is over, after later ones."""
    rows = RowSpool(tmp_path, "x", [], ["seq", "came"], "seq")
    lost = [seq for seq in range(LATE) if seq % 97 == 0]
    answer = sorted(range(LATE), key=lambda seq: seq + (30.5 if seq % 97 == 0 else 0))
    for came, seq in enumerate([*answer, *lost[:5]]):
        rows.append((), {"seq": seq, "came": came})
    tracemalloc.start()
    try:
        rows.table().sink_parquet(tmp_path / "table.parquet")
        assert tracemalloc.get_traced_memory()[1] < LATE * 16 / 2
    finally:
        tracemalloc.stop()
    table = pl.read_parquet(tmp_path / "table.parquet")
    assert table.rows() == sorted(zip([*answer, *lost[:5]], range(LATE + 5), strict=True))


def test_counters_of_a_long_run_are_never_all_in_memory(tmp_path: Path) -> None:
    """Some hours of them were gigabytes."""
    run = synthetic_run.begin(tmp_path, synthetic_run.experiment(), synthetic_run.network())
    figures = {f"counter_{i}": 10**12 + i for i in range(30)}
    with (run.path / "link.jsonl").open("w") as file:
        for tick in range(LINES):
            line = {"box": "sat", "type": "counters", "t_ns": tick, "to_island": {**figures, "in_packets": tick}}
            file.write(json.dumps(line) + "\n")
    tracemalloc.start()
    try:
        read_run_data(RunDir.open(run.path))
        table = box_table(run.path / "link.jsonl", tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 6_000_000
    finally:
        tracemalloc.stop()
    assert table.select(pl.len(), pl.col("in_packets").sum()).collect().row(0) == (LINES, LINES * (LINES - 1) // 2)
