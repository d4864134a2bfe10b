# SPDX-License-Identifier: Apache-2.0
"""Load and links that change during a run: at the nanosecond for the load, and what a seed draws stays the same."""

import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.support.sandbox import ATOLL, QUICK

pytestmark = pytest.mark.virtual

LOAD = ("traffic={channels: 6, flow_sizes: 20 kB}", "udp={rate: 1 Mbit/s, flow_sizes: 10 kB}")
CHANGES = """changes=[
    {at: 2 s, traffic: {channels: 12}},
    {at: 4 s, traffic: {flow_sizes: 10 kB}, udp: {rate: 2 Mbit/s}},
    {at: 6 s, traffic: {channels: 3}},
    {at: 8 s, links: {sat: {to_island: {rate: 8 Mbit/s, delay: 30 ms, queue: 60 kB}}}}]"""


def run(directory: Path, backend: str, *settings: str) -> Path:
    """A valid run of ten seconds."""
    words = [word for setting in settings for word in ("--set", setting)]
    argv = [ATOLL, "run", QUICK, "--on", "virtual", "--backend", backend, "--duration", "10 s", "--json", *words]
    done = subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return Path(json.loads(done.stdout)["run_dir"])


def flows(path: Path) -> list[dict[str, int]]:
    """The clients' flow logs; times in nanoseconds since the load began, servers by their last byte."""
    (window,) = [event for event in events(path) if event["type"] == "window"]
    rows = [row for log in sorted(path.glob("logs/flows-*.csv")) for row in csv.DictReader(log.open(newline=""))]
    return [
        {
            "channel": int(row["channel"]),
            "flow": int(row["flow"]),
            "server": int(row["server"].split(":")[0].split(".")[-1]),
            "size": int(row["size_bytes"]),
            "start_ns": int(row["start_ns"]) - window["start_ns"],
        }
        for row in rows
    ]


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("backend", ["tc", "engine"])
def test_changes_happen_at_their_times_and_a_seed_draws_the_same(tmp_path: Path, backend: str) -> None:
    path = run(tmp_path, backend, *LOAD, CHANGES)
    rows = flows(path)
    second = 10**9
    first = {channel: min(row["start_ns"] for row in rows if row["channel"] == channel) for channel in range(12)}
    assert all(0 <= first[channel] < 10_000_000 for channel in range(6))
    assert all(0 <= first[channel] - 2 * second < 10_000_000 for channel in range(6, 12))
    assert {row["size"] for row in rows if row["start_ns"] < 4 * second} == {20_000}
    assert {row["size"] for row in rows if row["start_ns"] >= 4 * second} == {10_000}
    assert {row["channel"] for row in rows if row["start_ns"] >= 6 * second} == {0, 1, 2}
    assert {row["channel"] for row in rows if 2 * second < row["start_ns"] < 6 * second} == set(range(12))

    drawn = {(row["channel"], row["flow"]): row["server"] for row in flows(run(tmp_path, "tc", "traffic.channels=12"))}
    both = [row for row in rows if (row["channel"], row["flow"]) in drawn]
    assert len(both) > 100
    assert all(row["server"] == drawn[row["channel"], row["flow"]] for row in both)

    summary = json.loads((path / "summary.json").read_text())
    assert [change["failure"] for change in summary["changes"]] == [None] * 4
    assert [change["planned_s"] for change in summary["changes"]] == [2, 4, 6, 8]
    assert all(change["lateness_ms"] < 10 for change in summary["changes"])
    assert summary["udp"]["rate_bit_s"] == 1_600_000
    assert summary["udp"]["sent_mbit_s"] == pytest.approx(1.6, rel=0.001)

    (window,) = [event for event in events(path) if event["type"] == "window"]
    pings = pl.read_parquet(path / "tables" / "pings.parquet").with_columns(
        at_ns=pl.col("sent_ns") - window["start_ns"]
    )
    for since, until, rtt_ms in ((6.1, 7.9, 20), (8.1, 9.9, 40)):
        within = pings.filter(pl.col("at_ns").is_between(since * second, until * second))
        assert min(within["rtt_ns"].to_list()) / 1e6 == pytest.approx(rtt_ms, abs=0.01 if backend == "tc" else 1)
