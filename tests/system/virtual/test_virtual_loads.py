# SPDX-License-Identifier: Apache-2.0
"""Loads other than a closed loop of published sizes, as experiments: what was asked for is what was sent."""

import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.support.result_schema import assert_as_documented
from tests.support.sandbox import ATOLL, QUICK, ROOT

pytestmark = pytest.mark.virtual

LOADS = ROOT / "examples" / "loads.yaml"


def run(directory: Path, *settings: str, experiment: Path = QUICK) -> tuple[Path, dict[str, Any]]:
    """The run directory and the summary of a short run in virtual time."""
    words = [word for setting in settings for word in ("--set", setting)]
    argv = [ATOLL, "run", experiment, "--on", "virtual", "--duration", "10 s", "--json", *words]
    done = subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    path = Path(json.loads(done.stdout)["run_dir"])
    return path, json.loads((path / "summary.json").read_text())


def flows(path: Path) -> list[dict[str, str]]:
    """The clients' flow logs."""
    return [row for log in sorted(path.glob("logs/flows-*.csv")) for row in csv.DictReader(log.open(newline=""))]


def test_udp_keeps_its_rate_and_an_open_loop_its_arrivals(tmp_path: Path) -> None:
    """UDP of 2 Mbit/s within 1 %, flows of 10 kB; beside it 20 flows a second of 5 kB, Poisson."""
    path, summary = run(
        tmp_path,
        "udp={rate: 2 Mbit/s, flow_sizes: 10 kB}",
        "traffic={channels: 12, flow_sizes: 5 kB, flows_per_s: 20}",
    )
    udp = summary["udp"]
    assert udp["sent_mbit_s"] == pytest.approx(2, rel=0.01)
    assert udp["lost_packets"] == 0
    assert udp["received_mbit_s"] == udp["sent_mbit_s"]
    assert udp["flows_completed"] == pytest.approx(250, abs=5)
    assert 0 < udp["jitter_max_ms"] < 20
    rows = flows(path)
    assert {row["size_bytes"] for row in rows} == {"5000"}
    assert 150 < len(rows) < 250, "200 are expected, with a standard deviation of 14"


def test_flows_of_recorded_sizes_have_that_many_ip_bytes(tmp_path: Path) -> None:
    """From server to client, as a flow record has them: 10 kB with all headers, where nothing is sent twice."""
    path, summary = run(tmp_path, "traffic={channels: 6, flow_sizes: {distribution: 10 kB, counts: ip}}")
    assert {row["size_bytes"] for row in flows(path)} == {"9420"}
    carried: list[int] = (
        pl.scan_parquet(path / "tables" / "flows.parquet")
        .filter(pl.col("capture") == "world", pl.col("sport") == 5001, pl.col("tcp_payload_bytes") == 9420, "ended")
        .select("ip_bytes")
        .collect()["ip_bytes"]
        .to_list()
    )
    assert len(carried) >= summary["flows_completed"] - 6 > 0
    assert max(carried) == 10_000
    assert min(carried) >= 10_000 - 2 * 52, "an acknowledgement or the FIN may leave with payload"


def test_the_example_has_the_loads_it_describes(tmp_path: Path) -> None:
    """Ten seconds of it: a valid run with think times, the least size, the servers' limit, and UDP at its rate."""
    path, summary = run(tmp_path, experiment=LOADS)
    assert_as_documented(path)
    assert summary["udp"]["sent_mbit_s"] == pytest.approx(2, rel=0.01)
    done = [row for row in flows(path) if row["outcome"] == "completed"]
    assert min(int(row["size_bytes"]) for row in done) >= 200
    for row in done:
        seconds = (int(row["end_ns"]) - int(row["first_byte_ns"])) / 1e9
        if int(row["size_bytes"]) > 100_000:
            assert 8 * int(row["size_bytes"]) / seconds < 1.05 * 4e6
    ended: dict[str, int] = {}
    pauses_s: list[float] = []
    for row in sorted(done, key=lambda row: (int(row["channel"]), int(row["flow"]))):
        if (before := ended.get(row["channel"])) is not None:
            pauses_s.append((int(row["start_ns"]) - before) / 1e9)
        ended[row["channel"]] = int(row["end_ns"])
    assert len(pauses_s) > 100
    assert min(pauses_s) >= 0
    assert 1.2 < sum(pauses_s) / len(pauses_s) < 2.5, "2 s are meant; long ones are cut off by the end"


def test_clients_receive_the_flows_of_udp_in_turn(tmp_path: Path) -> None:
    path, summary = run(tmp_path, "udp={rate: 2 Mbit/s, flow_sizes: 10 kB, receivers: clients}")
    udp = summary["udp"]
    assert udp["receivers"] == 6
    assert udp["received_packets"] == udp["sent_packets"] - udp["lost_packets"] > 0
    assert udp["sent_mbit_s"] == pytest.approx(2, rel=0.01)
    flows = pl.read_parquet(path / "tables" / "flows.parquet").filter(protocol="udp", capture="world")
    shares = flows.group_by("client").agg(pl.col("ip_bytes").sum())["ip_bytes"].to_list()
    assert len(shares) == 6
    assert max(shares) <= min(shares) + 2 * 10_000
