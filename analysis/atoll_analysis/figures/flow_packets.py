# SPDX-License-Identifier: Apache-2.0
"""Packets and rates of the channels' connections, at the capture where packets arrive."""

from collections.abc import Iterator, Sequence
from typing import TypedDict

import polars as pl

from atoll_analysis.tables.directions import TO_ISLAND, Direction, world_port
from atoll_analysis.tables.packet_records import TCP, bound
from atoll_analysis.tables.slices import slices
from atoll_analysis.tables.tables import Tables

RATE_BOUNDS_MBIT_S = (4, 8)
GIANT_BYTES = 40_000_000
"""Connections that carry more are giants: one in ten thousand, with 45 % of the published bytes."""

_SLICE_FLOWS = 1 << 14
_SECOND_NS = 10**9


class FlowPackets(TypedDict):
    """Connections with new payload in one direction; their packets are those of this direction, handshakes included."""

    flows: int  # connections
    packets_p50: float  # packets of a connection, median
    packets_p95: float  # packets of a connection, 95th percentile
    # mean time between two packets of a connection, median over connections of two packets or more; None: there is none
    gap_p50_ms: float | None
    gap_p95_ms: float | None  # the same, 95th percentile
    # share of the new payload in connections whose rate, from first to last packet, is below 4 Mbit/s
    bytes_below_4_mbit_s_share: float
    bytes_below_8_mbit_s_share: float  # the same, below 8 Mbit/s
    peak_mbit_s: float  # most new payload of a connection within a second of the run's clock


def flow_packets(
    tables: Tables, port: int, direction: Direction = TO_ISLAND, uploading: Sequence[int] = ()
) -> dict[str, FlowPackets]:
    """Return the figures of all connections (`all`), and of those that are no giants (`to 40 MB`).

    ``port``: that of the channels' servers. ``uploading``: addresses of the clients whose flows are uploads; to the
    world the connections of these, else those of the others. Empty without an arrival capture, or without any such
    connection.
    """
    arrival = tables.arrival_of(direction)
    if arrival is None:
        return {}
    channels = (pl.col("proto") == TCP) & bound(direction) & (pl.col(world_port(direction)) == port)
    channels &= ~pl.col("dst").is_in(uploading) if direction is TO_ISLAND else pl.col("src").is_in(uploading)
    rows = pl.concat([pl.DataFrame(schema=_SCHEMA), *_connections(tables, arrival, channels)])
    selected = {"all": rows, "to 40 MB": rows.filter(pl.col("bytes") <= GIANT_BYTES)}
    return {name: _figures(chosen) for name, chosen in selected.items() if len(chosen)}


_SCHEMA = {"packets": pl.Int64, "bytes": pl.Int64, "span_ns": pl.Int64, "peak_bytes": pl.Int64}


def _connections(tables: Tables, arrival: str, channels: pl.Expr) -> Iterator[pl.DataFrame]:
    """A row for each connection, in slices that fit into memory."""
    for packets, _ in slices(tables.packets(arrival).filter(channels), pl.col("flow"), _SLICE_FLOWS):
        by_second = packets.group_by("flow", second=(pl.col("t_ns") - tables.origin_ns).floordiv(_SECOND_NS)).agg(
            packets=pl.len().cast(pl.Int64),
            bytes=pl.col("new_payload_bytes").cast(pl.Int64).sum(),
            first_ns=pl.col("t_ns").min(),
            last_ns=pl.col("t_ns").max(),
        )
        rows = by_second.group_by("flow").agg(
            packets=pl.col("packets").sum(),
            bytes=pl.col("bytes").sum(),
            span_ns=pl.col("last_ns").max() - pl.col("first_ns").min(),
            peak_bytes=pl.col("bytes").max(),
        )
        yield rows.filter(pl.col("bytes") > 0).select(_SCHEMA.keys()).collect(engine="streaming")


def _figures(rows: pl.DataFrame) -> FlowPackets:
    packets, octets = pl.col("packets"), pl.col("bytes")
    rate_mbit_s = 8e3 * octets / pl.col("span_ns")
    gap_ms = pl.when(packets > 1).then(pl.col("span_ns") / (packets - 1) / 1e6)
    return FlowPackets(
        **rows.select(
            flows=pl.len(),
            packets_p50=packets.quantile(0.5, "linear"),
            packets_p95=packets.quantile(0.95, "linear"),
            gap_p50_ms=gap_ms.quantile(0.5, "linear"),
            gap_p95_ms=gap_ms.quantile(0.95, "linear"),
            **{
                f"bytes_below_{bound}_mbit_s_share": pl.when(rate_mbit_s < bound).then(octets).sum() / octets.sum()
                for bound in RATE_BOUNDS_MBIT_S
            },
            peak_mbit_s=8e-6 * pl.col("peak_bytes").max(),
        ).row(0, named=True)
    )
