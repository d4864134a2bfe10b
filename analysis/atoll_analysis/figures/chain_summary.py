# SPDX-License-Identifier: Apache-2.0
"""Figures of single chains, where a run has several, and of scheduled changes."""

from collections import Counter
from itertools import pairwise

import polars as pl

from atoll_analysis.figures import observables
from atoll_analysis.figures.path_delays import base_rtts_ms
from atoll_analysis.summary import ChainFigures, ChangeFigures
from atoll_analysis.tables.change_timeline import NEVER_NS, ScheduledChange
from atoll_analysis.tables.directions import TO_ISLAND, Direction
from atoll_analysis.tables.job_logs import flows_of
from atoll_analysis.tables.run_data import RunData
from atoll_analysis.tables.tables import WINDOW_NS, Tables, total, with_chains


def chain_figures(tables: Tables, data: RunData, direction: Direction = TO_ISLAND) -> dict[str, ChainFigures]:
    """Return the figures of every chain that was active, by name, the main one first."""
    states = [experiment for _, experiment in data.topology.periods]
    latest_chains = {chain.name: chain for state in states for chain in (state.chain, *state.branches)}
    arrived_by_chain, lost = _arrived_bytes(tables, data, direction), _losses(tables, data, direction)
    completed = _completed_flows(tables, flows_of(direction, data.uploading))
    figures: dict[str, ChainFigures] = {}
    for name, chain in latest_chains.items():
        capture = data.topology.arrival_capture(chain, tables.captures, direction)
        seconds = data.window.seconds if data.window and capture is not None else None
        ip_bytes, goodput_bytes = arrived_by_chain.get(name, (0, 0))
        flows, mean_bytes = completed.get(name, (0, None))
        loss_bytes, loss_fraction = lost.get(name, (None, None))
        figures[name] = ChainFigures(
            carries=str(chain.carries),
            hops=list(chain.hops),
            arrival=capture,
            throughput_mbit_s=None if seconds is None else observables.mbit_s(ip_bytes, seconds),
            goodput_mbit_s=None if seconds is None else observables.mbit_s(goodput_bytes, seconds),
            flows_completed=flows,
            mean_flow_bytes=mean_bytes,
            loss_bytes=loss_bytes,
            loss_fraction=loss_fraction,
        )
    return figures


def completed_by_chain(tables: Tables) -> Counter[str]:
    """Return the number of completed flows of channels by the name of their chain."""
    return Counter({chain: flows for chain, (flows, _) in _completed_flows(tables, pl.lit(value=True)).items()})


def _completed_flows(tables: Tables, selected: pl.Expr) -> dict[str, tuple[int, float]]:
    """Return number and mean size of the completed flows of channels by chain."""
    flows = tables.scan("channel_flows").filter(selected & (pl.col("outcome") == "completed")).group_by("chain")
    rows = flows.agg(pl.len(), pl.col("size_bytes").mean()).collect().iter_rows()
    return {chain: (count, mean_bytes) for chain, count, mean_bytes in rows}


def _arrived_bytes(tables: Tables, data: RunData, direction: Direction) -> dict[str, tuple[int, int]]:
    """Return IP bytes and goodput that arrived through each chain within the measurement."""
    if tables.arrival_of(direction) is None or data.window is None:
        return {}
    within = pl.col("window").is_between(0, round(data.window.seconds * 1e9 / WINDOW_NS), closed="left")
    rows = (
        tables.scan("chains", direction).filter(within).group_by("chain").agg(pl.col("ip_bytes", "goodput_bytes").sum())
    )
    return {chain: (ip_bytes, goodput_bytes) for chain, ip_bytes, goodput_bytes in rows.collect().iter_rows()}


def _losses(tables: Tables, data: RunData, direction: Direction) -> dict[str, tuple[int, float]]:
    """Return bytes and share of packets lost between the captures world and island, by chain.

    Only of chains that pass both and conserve packets, and only if no chain changed: a packet may meet the captures
    under different versions.
    """
    ends = data.topology.ends(tables.captures, direction)
    if len(data.topology.periods) > 1 or not data.topology.links or ends is None:
        return {}
    conserving = {chain.name for chain in data.topology.chains if data.topology.conserves(chain)}
    counts = [pl.len().cast(pl.Int64).alias("packets"), total("ip_bytes").alias("bytes")]
    before, after = (
        with_chains(tables, data, name, direction).group_by("chain").agg(counts).collect(engine="streaming")
        for name in ends
    )
    rows = before.join(after, on="chain", how="left").with_columns(pl.exclude("chain").fill_null(0)).iter_rows()
    return {
        chain: (ip_bytes - arrived_bytes, (packets - arrived) / packets)
        for chain, packets, ip_bytes, arrived, arrived_bytes in rows
        if chain in conserving
    }


def change_figures(change: ScheduledChange, data: RunData) -> ChangeFigures:
    """Return the figures of a scheduled change, in the measurement's time."""
    origin_ns = data.window.start_ns if data.window else change.planned_ns or 0
    began, ended = change.began_ns, change.ended_ns
    duration_ns = ended - began if began is not None and ended is not None else None
    return ChangeFigures(
        number=change.number,
        what=list(change.what),
        planned_s=data.experiment.versions[change.number].at.s,
        began_s=None if began is None else (began - origin_ns) / 1e9,
        lateness_ms=None if began is None or change.planned_ns is None else (began - change.planned_ns) / 1e6,
        turned_ms=None if began is None or change.turned_ns is None else (change.turned_ns - began) / 1e6,
        duration_s=None if duration_ns is None else duration_ns / 1e9,
        drain_s=None if duration_ns is None else change.drain_ns / 1e9,
        beyond_drain_ms=None if duration_ns is None else (duration_ns - change.drain_ns) / 1e6,
        failure=change.failure,
    )


def flows_failed_in_changes(tables: Tables, data: RunData) -> int:
    """Flows that failed in a change that moved traffic to or from stateful boxes.

    Counted from the change's begin until one longest base RTT after its end, which is when the last client receives a
    reset. A change resets at most one connection of a channel.
    """
    rtts_ms = base_rtts_ms(data.network, data.experiment)
    rtt_ns = round(rtts_ms[1] * 1e6) if rtts_ms else 0
    stateful = {box.name for box in data.network.boxes if box.stateful}
    failed = tables.scan("channel_flows").filter(pl.col("outcome").str.starts_with("failed"))
    flows = 0
    for change, (before, after) in zip(data.changes, pairwise(data.experiment.versions), strict=True):
        chains = {before.chain, *before.branches} ^ {after.chain, *after.branches}
        moves_stateful = any(stateful & {*chain.hops} for chain in chains)
        if moves_stateful and change.turned_ns is not None and change.began_ns is not None:
            within = pl.col("end_ns").is_between(change.began_ns, min(change.settled_ns + rtt_ns, NEVER_NS))
            flows += min(data.experiment.max_channels, failed.filter(within).select(pl.len()).collect().item())
    return flows
