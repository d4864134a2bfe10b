# SPDX-License-Identifier: Apache-2.0
"""benchmarks/metrics measures what it says: the quick form of what metrics cost, end to end. Behaviour, no timing."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.influx_servers import Influx2, server_folder

pytestmark = [pytest.mark.lab, pytest.mark.servers]


def test_a_pair_of_runs_with_metrics_and_without(project: Path, tmp_path: Path) -> None:
    """Both tell their departures; points are only in the one. The next sitting would be added to what is stored."""
    server_folder(Influx2.name)
    stored = tmp_path / "pairs.json"
    argv = [project / "benchmarks/metrics/run", "--lateness", "--quick", "--store", stored, "--render", tmp_path]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    known = json.loads(stored.read_text())
    (pair,) = known["pairs"]
    assert pair["without"]["points"] == 0
    assert pair["with"]["points"] > 1000
    for run in pair.values():
        assert run["departures"] > 1000
        assert 0 < run["figures_us"]["p50"] <= run["figures_us"]["p99"] <= run["figures_us"]["max"] * 1.07
    assert "1 pairs of runs of 5 s" in done.stdout
    assert done.stdout.strip() in (tmp_path / "metrics.md").read_text()
    answer = subprocess.run([*argv[:2], "--pairs", "0", "--store", stored], capture_output=True, text=True, check=False)
    assert answer.stdout == done.stdout
