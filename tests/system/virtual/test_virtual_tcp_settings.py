# SPDX-License-Identifier: Apache-2.0
"""TCP settings of an experiment have their effect on the packets of a transfer."""

import json
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from atoll_analysis.run_directory import RunDir
from tests.support.sandbox import ATOLL, QUICK

pytestmark = pytest.mark.virtual

TRANSFER_ALONE = (
    "traffic.channels=0",
    "transfer={size: 400 kB, start: 0 s}",
    "tcp.initial_window=40",
    "links.sat.to_island={rate: 16 Mbit/s, delay: 200 ms, queue: 100 kB}",
)
OTHERS = ("pacing=true", "quick_ack=true", "sack=false", "slow_start_after_idle=false", "hystart=false")


def transferred(folder: Path, settings: tuple[str, ...]) -> tuple[RunDir, pl.DataFrame, pl.DataFrame]:
    """A run, the segments of its transfer, and their acknowledgements."""
    words = [word for setting in (*TRANSFER_ALONE, *settings) for word in ("--set", setting)]
    done = subprocess.run(
        [ATOLL, "run", QUICK, "--on", "virtual", "--json", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    run = RunDir.open(Path(json.loads(done.stdout)["run_dir"]))
    tcp = pl.read_parquet(run.tables / "packets-world.parquet").filter(pl.col("proto") == 6).sort("t_ns")
    return (
        run,
        tcp.filter(pl.col("payload_bytes") > 8),
        tcp.filter((pl.col("to_island") == 0) & (pl.col("payload_bytes") == 0)),
    )


def first_window(segments: pl.DataFrame) -> pl.Series:
    begin_ns: Any = segments["t_ns"][0]
    return segments.filter(pl.col("t_ns") < begin_ns + 150_000_000)["t_ns"]


def test_tcp_settings_have_their_effect(tmp_path: Path) -> None:
    _, segments, acknowledgements = transferred(tmp_path, ())
    window = first_window(segments)
    assert len(window) == 40
    assert window[-1] - window[0] < 1_000_000
    assert acknowledgements.height < 0.7 * segments.height

    others = tuple(f"tcp.{setting}" for setting in OTHERS)
    chunks = ("transfer.write_rate=100 Mbit/s", "transfer.write_chunk=100 kB")  # each is paced, too
    run, segments, acknowledgements = transferred(tmp_path, (*others, *chunks))
    window = first_window(segments)
    assert len(window) == 40
    assert window[-1] - window[0] > 20_000_000
    assert acknowledgements.height >= segments.height
    pinned: dict[str, Any] = run.manifest()["tcp_sysctls"]
    for host, pairs in pinned.items():
        settings = dict(pairs)
        for name in ("tcp_sack", "tcp_slow_start_after_idle"):
            assert settings[f"net.ipv4.{name}"] == "0", host
    assert [host for host, pairs in pinned.items() if ["module.tcp_cubic.hystart", "0"] in pairs] == ["w1"], (
        "one kernel"
    )
