# SPDX-License-Identifier: Apache-2.0
"""Loads other than a closed loop of published sizes, as experiments: what was asked for is what was sent."""

import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.lab.sandbox import ATOLL, ROOT

pytestmark = [pytest.mark.virtual, pytest.mark.timeout(180)]

QUICK = ROOT / "tests" / "data" / "quick.yaml"


def run(directory: Path, *settings: str) -> tuple[Path, dict[str, Any]]:
    """The run directory and the summary of a short run in virtual time."""
    words = [word for setting in settings for word in ("--set", setting)]
    argv = [ATOLL, "run", QUICK, "--on", "virtual", "--duration", "10 s", "--json", *words]
    done = subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    path = Path(json.loads(done.stdout)["run_dir"])
    return path, json.loads((path / "summary.json").read_text())


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
    rows = [row for log in sorted(path.glob("logs/flows-*.csv")) for row in csv.DictReader(log.open(newline=""))]
    assert {row["size_bytes"] for row in rows} == {"5000"}
    assert 150 < len(rows) < 250, "200 are expected, with a standard deviation of 14"
