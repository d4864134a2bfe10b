# SPDX-License-Identifier: Apache-2.0
"""Latency classes with ports of their own, in a run on either backend: each server has the RTT of its class."""

from pathlib import Path

import pytest

from tests.support.sandbox import ROOT
from tests.support.virtual_runs import RESOLUTION_NS, run_virtually

pytestmark = pytest.mark.virtual

EXPERIMENT = ROOT / "tests" / "data" / "port-classes" / "experiment.yaml"
JITTER_MS = 2


@pytest.mark.parametrize("backend", ["engine", "tc"])
def test_each_server_has_the_rtt_of_its_class(tmp_path: Path, backend: str) -> None:
    """Both directions are delayed, and frames of a server without a class pass no delay box."""
    summary = run_virtually(tmp_path, EXPERIMENT, "--backend", backend)
    rtts = summary["terrestrial_rtt_ms"]
    assert {host: rtt["configured"] for host, rtt in rtts.items()} == {"w1": 20, "w2": 80, "w3": 0}
    within_ms = RESOLUTION_NS / 1e6 if backend == "tc" else 1.0
    assert rtts["w1"]["measured"] == pytest.approx(20, abs=within_ms)
    assert rtts["w2"]["measured"] == pytest.approx(80, abs=2 * JITTER_MS + within_ms)
    assert rtts["w3"]["measured"] == pytest.approx(0, abs=within_ms)
