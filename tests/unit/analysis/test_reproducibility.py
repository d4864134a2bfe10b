# SPDX-License-Identifier: Apache-2.0
"""What repeats and what does not: two runs compared, and the first difference named."""

import json
import struct
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from scapy.layers.inet import ICMP, IP, TCP
from scapy.layers.l2 import Dot1Q, Ether

from atoll_analysis.reproducibility import RepeatComparison, compare_runs
from atoll_analysis.run_directory import RunDir
from atoll_analysis.tables.frame_fields import frame_field_at

HEADER = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 96, 1)
FRAMES = [bytes(Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(seq=number) / b"payload") for number in range(5)]


def capture(frames: list[bytes], gap_ns: int = 1000) -> bytes:
    records = [
        struct.pack("<IIII", 1, number * gap_ns, len(frame), len(frame)) + frame for number, frame in enumerate(frames)
    ]
    return HEADER + b"".join(records)


def make_run(base: Path, *, pcap: bytes, table: dict[str, list[Any]] | None = None, **summary: Any) -> RunDir:
    run_dir = RunDir.create(base, "x", 0)
    (run_dir.captures / "world.pcap").write_bytes(pcap)
    run_dir.tables.mkdir()
    pl.DataFrame(table or {"window": [1, 2, 3]}).write_parquet(run_dir.tables / "flows.parquet")
    run_dir.write_summary({"run_dir": str(run_dir.path), "goodput": 1.0, **summary})
    return run_dir


def compared(base: Path, first: dict[str, Any], second: dict[str, Any]) -> RepeatComparison:
    alike: dict[str, Any] = {"pcap": capture(FRAMES)}
    return compare_runs(make_run(base, **(alike | first)), make_run(base, **(alike | second)))


def test_equal_runs_are_identical_whatever_they_are_called(tmp_path: Path) -> None:
    comparison = compared(tmp_path, {"overhead_s": 1.0}, {"overhead_s": 2.0})
    assert comparison.identical
    assert str(comparison).startswith("identical: 1 captures, 1 tables and the summary of ")
    assert json.loads(json.dumps(comparison.to_json()))["identical"] is True


def test_a_compressed_capture_equals_the_one_it_was(tmp_path: Path) -> None:
    first, second = make_run(tmp_path, pcap=capture(FRAMES)), make_run(tmp_path, pcap=capture(FRAMES))
    second.compress_captures()
    assert compare_runs(first, second).identical


@pytest.mark.parametrize(
    ("other", "answer"),
    [
        ({"pcap": capture([*FRAMES[:3], FRAMES[4], FRAMES[4]])}, "captures/world.pcap: packet 4, 0.000003000 s after"),
        ({"pcap": capture([*FRAMES[:3], FRAMES[4], FRAMES[4]])}, "TCP sequence number is 00000003 and 00000004"),
        ({"pcap": capture(FRAMES, 1001)}, "packet 2, 0.000001000 s after the first: time stamp is"),
        ({"pcap": capture(FRAMES, 1001)}, "1 ns apart"),
        ({"pcap": capture(FRAMES[:4])}, "one capture ends after packet 4, the other has more packets"),
        ({"table": {"window": [1, 2, 4]}}, "tables/flows.parquet: row 2, column window: 3 and 4"),
        ({"table": {"window": [1, 2]}}, "tables/flows.parquet: 3 and 2 rows"),
        ({"table": {"other": [1, 2, 3]}}, "tables/flows.parquet: its columns"),
        ({"goodput": 2.0}, "summary.json: goodput: 1.0 and 2.0"),
        ({"links": {"sat": {"loss": 1}}}, "summary.json: links: None and {'sat': {'loss': 1}}"),
    ],
)
def test_the_first_difference_is_named(tmp_path: Path, other: dict[str, Any], answer: str) -> None:
    comparison = compared(tmp_path, {}, other)
    assert not comparison.identical
    assert comparison.first_difference is not None
    assert answer in comparison.first_difference
    assert str(comparison).startswith("different: ")


def test_captures_come_before_what_is_made_of_them(tmp_path: Path) -> None:
    comparison = compared(tmp_path, {}, {"pcap": capture(FRAMES[:4]), "table": {"window": [1]}, "goodput": 2.0})
    assert comparison.first_difference is not None
    assert comparison.first_difference.startswith("captures/world.pcap: ")


def test_a_capture_that_one_run_lacks_is_a_difference(tmp_path: Path) -> None:
    first, second = make_run(tmp_path, pcap=capture(FRAMES)), make_run(tmp_path, pcap=capture(FRAMES))
    (second.captures / "world.pcap").unlink()
    assert compare_runs(first, second).first_difference == f"captures/world.pcap: not in {second.path}"


@pytest.mark.parametrize(
    ("frame", "at", "name"),
    [
        (Ether() / IP() / TCP(), 0, "destination MAC"),
        (Ether() / IP() / TCP(), 14 + 8, "TTL"),
        (Ether() / Dot1Q(vlan=7) / IP() / TCP(), 15, "VLAN tag"),
        (Ether() / Dot1Q(vlan=7) / IP() / TCP(), 18 + 12, "source address"),
        (Ether() / IP() / TCP(), 14 + 20 + 15, "TCP window"),
        (Ether() / IP() / TCP(options=[("MSS", 1460)]), 14 + 20 + 21, "TCP options"),
        (Ether() / IP() / ICMP() / b"data", 14 + 20 + 6, "ICMP sequence"),
        (Ether() / IP() / ICMP() / b"data", 14 + 20 + 8, "payload"),
        (Ether(type=0x88B5) / b"data", 14, "payload"),
    ],
)
def test_every_byte_of_a_frame_has_a_name(frame: Any, at: int, name: str) -> None:
    found, begin, end = frame_field_at(bytes(frame), at)
    assert found == name
    assert begin <= at < end


def test_a_cut_frame_is_named_as_far_as_it_goes() -> None:
    whole = bytes(Ether() / IP() / TCP() / b"payload")
    for length in range(1, len(whole)):
        assert frame_field_at(whole[:length], length - 1)[0] != ""
