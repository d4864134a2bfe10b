# SPDX-License-Identifier: Apache-2.0
"""A saturated link whose rate falls during the run: each figure is by the rate of its instant."""

from pathlib import Path

import polars as pl
import pytest

from tests.support.sandbox import ROOT
from tests.support.virtual_runs import run_virtually

pytestmark = pytest.mark.virtual

FAST, SLOW, QUEUE = 8e6, 2e6, 100_000  # bit/s until FALLS_S, then, bytes
MTU = 1500  # bytes
FALLS_S, ENDS_S = 10, 30
CAPACITY = (FALLS_S * FAST + (ENDS_S - FALLS_S) * SLOW) / 8
EXPERIMENT = f"""\
name: falling-rate
lab: {ROOT}/emulation/labs/island.yaml
duration: {ENDS_S} s
chain: [tap-w, sat, tap-i]
links:
  sat:
    to_island: {{rate: 8 Mbit/s, delay: 100 ms, queue: 100 kB}}
    to_world: {{rate: 4 Mbit/s, delay: 100 ms, queue: 100 kB}}
changes:
  - {{at: {FALLS_S} s, links: {{sat: {{to_island: {{rate: 2 Mbit/s}}}}}}}}
traffic: {{channels: 80}}
"""


@pytest.mark.parametrize("backend", ["engine", "tc"])
def test_utilisation_regime_and_standing_queue_are_by_the_rate_of_each_instant(backend: str, tmp_path: Path) -> None:
    (tmp_path / "falling.yaml").write_text(EXPERIMENT)
    summary = run_virtually(tmp_path, "--backend", backend, "falling.yaml")
    run = Path(summary["run_dir"])
    sent = pl.read_parquet(run / "tables/throughput.parquet").filter(
        (pl.col("capture") == "link-sat") & pl.col("to_island") & pl.col("window").is_between(0, 10 * ENDS_S - 1)
    )
    slow = sent.filter(pl.col("window") >= 10 * FALLS_S + 2)  # packets that were sent before arrive within 100 ms
    assert 8 * int(slow["ip_bytes"].sum()) / (ENDS_S - FALLS_S - 0.2) == pytest.approx(SLOW, rel=0.001)
    assert summary["utilisation"] == pytest.approx(int(sent["ip_bytes"].sum()) / CAPACITY, abs=0.005)
    assert 0.95 < summary["utilisation"] < 0.97, "all but the start of the flows"
    assert (summary["regime"]["regime"], summary["regime"]["utilisation"]) == ("congestion", summary["utilisation"])

    at_s = (pl.col("t_ns") - summary["origin_ns"]) / 1e9  # the end of an interval
    rows = pl.read_parquet(run / "tables/queue.parquet").filter(pl.col("link") == "sat").with_columns(at_s=at_s)
    late = rows.filter(pl.col("at_s") > FALLS_S + 0.2)
    assert not late["idle"].any()
    assert late.filter("full").height > 0.8 * late.height
    rate = pl.when(pl.col("at_s") < FALLS_S + 0.05).then(FAST).otherwise(SLOW)
    stands = rows.filter(pl.col("floor_bytes") > (5e-3 * rate / 8).clip(1500))
    height_ms, seconds = 8e3 * pl.col("floor_bytes") / rate, pl.col("seconds")
    stood_s, mean_ms, max_ms = stands.select(
        seconds.sum().alias("stood"),
        ((height_ms * seconds).sum() / seconds.sum()).alias("mean"),
        height_ms.max().alias("max"),
    ).row(0)
    standing = summary["standing_queue"]
    assert standing["share"] == pytest.approx(stood_s / rows["seconds"].sum(), abs=0.01)
    assert standing["mean_ms"] == pytest.approx(mean_ms, rel=0.01)
    assert standing["max_ms"] == pytest.approx(max_ms, rel=0.01)
    full_ms = 8e3 * QUEUE / SLOW
    sent_ms = 8e3 * MTU / SLOW  # a ping waits for the packet that is being sent, too, and is then sent itself
    assert 0.9 * full_ms < standing["max_ms"] <= summary["ping_sojourn"]["p95_ms"] <= full_ms + sent_ms
