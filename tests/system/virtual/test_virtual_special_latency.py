# SPDX-License-Identifier: Apache-2.0
"""The special server and the whistle host have a terrestrial latency, too: 50 ms on a GEO link, in virtual time."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.support.sandbox import GEO
from tests.support.virtual_runs import RESOLUTION_NS, checks, run_virtually

pytestmark = pytest.mark.virtual

BASE_MS = 550
RESOLUTION_MS = RESOLUTION_NS / 1e6


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    latency = ("--set", "latency.ws=rtt-50", "--set", "latency.wh=rtt-50")
    load = ("--set", "udp={rate: 1 Mbit/s}", "--duration", "12 s")
    return run_virtually(tmp_path_factory.mktemp("special"), GEO, *latency, *load)


def test_the_base_rtt_holds_it(summary: dict[str, Any]) -> None:
    assert summary["base_rtt_ms"] == pytest.approx(BASE_MS, abs=RESOLUTION_MS)
    beyond = checks(Path(summary["run_dir"]))
    assert all(0 <= beyond[pair] <= RESOLUTION_NS for pair in (("ws", "is"), ("wh", "i1")))


def test_queue_sojourn_begins_at_zero(summary: dict[str, Any]) -> None:
    rtts = pl.read_parquet(Path(summary["run_dir"]) / "tables/pings.parquet")["rtt_ns"].drop_nulls()
    assert abs(float(rtts.min()) / 1e6 - BASE_MS) <= RESOLUTION_MS  # pyright: ignore[reportArgumentType]
    assert summary["sojourn_max_ms"] > 0
    assert summary["sojourn_max_ms"] == pytest.approx(summary["rtt_max_ms"] - summary["base_rtt_ms"])


def test_both_are_held_against_their_class(summary: dict[str, Any]) -> None:
    for host in ("ws", "wh"):
        rtt = summary["terrestrial_rtt_ms"][host]
        assert rtt["configured"] == 50
        assert rtt["measured"] == pytest.approx(50, abs=RESOLUTION_MS)


def test_udp_comes_through(summary: dict[str, Any]) -> None:
    assert summary["udp"]["received_packets"] > 0
    assert summary["udp"]["sent_mbit_s"] == pytest.approx(1, rel=0.01)
