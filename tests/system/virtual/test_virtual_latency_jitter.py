# SPDX-License-Identifier: Apache-2.0
"""Jitter of all terrestrial latencies keeps packets in order, unless the delay box may reorder them."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.sandbox import GEO
from tests.support.virtual_runs import run_virtually

pytestmark = pytest.mark.virtual

JITTER = (
    *("--set", "lab.delay_boxes.delay.jitter=60 %", "--set", "latency={ws: rtt-50, wh: rtt-50}"),
    *("--set", "udp={rate: 8 Mbit/s}", "--set", "traffic.channels=0", "--set", "transfer=null", "--duration", "12 s"),
)


@pytest.mark.parametrize("backend", ["engine", "tc"])
def test_jitter_reorders_where_it_may(tmp_path: Path, backend: str) -> None:
    def udp(*settings: str) -> dict[str, Any]:
        summary = run_virtually(tmp_path, GEO, "--backend", backend, *JITTER, *settings)
        rtt = summary["terrestrial_rtt_ms"]["ws"]
        assert rtt["measured"] == pytest.approx(50, abs=30)  # the sum of both directions' jitter
        return summary["udp"]

    assert udp()["reordered_packets"] == 0
    assert udp("--set", "lab.delay_boxes.delay.reorder=true")["reordered_packets"] > 100
