# SPDX-License-Identifier: Apache-2.0
"""Waits for silent hosts, from flow logs and the arrival capture; losses of paths."""

import math
from collections.abc import Iterable, Mapping
from math import prod

import polars as pl

from atoll_analysis.figures.path_delays import Interval, base_rtts_ms, blocked_s, carriers, links_of
from atoll_analysis.summary import Volume
from atoll_analysis.tables.box_counters import Part
from atoll_analysis.tables.directions import TO_ISLAND, TO_WORLD, Direction
from atoll_analysis.tables.run_data import RunData
from atoll_analysis.tables.tables import Tables, traffic_hosts
from atoll_analysis.verdict.silence import FALSE_ALARM, FlowLog, PayloadSpan, SilenceFigures, silences, timeout_s, tries
from atoll_core.experiment.experiment import Link, Protocol, Transfer
from atoll_core.experiment.traffic import Load, ThinkShape
from atoll_core.lab.network import Host


def silence_figures(
    tables: Tables,
    data: RunData,
    volumes: Mapping[Direction, Mapping[str, Volume]],
    ping_last_s: float | None,
) -> list[SilenceFigures]:
    """The silences of servers and clients; none without a measurement, an arrival capture or traffic.

    ``volumes``: of servers and clients. What counts is payload in the direction of a client's load, of a server in any.
    """
    rtts = base_rtts_ms(data.network, data.experiment)
    channels = data.lasting_placement
    (world, island), uploading = traffic_hosts(data), data.uploading
    to_count = {host.name: [TO_WORLD if host.name in uploading else TO_ISLAND] for host in island}
    to_count |= {host.name: sorted({way for ways in to_count.values() for way in ways}) for host in world}
    captured = {host: [volumes[way][host] for way in ways if volumes.get(way)] for host, ways in to_count.items()}
    if data.window is None or not any(channels.values()) or rtts is None or not all(captured.values()):
        return []
    server_spans = {host.name: _payload_span(data, captured[host.name], (host,), island) for host in world}
    client_spans = {host.name: _payload_span(data, captured[host.name], world, (host,)) for host in island}
    last_s = [span.last_s for span in (*server_spans.values(), *client_spans.values()) if span.last_s is not None]
    return silences(
        server_spans,
        {name: span for name, span in client_spans.items() if channels.get(name)},
        channels,
        _logged_flows(tables, server_spans),
        min(max([*last_s, ping_last_s or 0.0]), data.window.seconds),
        timeout_s(rtts[1]),
        _longest_pauses_s(data),
        path_loss(data),
    )


def path_loss(data: RunData) -> float:
    """The largest share of packets that the links of any chain lost, there and back, blockages left out."""
    return max((lost_on(data, data.topology.links_of(chain)) for chain in data.experiment.all_chains), default=0.0)


def lost_on(data: RunData, links: tuple[Link, ...], *, include_blocked: bool = False) -> float:
    """The share of packets that links lost, there and back; ``include_blocked``: also those lost to blockages.

    Packets that a full low-priority queue dropped are left out: pings and flows are not marked LE.
    """
    boxes = {link.box for link in links}
    excluded = {"low_priority"} if include_blocked else {"low_priority", "blocked"}

    def lost_packets(part: Part) -> int:
        return part.dropped_packets - sum(loss["packets"] for cause, loss in part.losses.items() if cause in excluded)

    parts = (part for box in data.measurements if box.box in boxes for part in box.parts if part.in_packets)
    return 1 - prod(1 - lost_packets(part) / part.in_packets for part in parts)


def ping_blocked_share(data: RunData) -> float:
    """The share of the measured time in which the way of the ping series was blocked, at most."""
    if data.window is None:
        return 0.0
    paths = [blocked_s(links, _traces_begin_s(data), data.window.seconds) for links in data.topology.ping_links]
    longest_s = max((sum(end - begin for begin, end in intervals) for intervals in paths), default=0.0)
    return min(1.0, longest_s / data.window.seconds)


def transfer_tries(data: RunData, transfer: Transfer) -> int | None:
    """How often a transfer's connection was tried for certain, if it was never answered; None: not measured."""
    window, rtts = data.window, base_rtts_ms(data.network, data.experiment)
    if window is None or rtts is None:
        return None
    world, island = transfer.ends(data.network)
    return tries(transfer.start.s, window.seconds, _blocked(data, (world,), (island,)), timeout_s(rtts[1]))


def flow_tries(
    tables: Tables,
    data: RunData,
    volumes: Mapping[Direction, Mapping[str, Volume]],
    completed: int,
    ping_last_s: float | None,
) -> int | None:
    """How often the connections of all flows were tried for certain, while the lab carried pings, if none had payload.

    ``volumes``: of the servers and clients; None: payload of a flow came, no flow was begun, or nothing was measured.
    """
    window, rtts = data.window, base_rtts_ms(data.network, data.experiment)
    has_payload = completed or any(
        volume["payload_first_s"] is not None for hosts in volumes.values() for volume in hosts.values()
    )
    if has_payload or window is None or rtts is None:
        return None
    world, island = traffic_hosts(data)
    flows = _logged_flows(tables, {host.name: PayloadSpan(None, None) for host in world})
    if not flows or any(flow.received_bytes for flow in flows):
        return None
    end_s, blocked_intervals = min(ping_last_s or 0.0, window.seconds), _blocked(data, world, island)
    return sum(
        max(flow.failed, tries(flow.start_s, min(flow.end_s, end_s), blocked_intervals, timeout_s(rtts[1])))
        for flow in flows
    )


def _payload_span(
    data: RunData, volumes: Iterable[Volume], world: tuple[Host, ...], island: tuple[Host, ...]
) -> PayloadSpan:
    first_s = [volume["payload_first_s"] for volume in volumes if volume["payload_first_s"] is not None]
    last_s = [volume["payload_last_s"] for volume in volumes if volume["payload_last_s"] is not None]
    return PayloadSpan(min(first_s, default=None), max(last_s, default=None), _blocked(data, world, island))


def _blocked(data: RunData, world: tuple[Host, ...], island: tuple[Host, ...]) -> tuple[Interval, ...]:
    """When a link on a way of TCP between these hosts was blocked by its trace, in any version."""
    experiment, window = data.experiment, data.window
    chains = dict.fromkeys(
        chain for state in experiment.states for chain in carriers(state, world, island, (Protocol.TCP,))
    )
    links = dict.fromkeys(link for chain in chains for link in links_of(experiment, chain))
    return blocked_s(links, _traces_begin_s(data), window.seconds if window else 0.0)


def _traces_begin_s(data: RunData) -> float:
    origin_ns = data.window.start_ns if data.window else 0
    return next(((int(event["t_ns"]) - origin_ns) / 1e9 for event in data.of_type("trace_start")), 0.0)


def _logged_flows(tables: Tables, servers: Mapping[str, PayloadSpan]) -> list[FlowLog]:
    """The flows that began before or ended after anything was seen of their server."""
    first_s = {name: math.inf if span.first_s is None else span.first_s for name, span in servers.items()}
    last_s = {name: -math.inf if span.last_s is None else span.last_s for name, span in servers.items()}
    server = pl.col("server")
    rows = (
        tables.scan("channel_flows")
        .filter(server.is_in([*servers]))
        .select(
            "client",
            "channel",
            "server",
            start_s=(pl.col("start_ns") - tables.origin_ns) / 1e9,
            end_s=(pl.col("end_ns") - tables.origin_ns) / 1e9,
            received_bytes=pl.col("received_bytes").fill_null(0),
            failed=pl.col("outcome").str.starts_with("failed"),
        )
        .drop_nulls()
        .filter(
            (pl.col("start_s") < server.replace_strict(first_s, return_dtype=pl.Float64))
            | (pl.col("end_s") > server.replace_strict(last_s, return_dtype=pl.Float64))
        )
        .collect(engine="streaming")
    )
    return [FlowLog(**row) for row in rows.iter_rows(named=True)]


def _longest_pauses_s(data: RunData) -> dict[str, float]:
    """For how long a channel of each client is idle at most, but with a probability of ``FALSE_ALARM``."""
    versions = data.experiment.allocated_channels(data.network)
    return {client: max(_pause_s(version[client][0]) for version in versions) for client in versions[0]}


def _pause_s(load: Load) -> float:
    if load.flows_per_s is not None:
        return -math.log(FALSE_ALARM) * load.channels / load.flows_per_s
    if load.think is None or not load.channels:
        return 0.0
    is_random = load.think.distribution is ThinkShape.EXPONENTIAL
    return load.think.mean.s * (-math.log(FALSE_ALARM) if is_random else 1.0)
