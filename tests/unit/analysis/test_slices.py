# SPDX-License-Identifier: Apache-2.0
"""Packets in slices: each in exactly one, whatever their order, and the tables are those of the whole."""

from pathlib import Path

import polars as pl
import pytest

from atoll_analysis import analyse
from atoll_analysis.tables import tables
from atoll_analysis.tables.slices import Parts, merged, sink, slices
from atoll_hosts.binary import find_binary
from tests.support import synthetic_run


def test_each_packet_is_in_one_slice_and_each_slice_knows_when_the_later_ones_begin(tmp_path: Path) -> None:
    """Captures are not always in order; connections overlap."""
    packets = pl.LazyFrame({"t_ns": [10, 30, 20, 50, 40, 25, 60], "flow": [0, 1, 2, 0, 3, 4, 5]})
    sink(packets, tmp_path / "packets.parquet")
    found = list(slices(pl.scan_parquet(tmp_path / "packets.parquet"), pl.col("flow"), 2))
    assert [packets.collect().rows() for packets, _ in found] == [
        [(10, 0), (30, 1), (50, 0)],
        [(20, 2), (40, 3)],
        [(25, 4), (60, 5)],
    ]
    assert [later_ns for _, later_ns in found] == [20, 25, None]


def test_a_table_of_parts_has_their_rows_in_order_and_without_any_is_the_empty_one(tmp_path: Path) -> None:
    parts = Parts(tmp_path, "x", pl.LazyFrame(schema={"a": pl.Int64}))
    assert parts.table().collect().schema == {"a": pl.Int64}
    for number in range(12):
        parts.append(pl.LazyFrame({"a": [number, -number]}))
    assert parts.table().collect()["a"].to_list() == [each for n in range(12) for each in (n, -n)]


def test_tables_are_the_same_in_slices_of_whatever_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = synthetic_run.simulate(tmp_path, seconds=5)
    whole = analyse(run, find_binary())
    before = {path.name: pl.read_parquet(path) for path in run.tables.glob("*.parquet")}
    monkeypatch.setattr(tables, "_SLICE_FLOWS", 3)
    monkeypatch.setattr(tables, "_SLICE_WINDOWS", 7)
    assert analyse(run, find_binary()) == whole
    assert len(before["flows.parquet"]) > 30
    for name, frame in before.items():
        assert pl.read_parquet(run.tables / name).equals(frame), name


def test_packets_of_several_captures_are_merged_by_instant(tmp_path: Path) -> None:
    """What reached the island through several chains is put together from a capture of each."""
    one = pl.LazyFrame({"t_ns": [10, 12, 11, 90], "capture": "one"})
    two = pl.LazyFrame({"t_ns": [5, 11, 89, 90], "capture": "two"})
    assert (
        merged([one, two], tmp_path, 2).collect().rows()
        == pl.concat([one, two]).sort("t_ns", maintain_order=True).collect().rows()
    )
    assert len(list(tmp_path.iterdir())) > 1
    assert merged([one.clear(), two.clear()], tmp_path, 2).collect().is_empty()
