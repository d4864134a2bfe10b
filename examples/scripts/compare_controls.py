# SPDX-License-Identifier: Apache-2.0
"""Compare the completion times of flows under two congestion controls: compare_controls.py [RUNS [DURATION]]."""

import sys
from pathlib import Path

import polars as pl

import atoll

EXPERIMENT = Path(__file__).parents[1] / "geo.yaml"


def completion_times(control: str, runs: str, duration: str) -> pl.DataFrame:
    """The completed flows of a run in virtual time: bytes, and seconds from request to last byte."""
    run = atoll.run(
        EXPERIMENT,
        runs=runs,
        settings={"tcp.congestion_control": control, "duration": duration, "transfer.start": "0 s"},
    )
    print(f"{control}: {run.verdict}, goodput {run.summary['goodput_mbit_s']:.2f} Mbit/s, {run.path}")
    flows = run.table("channel_flows").filter(pl.col("outcome") == "completed")
    return flows.select(
        "size_bytes", control=pl.lit(control), seconds=(pl.col("end_ns") - pl.col("start_ns")) / 1_000_000_000
    )


def main() -> None:
    """Run both, and print quantiles of completion times."""
    runs, duration = [*sys.argv[1:], *("runs", "60 s")[len(sys.argv) - 1 :]]
    both = pl.concat([completion_times(control, runs, duration) for control in ("cubic", "bbr")])
    print(
        both.group_by("control", maintain_order=True).agg(
            flows=pl.len(),
            median_s=pl.col("seconds").median().round(3),
            p95_s=pl.col("seconds").quantile(0.95).round(3),
        )
    )


if __name__ == "__main__":
    main()
