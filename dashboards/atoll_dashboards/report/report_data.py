# SPDX-License-Identifier: Apache-2.0
"""Data of the figures: a run's summary, description and tables on one time axis."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl

from atoll_analysis.figures.losses import cause_of
from atoll_analysis.run_directory import RunDir
from atoll_analysis.summary import Summary, of_direction
from atoll_analysis.tables.box_counters import COUNTER_CAUSES
from atoll_analysis.tables.change_timeline import direction_over_time
from atoll_analysis.tables.directions import TO_ISLAND, Direction, table_name
from atoll_analysis.tables.packet_records import bound
from atoll_analysis.tables.table_schemas import scan_table
from atoll_analysis.tables.tables import WINDOW_NS
from atoll_core.codec import from_json
from atoll_core.experiment.experiment import Experiment, Link
from atoll_core.experiment.link_over_time import LinkOverTime

WINDOW_S = WINDOW_NS / 1e9
MBIT_S = 8e-6 / WINDOW_S
"""Bytes of a window as a rate."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Data of one analysed run for figures and report."""

    summary: Summary
    manifest: Mapping[str, Any]
    experiment: Experiment
    folder: Path  # of the tables
    events: tuple[Mapping[str, Any], ...]

    def figures(self, direction: Direction) -> Mapping[str, Any]:
        """The figures of a direction; empty if the run has none of it."""
        return of_direction(self.summary, direction)

    def bottleneck(self, direction: Direction = TO_ISLAND) -> Link | None:
        """The slowest link of the chain."""
        box = self.figures(direction).get("bottleneck")
        return self.experiment.link(box) if box else None

    def link_over_time(self, link: Link, direction: Direction = TO_ISLAND) -> LinkOverTime:
        """A link's direction over time."""
        return direction_over_time(self.experiment, self.events, self.summary["origin_ns"], link.box, direction)

    @property
    def seconds(self) -> float:
        """The duration of the figures: that of the measurement, or as planned if there was none."""
        return self.summary["duration_s"] or self.summary["planned_s"]

    @property
    def measured_ns(self) -> tuple[int, int]:
        """Begin and end of the time that the figures show (CLOCK_REALTIME)."""
        begin_ns = self.summary["origin_ns"]
        return begin_ns, begin_ns + round(1e9 * self.seconds)

    def since_start(self, column: str) -> pl.Expr:
        """Seconds since the start of the measurement of an instant in ns."""
        return (pl.col(column) - self.summary["origin_ns"]) / 1e9

    def in_windows(self, rows: pl.LazyFrame, *columns: str) -> pl.DataFrame:
        """t_s (its beginning) and these columns for every 100 ms window of the measurement; 0 where there is no row."""
        count = max(1, round(self.seconds / WINDOW_S))
        is_in_measurement = pl.col("window").is_between(0, count, closed="left")
        measured = rows.filter(is_in_measurement).select("window", *columns).collect(engine="streaming")
        filled = {"t_s": np.arange(count) * WINDOW_S, **{column: np.zeros(count) for column in columns}}
        for column in columns:
            filled[column][measured["window"].to_numpy()] = measured[column]
        return pl.DataFrame(filled)

    def rates(self, direction: Direction = TO_ISLAND) -> pl.DataFrame:
        """t_s, throughput and goodput (Mbit/s) of the arrival capture of a direction, a row a window."""
        at_arrival = (pl.col("capture") == (self.figures(direction)["arrival"] or "")) & bound(direction)
        columns = {"throughput": pl.col("ip_bytes") * MBIT_S, "goodput": pl.col("goodput_bytes") * MBIT_S}
        return self.in_windows(self.table("throughput").filter(at_arrival).select("window", **columns), *columns)

    def link_counters(self, box: str, direction: str = "to_island") -> pl.LazyFrame:
        """t_s, queue_bytes, queue_max_bytes, and the packets dropped in each interval, by cause, too, in one direction.

        Causes that the tables of an older version do not distinguish are null.
        """
        causes = [f"dropped_{cause}_packets" for cause in COUNTER_CAUSES]
        rows = self.table("boxes")
        missing = [cause for cause in causes if cause not in rows.collect_schema().names()]
        return (
            rows.with_columns(pl.lit(None, pl.Int64).alias(cause) for cause in missing)
            .filter((pl.col("box") == box) & (pl.col("part") == direction))
            .select(
                "queue_bytes",
                "queue_max_bytes",
                pl.col("dropped_packets", *causes).diff().clip(0),
                t_s=self.since_start("t_ns"),
            )
            .filter(pl.col("t_s").is_between(0, self.seconds + WINDOW_S))
        )

    def queue_floor(self, box: str, direction: Direction = TO_ISLAND) -> pl.DataFrame:
        """t_s (the beginning of an interval) and floor_bytes, which did not drain from a link's queue.

        Empty for what older versions analysed.
        """
        if "standing_queue" not in self.summary:
            return pl.DataFrame()
        rows = self.table(table_name("queue", direction)).filter(
            (pl.col("link") == box) & pl.col("floor_bytes").is_not_null()
        )
        begin = self.since_start("t_ns") - pl.col("seconds")
        return rows.select("floor_bytes", t_s=begin).collect(engine="streaming")

    def drops(self, link: Link, direction: str = "to_island") -> pl.DataFrame:
        """Packets that a link lost in one direction: t_s (the end of an interval) and a column for each cause.

        Causes without a loss are left out; ``unknown``: packets without a cause.
        """
        settings = link.to_island if direction == "to_island" else link.to_world
        counters = self.link_counters(link.box, direction)
        drops = counters.select("t_s", pl.col("dropped_packets").fill_null(0)).collect(engine="streaming")
        unknown = drops.drop_in_place("dropped_packets")
        for counter in COUNTER_CAUSES:  # one after the other: most of them lost nothing, and need not be kept
            column = counters.select(pl.col(f"dropped_{counter}_packets").fill_null(0))
            packets = column.collect(engine="streaming").to_series()
            if packets.sum():
                cause = cause_of(counter, settings)
                drops = drops.with_columns((drops[cause] + packets if cause in drops else packets).alias(cause))
                unknown -= packets
        unknown = unknown.clip(0)
        return drops.with_columns(unknown=unknown) if unknown.sum() else drops

    def sojourns(self) -> pl.DataFrame:
        """t_s (when sent) and sojourn_ms of every ping answered; without a base RTT, sojourn_ms is the RTT."""
        base_ms = self.summary["base_rtt_ms"] or 0.0
        return (
            self.table("pings")
            .filter(pl.col("rtt_ns").is_not_null())
            .select(t_s=self.since_start("sent_ns"), sojourn_ms=pl.col("rtt_ns") / 1e6 - base_ms)
            .filter(pl.col("t_s").is_between(0, self.seconds))
            .collect(engine="streaming")
            .sort("t_s")
        )

    def chain_rates(self) -> dict[str, pl.Series]:
        """Goodput (Mbit/s) of every chain at its arrival capture, window by window; empty if one carries all."""
        if not self.summary["chains"] or self.summary["arrival"] is None:
            return {}
        rows = self.table("chains").with_columns(goodput=pl.col("goodput_bytes") * MBIT_S)
        return {
            chain: self.in_windows(rows.filter(pl.col("chain") == chain), "goodput")["goodput"]
            for chain in self.summary["chains"]
        }

    def udp(self) -> pl.DataFrame:
        """Packets at the UDP receivers together, a row each 100 ms.

        t_s (its beginning), mbit_s, lost_packets, reordered_packets, jitter_ms (at its end, the largest). Null if an
        older receiver did not report it. Empty without UDP traffic, or if a receiver counted only at the end.
        """
        if (figures := self.summary.get("udp")) is None:
            return pl.DataFrame()
        counted = pl.col("bytes", "lost_packets", "reordered_packets")
        increase = counted - counted.shift(1, fill_value=0)
        rows = self.table("udp")
        if (receivers := figures.get("receivers", 1)) == 1:
            rows = rows.with_columns(increase)
        else:
            hosts = rows.select(pl.col("host").n_unique()).collect().item()
            window_ns = round(WINDOW_S * 1e9)
            end_ns = (pl.col("t_ns") + window_ns // 2) // window_ns * window_ns  # receivers count at different instants
            rows = rows.filter(hosts == receivers).with_columns(increase.over("host"))
            rows = rows.group_by(end_ns).agg(counted.sum(), pl.col("jitter_ns").max()).sort("t_ns")
        return (
            rows.select(
                t_s=self.since_start("t_ns") - WINDOW_S,
                mbit_s=pl.col("bytes") * MBIT_S,
                lost_packets="lost_packets",
                reordered_packets="reordered_packets",
                jitter_ms=pl.col("jitter_ns") / 1e6,
            )
            .filter(pl.col("t_s").is_between(-WINDOW_S, self.seconds + WINDOW_S))
            .collect(engine="streaming")
        )

    @property
    def other_links(self) -> tuple[Link, ...]:
        """The links other than the bottleneck."""
        return tuple(self.experiment.link(box) for box in self.summary["links"] if box != self.summary["bottleneck"])

    def largest_flow(self) -> pl.DataFrame | None:
        """t_s and goodput (Mbit/s) of the channels' connection with the most new payload; None: there is none.

        In the direction with the larger goodput.
        """
        direction = max(
            (way for way in Direction if self.figures(way)),
            key=lambda way: self.figures(way)["goodput_mbit_s"] or 0.0,
        )
        arrival, port = self.figures(direction)["arrival"] or "", self.experiment.traffic.port
        is_channel = (pl.col("capture") == arrival) & (pl.col("protocol") == "tcp") & (pl.col("sport") == port)
        flows = self.table(table_name("flows", direction)).filter(is_channel & (pl.col("goodput_bytes") > 0))
        largest = flows.top_k(1, by="goodput_bytes").select("flow").collect(engine="streaming")["flow"]
        if largest.is_empty():
            return None
        packets = self.table(f"packets-{arrival}").filter((pl.col("flow") == largest[0]) & bound(direction))
        window = (pl.col("t_ns") - self.summary["origin_ns"]).floordiv(WINDOW_NS)
        octets = pl.col("new_payload_bytes").cast(pl.Int64).sum()
        return self.in_windows(packets.group_by(window=window).agg(goodput=octets * MBIT_S), "goodput")

    def table(self, name: str) -> pl.LazyFrame:
        """One table, lazily."""
        return scan_table(self.folder / f"{name}.parquet")


def read_sources(run: RunDir) -> Sources:
    """Read the data of the report. Raises RunError when the run was not analysed, RunDirError when it is none."""
    manifest = run.manifest()
    summary = cast("Summary", run.summary())
    return Sources(summary, manifest, from_json(Experiment, manifest["experiment"]), run.tables, tuple(run.events()))


def completed_flows(tables: Path) -> pl.DataFrame:
    """size_bytes and seconds of every completed flow of a run; none if the run has no such table."""
    path = tables / "channel_flows.parquet"
    if not path.exists():
        return pl.DataFrame(schema={"size_bytes": pl.Int64, "seconds": pl.Float64})
    duration_ns = pl.col("end_ns") - pl.col("start_ns")
    completed = (pl.col("outcome") == "completed") & (duration_ns > 0) & (pl.col("size_bytes") > 0)
    flows = scan_table(path).filter(completed).select("size_bytes", seconds=duration_ns / 1e9)
    return flows.collect(engine="streaming")
