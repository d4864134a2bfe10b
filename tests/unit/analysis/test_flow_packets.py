# SPDX-License-Identifier: Apache-2.0
"""Packets and rates of hand-made connections, with giants and without."""

from pathlib import Path

import polars as pl
import pytest

from atoll_analysis.figures.flow_packets import flow_packets
from atoll_analysis.figures.observables import client_losses
from atoll_analysis.tables.directions import TO_WORLD
from atoll_analysis.tables.packet_records import SCHEMA, TCP, UDP
from atoll_analysis.tables.tables import Tables

PORT = 5001
Packet = tuple[int, float, int]  # flow, seconds, new payload in bytes


def captured(folder: Path, *packets: Packet, sport: int = PORT, proto: int = TCP, to_island: int = 1) -> Tables:
    rows = [
        {**dict.fromkeys(SCHEMA, 0), "flow": flow, "t_ns": round(seconds * 1e9), "new_payload_bytes": octets}
        | {"sport": sport, "proto": proto, "to_island": to_island}
        for flow, seconds, octets in packets
    ]
    pl.DataFrame(rows, schema=SCHEMA).write_parquet(folder / "packets-island.parquet")
    return Tables(folder, 0, {}, "island")


def test_packets_times_between_them_and_rates_are_of_connections(tmp_path: Path) -> None:
    """2 MB in 2 s are 8 Mbit/s, which is not below 8; the most in a second are 1.5 MB."""
    fast = [(1, 0.5, 0), (1, 1.1, 500_000), (1, 1.9, 1_000_000), (1, 2.5, 500_000)]
    slow = [(2, 0.0, 0), (2, 1.0, 500_000)]
    figures = flow_packets(captured(tmp_path, *fast, *slow), PORT)
    assert figures["all"] == {
        "flows": 2,
        "packets_p50": 3.0,
        "packets_p95": pytest.approx(3.9),
        "gap_p50_ms": pytest.approx((2000 / 3 + 1000) / 2),
        "gap_p95_ms": pytest.approx(1000 - 0.05 * 1000 / 3),
        "bytes_below_4_mbit_s_share": 0.0,
        "bytes_below_8_mbit_s_share": 0.2,
        "peak_mbit_s": pytest.approx(12),
    }


def test_giants_are_left_out_of_the_second_figures(tmp_path: Path) -> None:
    figures = flow_packets(captured(tmp_path, (1, 0, 50_000_000), (1, 100, 0), (2, 0, 1000), (2, 1, 0)), PORT)
    assert [figures[name]["flows"] for name in ("all", "to 40 MB")] == [2, 1]
    assert figures["to 40 MB"]["bytes_below_4_mbit_s_share"] == 1.0
    assert figures["to 40 MB"]["peak_mbit_s"] == pytest.approx(0.008)


def test_a_connection_of_one_packet_has_no_time_between_packets(tmp_path: Path) -> None:
    assert flow_packets(captured(tmp_path, (1, 0, 100)), PORT)["all"]["gap_p50_ms"] is None


def test_other_packets_are_no_connections_of_channels(tmp_path: Path) -> None:
    packets = ((1, 0.0, 100), (1, 1.0, 100))
    assert flow_packets(captured(tmp_path, *packets, sport=5201), PORT) == {}
    assert flow_packets(captured(tmp_path, *packets, proto=UDP), PORT) == {}
    assert flow_packets(captured(tmp_path, *packets, to_island=0), PORT) == {}
    assert flow_packets(captured(tmp_path, (1, 0, 0)), PORT) == {}


def test_requests_of_downloads_are_no_connections_that_upload(tmp_path: Path) -> None:
    rows = [{**dict.fromkeys(SCHEMA, 0), "new_payload_bytes": 8, "dport": PORT, "proto": TCP, "src": 7}]
    pl.DataFrame(rows, schema=SCHEMA).write_parquet(tmp_path / "packets-world.parquet")
    tables = Tables(tmp_path, 0, {}, None, "world")
    assert flow_packets(tables, PORT, TO_WORLD) == {}
    assert flow_packets(tables, PORT, TO_WORLD, [7])["all"]["flows"] == 1


def test_the_loss_of_a_client_is_the_payload_that_its_captures_differ_by(tmp_path: Path) -> None:
    rows = {
        "capture": ["world", "world", "island", "world", "island", "world"],
        "client": ["i1", "i1", "i1", "i2", "i2", "i3"],
        "tcp_payload_bytes": [600, 400, 900, 500, 500, 0],
    }
    pl.DataFrame(rows).write_parquet(tmp_path / "flows.parquet")
    assert client_losses(Tables(tmp_path, 0, {}, "island")) == {"i1": pytest.approx(0.1), "i2": 0.0}
