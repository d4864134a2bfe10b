# SPDX-License-Identifier: Apache-2.0
"""What the figures are drawn from: a run's summary, description and tables, put on one time axis."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import polars as pl

from atoll.analysis.boxes import CAUSES
from atoll.analysis.losses import cause_of
from atoll.analysis.summary import Summary
from atoll.analysis.tables import WINDOW_NS
from atoll.model.codec import from_json
from atoll.model.experiment import Experiment, Link
from atoll.rundir import RunDir

WINDOW_S = WINDOW_NS / 1e9


@dataclass(frozen=True, slots=True)
class Sources:
    """One analysed run, as the figures and the report read it."""

    summary: Summary
    manifest: Mapping[str, Any]
    experiment: Experiment
    folder: Path  # of the tables

    @property
    def bottleneck(self) -> Link | None:
        """The slowest link of the chain."""
        box = self.summary["bottleneck"]
        return self.experiment.link(box) if box else None

    @property
    def seconds(self) -> float:
        """How much time the figures show: the measurement, or what was planned when there was none."""
        return self.summary["duration_s"] or self.summary["planned_s"]

    def since_start(self, column: str) -> pl.Expr:
        """Seconds since the start of the measurement of an instant in ns."""
        return (pl.col(column) - self.summary["origin_ns"]) / 1e9

    def windows(self) -> pl.LazyFrame:
        """Every 100 ms window of the measurement: window, t_s (its beginning)."""
        count = max(1, round(self.seconds / WINDOW_S))
        window = pl.int_range(count, dtype=pl.Int64)
        return pl.LazyFrame({"window": range(count)}, schema={"window": pl.Int64}).select(
            window=window, t_s=window * WINDOW_S
        )

    def rates(self) -> pl.DataFrame:
        """t_s, throughput and goodput (Mbit/s) of the arrival capture, a row a window; without packets they are 0."""
        seen = self.table("throughput").filter(
            (pl.col("capture") == (self.summary["arrival"] or "")) & pl.col("to_island")
        )
        mbit_s = 8e-6 / WINDOW_S
        return (
            self.windows()
            .join(seen, on="window", how="left")
            .sort("window")
            .select(
                "t_s",
                throughput=pl.col("ip_bytes").fill_null(0) * mbit_s,
                goodput=pl.col("goodput_bytes").fill_null(0) * mbit_s,
            )
            .collect()
        )

    def link_counters(self, box: str) -> pl.DataFrame:
        """t_s, queue_bytes, queue_max_bytes, and what was dropped in each interval, by cause, too; island-bound.

        Causes that the tables of an older version do not tell apart are null.
        """
        causes = [f"dropped_{cause}_packets" for cause in CAUSES]
        rows = self.table("boxes")
        missing = [cause for cause in causes if cause not in rows.collect_schema().names()]
        return (
            rows.with_columns(pl.lit(None, pl.Int64).alias(cause) for cause in missing)
            .filter((pl.col("box") == box) & (pl.col("part") == "to_island"))
            .select(
                "queue_bytes",
                "queue_max_bytes",
                pl.col("dropped_packets", "dropped_bytes", *causes).diff().clip(0),
                t_s=self.since_start("t_ns"),
            )
            .filter(pl.col("t_s").is_between(0, self.seconds + WINDOW_S))
            .collect()
        )

    def drops(self, link: Link) -> tuple[list[float], dict[str, list[int]]]:
        """Packets that a link lost on the way to the island: the ends of intervals (s), and by cause how many in each.

        Causes of which there was no loss are left out; what no cause is known of is ``unknown``.
        """
        counters = self.link_counters(link.box)
        found: dict[str, list[int]] = {}
        for counter in CAUSES:
            packets = counters[f"dropped_{counter}_packets"].fill_null(0).to_list()
            cause = cause_of(counter, link.to_island)
            found[cause] = [a + b for a, b in zip(found.get(cause, [0] * len(packets)), packets, strict=True)]
        known = [sum(each) for each in zip(*found.values(), strict=True)]
        all_of_them = counters["dropped_packets"].fill_null(0).to_list()
        found["unknown"] = [max(0, a - b) for a, b in zip(all_of_them, known, strict=True)]
        return counters["t_s"].to_list(), {cause: packets for cause, packets in found.items() if any(packets)}

    def sojourns(self) -> pl.DataFrame:
        """t_s (when sent) and sojourn_ms of every ping answered; without a base RTT, sojourn_ms is the RTT."""
        base_ms = self.summary["base_rtt_ms"] or 0.0
        return (
            self.table("pings")
            .filter(pl.col("rtt_ns").is_not_null())
            .select(t_s=self.since_start("sent_ns"), sojourn_ms=pl.col("rtt_ns") / 1e6 - base_ms)
            .filter(pl.col("t_s").is_between(0, self.seconds))
            .sort("t_s")
            .collect()
        )

    def concurrent(self) -> pl.DataFrame:
        """t_s, open, receiving: connections of the channels, a row a window."""
        return (
            self.windows()
            .join(self.table("concurrent"), on="window", how="left")
            .sort("window")
            .select("t_s", pl.col("open", "receiving").fill_null(0))
            .collect()
        )

    def chain_rates(self) -> dict[str, list[float]]:
        """Goodput (Mbit/s) of every chain at its arrival capture, window by window; empty if one carries all."""
        if not self.summary["chains"] or self.summary["arrival"] is None:
            return {}
        mbit_s = 8e-6 / WINDOW_S
        seen = self.table("chains")
        return {
            chain: self.windows()
            .join(seen.filter(pl.col("chain") == chain), on="window", how="left")
            .sort("window")
            .select(goodput=pl.col("goodput_bytes").fill_null(0) * mbit_s)
            .collect()["goodput"]
            .to_list()
            for chain in self.summary["chains"]
        }

    def udp(self) -> pl.DataFrame:
        """What reached the UDP receiver, a row each 100 ms.

        t_s (its beginning), mbit_s, lost_packets, reordered_packets, jitter_ms (at its end). Empty without UDP traffic;
        null what an older receiver did not say.
        """
        if self.summary.get("udp") is None:
            return pl.DataFrame()
        counted = pl.col("bytes", "lost_packets", "reordered_packets")
        return (
            self.table("udp")
            .with_columns(counted - counted.shift(1, fill_value=0))
            .select(
                t_s=self.since_start("t_ns") - WINDOW_S,
                mbit_s=pl.col("bytes") * 8e-6 / WINDOW_S,
                lost_packets="lost_packets",
                reordered_packets="reordered_packets",
                jitter_ms=pl.col("jitter_ns") / 1e6,
            )
            .filter(pl.col("t_s").is_between(-WINDOW_S, self.seconds + WINDOW_S))
            .collect()
        )

    @property
    def other_links(self) -> tuple[Link, ...]:
        """The links beside the bottleneck."""
        return tuple(self.experiment.link(box) for box in self.summary["links"] if box != self.summary["bottleneck"])

    def channel_flows(self) -> pl.DataFrame:
        """size_bytes and seconds of every completed flow."""
        return (
            self.table("channel_flows")
            .filter(pl.col("outcome") == "completed")
            .select("size_bytes", seconds=(pl.col("end_ns") - pl.col("start_ns")) / 1e9)
            .filter((pl.col("seconds") > 0) & (pl.col("size_bytes") > 0))
            .collect()
        )

    def table(self, name: str) -> pl.LazyFrame:
        """One table, lazily."""
        return pl.scan_parquet(self.folder / f"{name}.parquet", glob=False)


def read_sources(run: RunDir) -> Sources:
    """Everything the report is made of. Raises RunError when the run was not analysed, RunDirError when it is none."""
    manifest = run.manifest()
    summary = cast("Summary", run.summary())
    return Sources(summary, manifest, from_json(Experiment, manifest["experiment"]), run.tables)
