# SPDX-License-Identifier: Apache-2.0
"""Analyse a run directory: tables and summary.json. Cancelled runs are analysed as far as there are data."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import polars as pl

from atoll_analysis.figures import observables
from atoll_analysis.figures.chain_summary import (
    chain_figures,
    change_figures,
    completed_by_chain,
    flows_failed_in_changes,
)
from atoll_analysis.figures.clocks import clock_figures, start_figures
from atoll_analysis.figures.conservation import dropped_bytes, payload, sections
from atoll_analysis.figures.flow_packets import flow_packets
from atoll_analysis.figures.flows import (
    Concurrency,
    concurrency,
    flow_classes,
    initial_window,
    long_flows,
    segment_bytes,
)
from atoll_analysis.figures.groups import group_figures
from atoll_analysis.figures.loss_bursts import LossBursts, loss_bursts, residual_bursts
from atoll_analysis.figures.losses import by_cause
from atoll_analysis.figures.path_delays import base_rtts_ms
from atoll_analysis.figures.regimes import SPAN_RTTS, RegimeFigures, regime, share_of_swinging_spans
from atoll_analysis.figures.standing_queue import standing_queue
from atoll_analysis.figures.transfers import SINGLE_TRANSFER_KEYS, TransferFigures, transfer_figures
from atoll_analysis.figures.udp import udp_figures
from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.file_record import DERIVED, update_checksums
from atoll_analysis.summary import (
    EndedConnections,
    LinkFigures,
    Summary,
    TerrestrialRtt,
    ToWorldFigures,
    Volume,
    limit_figures,
)
from atoll_analysis.tables.box_counters import BOX_COUNTS, LostFigures, LowPriorityFigures, Part, lateness_p99_ns
from atoll_analysis.tables.directions import TO_ISLAND, TO_WORLD, Direction, direction_of
from atoll_analysis.tables.job_logs import channel_service_figures, flows_of, unsent_and_unstamped_pings
from atoll_analysis.tables.probe_filter import is_change_probe, most_probe_bytes
from atoll_analysis.tables.queue_intervals import full_size_bytes, standing_window_s
from atoll_analysis.tables.run_data import RunData, cut_short, read_run_data
from atoll_analysis.tables.tables import WINDOW_NS, Tables, build_tables, traffic_hosts
from atoll_analysis.verdict.duplicate_addresses import duplicate_addresses
from atoll_analysis.verdict.findings import Finding, verdict_of
from atoll_analysis.verdict.flow_shares import flow_shares
from atoll_analysis.verdict.imported import imported_figures, judge_imported
from atoll_analysis.verdict.lost_outside import lost_outside
from atoll_analysis.verdict.notes import notes
from atoll_analysis.verdict.timeouts import (
    flow_tries,
    lost_on,
    path_loss,
    ping_blocked_share,
    silence_figures,
    transfer_tries,
)
from atoll_analysis.verdict.verdict import judge
from atoll_core.codec import from_json
from atoll_core.experiment.experiment import Link, LowPriority
from atoll_core.experiment.path_mtu import PathMtus
from atoll_core.experiment.setting_texts import settings_tree
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend, Phase, terrestrial_allowance_ns
from atoll_core.plan.tc_settings import TIMER_SLACK, VIRTUAL_SLACK, bucket_bytes


def analyse_run(run: RunDir, binary: Path) -> dict[str, Any]:
    """See :func:`atoll_analysis.analyse`."""
    data = read_run_data(run)
    update_checksums(run.path, removed=DERIVED)  # until they are made
    tables = build_tables(run, data, binary)
    summary = summarise(data, tables, run.logs, damages=[*run.damages(contents=True).values()])
    run.write_summary(dict(summary))
    update_checksums(run.path, ["tables"])
    return dict(summary)


def summarise(data: RunData, tables: Tables, logs: Path, damages: Sequence[str] = ()) -> Summary:
    """Return all figures of a run, with the verdict. ``damages``: of its files, a line each."""
    by_direction = {direction: _direction(data, tables, direction) for direction in data.directions}
    to_island, to_world = by_direction[TO_ISLAND], by_direction.get(TO_WORLD)
    clients = {direction: each["clients"] for direction, each in by_direction.items()}
    latency = _latency(data, tables, logs)
    volumes = {direction: {**each["servers"], **each["clients"]} for direction, each in by_direction.items()}
    traffic = _traffic(data, tables, logs, latency["ping_last_s"], to_island, volumes)
    figures: dict[str, Any] = {
        **_run_facts(data, tables),
        **latency,
        **_links(data, to_island, _bottleneck(data, tables, to_island, TO_ISLAND, traffic["concurrency"])),
        "chains": to_island["chains"],
        "changes": [change_figures(change, data) for change in data.changes],
        **_losses(data, to_island),
        "loss_bursts": to_island["loss_bursts"],
        "stretches": to_island["stretches"],
        **traffic,
        **_transfers(data, tables, logs),
        "captures": observables.capture_quality(tables, data, logs),
        "whistles": observables.whistles(tables, data),
    }
    boxes = _box_figures(data)
    optional = {
        "imported": (imported := imported_figures(data.manifest)),
        "damaged_files": [*damages],
        "host_heat": data.manifest.get("host_heat"),
        "in_band_control": data.manifest.get("in_band_control"),
        "duplicate_addresses": duplicate_addresses(data.network, tables.captures),
        "residual_bursts": to_island["residual_bursts"],
        "boxes": boxes,
        "ended_connections": _ended_connections(data, tables, boxes, figures["transfers"].values()),
        "groups": {} if imported else group_figures(tables, data, clients),
        "to_world": _to_world(data, tables, to_world, traffic["concurrency"]) if to_world else None,
    }
    figures |= {key: figure for key, figure in optional.items() if figure}
    if imported:
        figures |= {"silences": [], "udp": None}  # without logs nothing is known of them
    summary = cast("Summary", figures)
    findings = judge(summary)
    if imported:
        lost_packets = {direction: each["loss_packets_captures"] for direction, each in by_direction.items()}
        findings = [*judge_imported(imported, findings, lost_packets, summary["duration_s"] or 0.0)]
    figures = {**_verdict(findings), "notes": notes(data, tables, summary), **figures}
    unknown = dict.fromkeys(imported["not_in_captures"] if imported else ())
    if to_world:
        figures["to_world"] |= {key: None for key in unknown if key in figures["to_world"]}
    return cast("Summary", figures | unknown)


def _verdict(findings: Sequence[Finding]) -> dict[str, Any]:
    reasons, caveats = ([finding for finding in findings if finding.is_reason is kind] for kind in (True, False))
    return {
        "verdict": verdict_of(findings),
        "reasons": [reason.text for reason in reasons],
        "reason_codes": [reason.code for reason in reasons],
        "caveats": [caveat.text for caveat in caveats],
        "caveat_codes": [caveat.code for caveat in caveats],
    }


def _run_facts(data: RunData, tables: Tables) -> dict[str, Any]:
    experiment = data.experiment
    return {
        "experiment": experiment.name,
        "settings": settings_tree(experiment, from_json(Network, data.manifest["network"])),
        "run_dir": data.run_dir,
        "seed": experiment.seed,
        "cut_short": cut_short(data),
        "origin_ns": tables.origin_ns,
        "arrival": tables.arrival,
        "duration_s": data.window.seconds if data.window else None,
        "planned_s": experiment.duration.s,
        "overhead_s": data.manifest.get("overhead_s"),
        "drained": bool(data.of_type("drained")),
        "limits": limit_figures(experiment.limits),
        "clocks": clock_figures(data),
    }


def _latency(data: RunData, tables: Tables, logs: Path) -> dict[str, Any]:
    sent, lost, rtt_max_ns, last_ns = observables.pings(tables, data.window)
    base_rtt_ms, rtt_max_ms = _ms(data.base_rtt_ns), _ms(rtt_max_ns)
    rtts = base_rtts_ms(data.network, data.experiment)
    unsent, unstamped = unsent_and_unstamped_pings(logs)
    return {
        "terrestrial_rtt_ms": _terrestrial(data),
        "base_rtt_ms": base_rtt_ms,
        "rtt_max_ms": rtt_max_ms,
        "sojourn_max_ms": None if rtt_max_ms is None or base_rtt_ms is None else round(rtt_max_ms - base_rtt_ms, 6),
        "ping_sojourn": observables.ping_sojourn(tables, data.window, data.base_rtt_ns),
        **_sojourn_bounds(data),
        "ping_sent": sent,
        "ping_lost": lost,
        "ping_planned": _pings_planned(data),
        "ping_last_s": None if last_ns is None else (last_ns - tables.origin_ns) / 1e9,
        "ping_path_loss": max(
            (lost_on(data, way, include_blocked=True) for way in data.topology.ping_links), default=None
        ),
        "ping_blocked_share": ping_blocked_share(data),
        "base_rtt_shortest_ms": rtts[0] if rtts else None,
        "ping_unsent": unsent,
        "ping_unstamped": unstamped,
    }


def _direction(data: RunData, tables: Tables, direction: Direction) -> dict[str, Any]:
    """The figures of a direction: those that need no others."""
    bursts, window, arrival = loss_bursts(tables, data, direction), data.window, tables.arrival_of(direction)
    arrived = observables.totals(tables, arrival, window, direction=direction) if arrival and window else None
    ends = data.topology.ends(tables.captures, direction) if data.topology.tapped_links else None
    probes = is_change_probe(data) if data.changes else None
    # What is missing at the last of the two captures was lost on links.
    totals = [observables.totals(tables, name, excluded=probes, direction=direction) for name in ends or ()]
    first, last = totals or (None, None)
    losses = observables.client_losses(tables, ends, direction) if ends else {}
    seconds = window.seconds if window else None
    servers, clients = (
        observables.host_volumes(tables, hosts, seconds, losses, direction) for hosts in traffic_hosts(data)
    )
    return {
        "arrival": arrival,
        "links": {
            link.box: _link_figures(data, tables, link, bursts.get(link.box), direction) for link in data.topology.links
        },
        "chains": chain_figures(tables, data, direction) if data.topology.has_branches else {},
        "loss_bursts": bursts,
        "residual_bursts": residual_bursts(tables, data, direction),
        "stretches": sections(data, tables, direction),
        "payload": payload(data, tables, direction),
        "loss_bytes_captures": first.ip_bytes - last.ip_bytes if first and last else None,
        "loss_packets_captures": first.packets - last.packets if first and last else None,
        "tcp_payload_loss_bytes": first.tcp_payload_bytes - last.tcp_payload_bytes if first and last else None,
        "throughput_mbit_s": observables.mbit_s(arrived.ip_bytes, window.seconds) if arrived and window else None,
        "goodput_mbit_s": observables.mbit_s(arrived.goodput_bytes, window.seconds) if arrived and window else None,
        "flow_packets": flow_packets(tables, data.experiment.traffic.port, direction, data.uploading_addresses),
        "long_flows_mean": _long_flows(data, tables.scan("channel_flows"), direction),
        "servers": servers,
        "clients": clients,
    }


def _bottleneck(
    data: RunData,
    tables: Tables,
    figures: Mapping[str, Any],
    direction: Direction,
    open_connections: Concurrency | None,
) -> dict[str, Any]:
    """Queue, idle time and regime of the slowest link in a direction."""
    bottleneck = data.bottleneck(direction)
    links: Mapping[str, LinkFigures] = figures["links"]
    slowest: Mapping[str, Any] = links[bottleneck.box] if bottleneck else {}
    rows = tables.scan("queue", direction)
    intervals = rows.filter(pl.col("link") == (bottleneck.box if bottleneck else "")).collect()
    return {
        "bottleneck": bottleneck.box if bottleneck else None,
        **{
            key: slowest.get(key)
            for key in ("queue_max_bytes", "idle_s", "queue_full_s", "loss_fraction", "utilisation")
        },
        "standing_queue": standing_queue(
            intervals,
            data.link_over_time(bottleneck, direction),
            full_size_bytes(data, bottleneck),
            standing_window_s(data),
        )
        if bottleneck
        else None,
        "regime": _regime(data, bottleneck, intervals, figures, direction, open_connections) if bottleneck else None,
    }


def _to_world(
    data: RunData, tables: Tables, figures: Mapping[str, Any], open_connections: Concurrency | None
) -> ToWorldFigures:
    """The figures of the direction to the world."""
    slowest = _bottleneck(data, tables, figures, TO_WORLD, open_connections)
    by_key = {**figures, **slowest, "loss_bytes_link": _lost_on_links(data, figures)}
    return cast("ToWorldFigures", {key: by_key[key] for key in ToWorldFigures.__annotations__})


def _links(data: RunData, figures: Mapping[str, Any], slowest: Mapping[str, Any]) -> dict[str, Any]:
    """Links and boxes; queue, idle time and regime are those of the slowest link."""
    measured = data.measurements
    links: Mapping[str, LinkFigures] = figures["links"]
    return {
        "bottleneck": slowest["bottleneck"],
        "links": links,
        **{key: slowest[key] for key in ("queue_max_bytes", "idle_s", "queue_full_s", "loss_fraction", "utilisation")},
        **{
            key: _sum(link[key] for link in links.values())
            for key in ("windows_over_rate", "scheduled_windows_over_rate")
        },
        "lateness_max_ms": _ms(data.lateness_max_ns),
        "lateness_p99_ms": _ms(lateness_p99_ns(measured)),
        "stalls": data.stalls[0] if data.stalls else None,
        "stalled_s": data.stalls[1] / 1e9 if data.stalls else None,
        "overloaded": [box.box for box in measured if box.overloaded],
        **{key: sum(getattr(box, key) for box in measured) for key in BOX_COUNTS},
        "clamped_packets": sum(part.clamped_packets for box in measured for part in box.parts),
        "clamped_max_ms": max((part.clamped_max_ns / 1e6 for box in measured for part in box.parts), default=0.0),
        "standing_queue": slowest["standing_queue"],
        "regime": slowest["regime"],
        "low_priority": {
            link.box: _low_priority(link.to_island.low_priority, data.direction(link, TO_ISLAND))
            for link in data.experiment.links
            if link.to_island.low_priority
        },
    }


def _losses(data: RunData, figures: Mapping[str, Any]) -> dict[str, Any]:
    """Losses between the captures world and island."""
    return {
        "payload": figures["payload"],
        "loss_bytes_captures": figures["loss_bytes_captures"],
        "loss_bytes_link": _lost_on_links(data, figures),
        "probed_bytes_max": most_probe_bytes(data),
        "loss_packets_captures": figures["loss_packets_captures"],
        "tcp_payload_loss_bytes": figures["tcp_payload_loss_bytes"],
        "lost_outside": lost_outside(data.manifest, data.topology.places_between_captures),
        "path_loss": path_loss(data),
    }


def _lost_on_links(data: RunData, figures: Mapping[str, Any]) -> int | None:
    """The bytes that the links between the captures world and island lost, or if there are none all links."""
    links = data.topology.tapped_links or data.topology.links
    return _sum(figures["links"][link.box]["loss_bytes"] for link in links)


def _traffic(
    data: RunData,
    tables: Tables,
    logs: Path,
    ping_last_s: float | None,
    to_island: Mapping[str, Any],
    volumes: Mapping[Direction, Mapping[str, Volume]],
) -> dict[str, Any]:
    """Channels, their flows, and UDP."""
    experiment, window = data.experiment, data.window
    rows = tables.scan("channel_flows")
    flow_figures, mean_bytes = observables.channel_flows(rows)
    fairness, longest_wait_ns, silent = channel_service_figures(logs) if window else (None, None, None)
    udp = experiment.udp
    return {
        "throughput_mbit_s": to_island["throughput_mbit_s"],
        "goodput_mbit_s": to_island["goodput_mbit_s"],
        "channels": experiment.max_channels,
        "placement": data.placement,
        "start": start_figures(data, logs) if window else None,
        **flow_figures,
        "flows_silent": silent,
        "flows_failed_in_changes": flows_failed_in_changes(tables, data),
        "mean_flow_bytes": mean_bytes,
        "flow_packets": to_island["flow_packets"],
        "flow_classes": flow_classes(rows) if experiment.max_channels else [],
        "initial_window": initial_window(rows, experiment.tcp.initial_window, segment_bytes(data))
        if experiment.max_channels
        else None,
        "long_flows_mean": to_island["long_flows_mean"],
        "concurrency": concurrency(tables.scan("concurrent"), round(window.seconds * 1e9 / WINDOW_NS))
        if window
        else None,
        "connections": observables.connections(tables, data),
        "concurrent_flows_max": observables.concurrent_max(tables),
        "fairness": fairness,
        "longest_wait_ms": _ms(longest_wait_ns),
        "servers": to_island["servers"],
        "clients": to_island["clients"],
        "flow_shares": flow_shares(
            rows, [host.name for host in traffic_hosts(data)[0]], data.load_changes_ns, data.groups
        ),
        "silences": silence_figures(tables, data, volumes, ping_last_s),
        "flow_tries": flow_tries(tables, data, volumes, flow_figures["flows_completed"], ping_last_s),
        "udp": udp_figures(udp.packet, experiment.mean_udp_rate, experiment.duration.s, logs)
        if udp and window
        else None,
    }


def _box_figures(data: RunData) -> dict[str, dict[str, int]]:
    """The counters that the kinds of boxes declare for their programs."""
    declared = {box.name: [counter.name for counter in box.kind.counters] for box in data.network.boxes}
    return {
        measured.box: {name: measured.sums[name] for name in declared[measured.box] if name in measured.sums}
        for measured in data.measurements
        if declared.get(measured.box)
    }


def _ended_connections(
    data: RunData, tables: Tables, figures: Mapping[str, Mapping[str, int]], transfers: Iterable[TransferFigures]
) -> dict[str, EndedConnections]:
    """The connections at boxes that end them, as the boxes and as clients count them."""
    completed = completed_by_chain(tables)
    for transfer in transfers:
        if len(transfer["chains"]) == 1:
            completed[transfer["chains"][0]] += sum(
                download["received_bytes"] > 0 for download in transfer["downloads"]
            )
    return {
        box.name: EndedConnections(
            kind=box.kind.name,
            counted=figures[box.name]["connections"],
            completed=sum(count for name, count in completed.items() if data.topology.always_passes(name, box.name)),
        )
        for box in data.network.boxes
        if box.kind.ends_connections and "connections" in figures.get(box.name, {})
    }


def _link_figures(
    data: RunData, tables: Tables, link: Link, bursts: LossBursts | None, direction: Direction
) -> LinkFigures:
    measured, to_world = data.direction(link, direction), data.direction(link, TO_WORLD)
    link_over_time, window, settings = data.link_over_time(link, direction), data.window, direction_of(link, direction)
    # How much a late departure can push from one window into the next is unknown where lateness is not measured.
    unbounded = measured is not None and measured.lateness_max_ns is None and not data.in_virtual_time
    slack = VIRTUAL_SLACK if data.in_virtual_time else TIMER_SLACK
    box = data.network.box(link.box)
    mtu = PathMtus(data.network, data.experiment).longest_packet_at(box)
    bucket = bucket_bytes(settings.rate, slack, box.mtu) if data.manifest.get("backend") == Backend.TC else 0
    figures = LinkFigures(
        chains=list(dict.fromkeys(chain.name for chain in data.experiment.all_chains if link.box in chain.hops)),
        rate_bit_s=settings.rate.bit_s,
        mean_rate_bit_s=link_over_time.mean_rate(window.start_ns, window.end_ns).bit_s if window else None,
        least_rate_bit_s=link_over_time.rate_range(window.start_ns, window.end_ns)[0].bit_s if window else None,
        queue_bytes=settings.queue.bytes,
        queue_max_bytes=measured.queue_max_bytes if measured else None,
        mean_packet_bytes=measured.in_bytes / measured.in_packets if measured and measured.in_packets else None,
        loss_bytes=dropped_bytes(data, link, direction),
        loss_fraction=_share_lost(measured) if measured else _share_missing(bursts),
        losses=by_cause(measured.losses, settings) if measured else {},
        loss_fraction_to_world=_share_lost(to_world),
        losses_to_world=by_cause(to_world.losses, link.to_world) if to_world else {},
        sojourn=measured.sojourn if measured else None,
        idle_s=observables.idle_s(tables, link, window, direction) if window else None,
        queue_full_s=observables.queue_full_s(tables, link, direction),
        windows_over_rate=None
        if unbounded
        else observables.windows_over_rate(
            tables, link, link_over_time, mtu, data.lateness_max_ns or 0, bucket, direction
        ),
        scheduled_windows_over_rate=measured.scheduled_windows_over_rate if measured else None,
        utilisation=_utilisation(data, tables, link, direction),
    )
    if direction is TO_WORLD:  # the direction's own figures are these
        del figures["loss_fraction_to_world"], figures["losses_to_world"]
    return figures


def _share_lost(measured: Part | None) -> float | None:
    return measured.dropped_packets / measured.in_packets if measured and measured.in_packets else None


def _share_missing(bursts: LossBursts | None) -> float | None:
    """Return the share of packets that captures on both sides of a link show to be lost; None without these."""
    return bursts["lost"] / bursts["packets"] if bursts and bursts["packets"] else None


def _low_priority(low: LowPriority, measured: Part | None) -> LowPriorityFigures:
    counts: Mapping[str, Any] | None = measured.low_priority if measured else None
    if counts is None:
        counts = dict.fromkeys(("queue_max_bytes", "in_packets", "sent_packets", "sent_bytes", "sojourn"))
    return LowPriorityFigures(queue_bytes=low.queue.bytes, **counts)


def _regime(
    data: RunData,
    link: Link,
    intervals: pl.DataFrame,
    figures: Mapping[str, Any],
    direction: Direction,
    open_connections: Concurrency | None,
) -> RegimeFigures:
    """Return the regime at the slowest link."""
    bursts: Mapping[str, LossBursts] = figures["loss_bursts"]
    measured, settings = data.direction(link, direction), direction_of(link, direction)
    losses: Mapping[str, LostFigures] = measured.losses if measured else {}
    dropped = [losses[cause]["packets"] for cause in ("queue", "aqm") if cause in losses]
    queue_loss = sum(dropped) / measured.in_packets if measured and measured.in_packets and dropped else None
    if measured is None and settings.loss is None and settings.trace is None:  # nothing else drops
        queue_loss = _share_missing(bursts.get(link.box))
    span_s = SPAN_RTTS * data.base_rtt_ns / 1e9 if data.base_rtt_ns is not None else None
    load, *other_loads = data.experiment.loads
    # Of flows of both directions, the concurrency is not that of one of them.
    is_open_loop = load.total_channels > 0 and all(
        each.flows_per_s is not None and each.direction.of_link == direction for each in load.loads if each.channels
    )
    is_steady = is_open_loop and all(other_load == load for other_load in other_loads)
    return regime(
        utilisation=figures["links"][link.box]["utilisation"],
        queue_loss=queue_loss,
        burst_share=bursts[link.box]["burst_share"] if link.box in bursts else None,
        swinging_share=None if span_s is None else share_of_swinging_spans(intervals, span_s),
        span_s=span_s,
        concurrency_grows=open_connections["grows"] if open_connections and is_steady else None,
    )


def _long_flows(data: RunData, flows: pl.LazyFrame, direction: Direction) -> float | None:
    """Return how many flows larger than the bandwidth-delay product of the slowest link were open at once."""
    link, window = data.bottleneck(direction), data.window
    if link is None or window is None or data.base_rtt_ns is None:
        return None
    flows = flows.filter(flows_of(direction, data.uploading))
    mean_rate = data.link_over_time(link, direction).mean_rate(window.start_ns, window.end_ns)
    product_bytes = mean_rate.bit_s * data.base_rtt_ns // (8 * 10**9)
    return long_flows(flows, product_bytes, window.start_ns, window.end_ns)


def _terrestrial(data: RunData) -> dict[str, TerrestrialRtt]:
    # Jitter of a class moves single RTTs by design, so it widens what a few pings may differ by.
    jitter_ms = {check.src: check.jitter_ns / 1e6 for check in data.plan.checks}
    rtts: dict[str, TerrestrialRtt] = {}
    for event in data.of_type("terrestrial"):
        configured = event["configured_ns"] / 1e6
        allowed = terrestrial_allowance_ns(event["configured_ns"]) / 1e6
        server = str(event["server"])
        rtts[server] = TerrestrialRtt(
            configured=configured,
            measured=event["measured_ns"] / 1e6,
            tolerance=round(allowed + jitter_ms.get(server, 0.0), 6),
        )
        if "scatter_ns" in event:
            rtts[server]["scatter"] = event["scatter_ns"] / 1e6
    return rtts


def _transfers(data: RunData, tables: Tables, logs: Path) -> dict[str, Any]:
    """The figures of every transfer; those of a single one have keys of their own, too."""
    transfers = {
        transfer.name: transfer_figures(data, tables, logs, transfer, transfer_tries(data, transfer))
        for transfer in data.experiment.all_transfers
        if not (data.is_imported and transfer.every)
    }
    only: Mapping[str, Any] = next(iter(transfers.values())) if len(transfers) == 1 else {}
    return {"transfers": transfers, **{f"transfer_{key}": only.get(name) for key, name in SINGLE_TRANSFER_KEYS.items()}}


def _pings_planned(data: RunData) -> int | None:
    if not any(job.phase is Phase.PING for job in data.plan.jobs):
        return None
    return -(-data.experiment.duration.ns // data.experiment.ping.interval.ns)


def _utilisation(data: RunData, tables: Tables, link: Link, direction: Direction) -> float | None:
    window = data.window
    if window is None or window.seconds <= 0:
        return None
    sent = observables.sent_by_link(tables, data, link, window, direction)
    capacity = observables.capacity_bytes(data.link_over_time(link, direction), link, window, direction)
    return None if sent is None else sent / capacity


def _sojourn_bounds(data: RunData) -> dict[str, float | None]:
    """Return what full queues can add to a ping's RTT, forth, back and both, on the path where that is most."""
    if not data.topology.links:
        return dict.fromkeys(("sojourn_bound_ms", "sojourn_bound_to_island_ms", "sojourn_bound_to_world_ms"))
    bounds_ms = [
        (sum(link.to_island.full_queue.ms for link in links), sum(link.to_world.full_queue.ms for link in links))
        for links in data.topology.ping_links or (data.topology.links,)
    ]
    to_island_ms, to_world_ms = max(bounds_ms, key=sum)
    return {
        "sojourn_bound_ms": to_island_ms + to_world_ms,
        "sojourn_bound_to_island_ms": to_island_ms,
        "sojourn_bound_to_world_ms": to_world_ms,
    }


def _ms(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e6


def _sum(figures: Any) -> int | None:
    counts = [figure for figure in figures if figure is not None]
    return sum(counts) if counts else None
