# SPDX-License-Identifier: Apache-2.0
"""Figures of single chains, where a run has several, and of scheduled changes."""

from collections import Counter
from itertools import pairwise

import polars as pl

from atoll_analysis.figures import observables as seen
from atoll_analysis.figures.path_delays import base_rtts_ms
from atoll_analysis.summary import ChainFigures, ChangeFigures
from atoll_analysis.tables.change_timeline import NEVER_NS, ScheduledChange
from atoll_analysis.tables.run_data import RunData
from atoll_analysis.tables.tables import WINDOW_NS, Tables, island_bound, total
from atoll_core.experiment.experiment import Chain


def chain_figures(tables: Tables, data: RunData) -> dict[str, ChainFigures]:
    """Return the figures of every chain that was active, by name, the main one first."""
    states = [each.experiment for each in data.topology.standing]
    last = {chain.name: chain for state in states for chain in (state.chain, *state.branches)}
    arrived = _arrived(tables, data)
    lost = _lost(tables, data)
    flows = {
        row["chain"]: row
        for row in tables.scan("channel_flows")
        .filter(pl.col("outcome") == "completed")
        .group_by("chain")
        .agg(completed=pl.len(), mean=pl.col("size_bytes").mean())
        .collect()
        .iter_rows(named=True)
    }
    return {
        name: _figures(data, tables, chain, arrived.get(name), flows.get(name), lost.get(name))
        for name, chain in last.items()
    }


def completed_by_chain(tables: Tables) -> Counter[str]:
    """Return the number of completed flows of channels by the name of their chain."""
    completed = tables.scan("channel_flows").filter(pl.col("outcome") == "completed")
    rows = completed.group_by("chain").agg(flows=pl.len()).collect().iter_rows(named=True)
    return Counter({row["chain"]: row["flows"] for row in rows})


def _figures(
    data: RunData,
    tables: Tables,
    chain: Chain,
    arrived: dict[str, int] | None,
    flows: dict[str, float] | None,
    lost: dict[str, int] | None,
) -> ChainFigures:
    capture = data.topology.arrival(chain, tables.decoded)
    seconds = data.window.seconds if data.window and capture is not None else None
    return ChainFigures(
        carries=str(chain.carries),
        hops=list(chain.hops),
        arrival=capture,
        throughput_mbit_s=None if seconds is None else seen.mbit_s(arrived["ip_bytes"] if arrived else 0, seconds),
        goodput_mbit_s=None if seconds is None else seen.mbit_s(arrived["goodput_bytes"] if arrived else 0, seconds),
        flows_completed=int(flows["completed"]) if flows else 0,
        mean_flow_bytes=flows["mean"] if flows else None,
        loss_bytes=lost["bytes"] if lost else None,
        loss_fraction=lost["packets"] / lost["came"] if lost and lost["came"] else None,
    )


def _arrived(tables: Tables, data: RunData) -> dict[str, dict[str, int]]:
    """Return the bytes that reached the island through each chain within the measurement."""
    if tables.arrival is None or data.window is None:
        return {}
    within = pl.col("window").is_between(0, round(data.window.seconds * 1e9 / WINDOW_NS), closed="left")
    rows = tables.scan("chains").filter(within).group_by("chain").agg(pl.col("ip_bytes", "goodput_bytes").sum())
    return {row["chain"]: row for row in rows.collect().iter_rows(named=True)}


def _lost(tables: Tables, data: RunData) -> dict[str, dict[str, int]]:
    """Return each chain's loss between the captures world and island, for chains that pass both and conserve packets.

    Where chains changed it is not known: a packet may meet the captures under different versions.
    """
    if len(data.topology.standing) > 1 or not data.topology.links or not {"world", "island"} <= tables.decoded.keys():
        return {}
    conserving = {chain.name for chain in data.topology.chains if data.topology.conserves(chain)}
    counts = [pl.len().cast(pl.Int64).alias("packets"), total("ip_bytes").alias("bytes")]
    before, after = (
        island_bound(tables, data, capture).group_by("chain").agg(counts).collect(engine="streaming")
        for capture in ("world", "island")
    )
    came = {row["chain"]: row for row in before.iter_rows(named=True)}
    left = {row["chain"]: row for row in after.iter_rows(named=True)}
    return {
        name: {
            "came": row["packets"],
            "packets": row["packets"] - (left[name]["packets"] if name in left else 0),
            "bytes": row["bytes"] - (left[name]["bytes"] if name in left else 0),
        }
        for name, row in came.items()
        if name in conserving
    }


def change_figures(change: ScheduledChange, data: RunData) -> ChangeFigures:
    """Return the figures of a scheduled change, in the measurement's time."""
    origin_ns = data.window.start_ns if data.window else change.planned_ns or 0
    began, ended = change.began_ns, change.ended_ns
    took_ns = ended - began if began is not None and ended is not None else None
    return ChangeFigures(
        number=change.number,
        what=list(change.what),
        planned_s=data.experiment.versions[change.number].at.s,
        began_s=None if began is None else (began - origin_ns) / 1e9,
        lateness_ms=None if began is None or change.planned_ns is None else (began - change.planned_ns) / 1e6,
        turned_ms=None if began is None or change.shifted_ns is None else (change.shifted_ns - began) / 1e6,
        duration_s=None if took_ns is None else took_ns / 1e9,
        drain_s=None if took_ns is None else change.drain_ns / 1e9,
        beyond_drain_ms=None if took_ns is None else (took_ns - change.drain_ns) / 1e6,
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
    found = 0
    for change, (before, after) in zip(data.changes, pairwise(data.experiment.versions), strict=True):
        chains = {before.chain, *before.branches} ^ {after.chain, *after.branches}
        if (
            change.shifted_ns is None
            or change.began_ns is None
            or not any(stateful & {*chain.hops} for chain in chains)
        ):
            continue
        within = failed.filter(pl.col("end_ns").is_between(change.began_ns, min(change.over_ns + rtt_ns, NEVER_NS)))
        found += min(data.experiment.most_channels, within.select(pl.len()).collect().item())
    return found
