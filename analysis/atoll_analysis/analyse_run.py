# SPDX-License-Identifier: Apache-2.0
"""Analyse a run directory: tables and summary.json. Cancelled runs are analysed as far as there are data."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from atoll_analysis.figures import observables as seen
from atoll_analysis.figures.chain_summary import (
    chain_figures,
    change_figures,
    completed_by_chain,
    flows_failed_in_changes,
)
from atoll_analysis.figures.clock_drift import clock_figures
from atoll_analysis.figures.concurrency import Concurrency, concurrency
from atoll_analysis.figures.conservation import dropped_bytes, payload, stretches
from atoll_analysis.figures.flow_classes import flow_classes, initial_window, long_flows, segment_bytes
from atoll_analysis.figures.loss_bursts import LossBursts, loss_bursts, residual_bursts
from atoll_analysis.figures.losses import by_cause
from atoll_analysis.figures.path_delays import base_rtts_ms
from atoll_analysis.figures.regimes import RTTS, RegimeFigures, regime, swinging_share
from atoll_analysis.figures.standing_queue import standing_queue
from atoll_analysis.figures.start_skew import silent_starts, start_figures
from atoll_analysis.figures.udp import udp_figures
from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.file_record import DERIVED, update_record
from atoll_analysis.summary import (
    EndedConnections,
    LimitFigures,
    LinkFigures,
    LowPriorityFigures,
    SojournFigures,
    Summary,
    TerrestrialRtt,
)
from atoll_analysis.tables.box_counters import Part, Sojourn, lateness_p99_ns
from atoll_analysis.tables.job_logs import LoadService, load_service, ping_accounts, transfer_done
from atoll_analysis.tables.probe_filter import most_bytes, of_changes
from atoll_analysis.tables.queue_intervals import full_size_bytes, standing_window_s
from atoll_analysis.tables.run_data import RunData, cut_short, read_run_data
from atoll_analysis.tables.tables import WINDOW_NS, Tables, build_tables, traffic_hosts
from atoll_analysis.verdict.control_traffic import control_notes, in_band_control
from atoll_analysis.verdict.drop_report import lost_outside, outside_notes
from atoll_analysis.verdict.duplicate_addresses import duplicate_addresses
from atoll_analysis.verdict.findings import Verdict, verdict_of
from atoll_analysis.verdict.host_heat import host_heat
from atoll_analysis.verdict.notes import accounts, notes
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
from atoll_core.experiment.experiment import Link, LowPriority, Protocol, VerdictBounds
from atoll_core.experiment.path_mtu import PathMtus
from atoll_core.experiment.setting_texts import settings_tree
from atoll_core.lab.network import HostRole, Network
from atoll_core.plan.plan import Backend, Phase, terrestrial_allowance_ns
from atoll_core.plan.tc_settings import TIMER_SLACK, VIRTUAL_SLACK, bucket_bytes


def analyse_run(run: RunDir, binary: Path) -> dict[str, Any]:
    """See :func:`atoll_analysis.analyse`."""
    facts = read_run_data(run)
    update_record(run.path, removed=DERIVED)  # until they are made
    tables = build_tables(run, facts, binary)
    summary = summarise(facts, tables, run.logs, damages=[*run.damages(contents=True).values()])
    run.write_summary(dict(summary))
    update_record(run.path, ["tables"])
    return dict(summary)


def summarise(facts: RunData, tables: Tables, logs: Path, damages: Sequence[str] = ()) -> Summary:
    """Return all figures of a run, with the verdict. ``damages``: of its files, a line each."""
    window = facts.window
    bottleneck = facts.bottleneck
    links = {link.box: _link_figures(facts, tables, link) for link in facts.links}
    slowest = links[bottleneck.box] if bottleneck else None
    probes = of_changes(facts) if facts.changes else None
    world, island = (seen.totals(tables, name, leaving_out=probes) for name in ("world", "island"))
    both = (world, island) if world is not None and island is not None and facts.tapped_links else None
    arrived = seen.totals(tables, tables.arrival, window) if tables.arrival and window else None
    compared = stretches(facts, tables)
    pings = seen.pings(tables, window)
    base_rtt_ms = None if facts.base_rtt_ns is None else facts.base_rtt_ns / 1e6
    rtt_max_ms = pings.rtt_max_ns / 1e6 if pings.rtt_max_ns is not None else None
    flows = seen.channel_flows(tables)
    servers, clients = (seen.host_volumes(tables, hosts) for hosts in traffic_hosts(facts))
    ping_last_s = (pings.last_ns - tables.origin_ns) / 1e9 if pings.last_ns is not None else None
    rtts = base_rtts_ms(facts.network, facts.experiment)
    service = load_service(logs) if window else LoadService(None, None)
    unsent, unstamped = ping_accounts(logs)
    p99_ns = lateness_p99_ns(facts.measurements)
    channel_flows = tables.scan("channel_flows")
    crowd = concurrency(tables.scan("concurrent"), round(window.seconds * 1e9 / WINDOW_NS)) if window else None
    lost_in_bursts = loss_bursts(tables, facts)
    intervals = tables.scan("queue").filter(pl.col("link") == (bottleneck.box if bottleneck else "")).collect()
    summary = Summary(
        verdict=Verdict.INVALID,
        reasons=[],
        reason_codes=[],
        caveats=[],
        caveat_codes=[],
        notes=notes(facts, tables, pings, compared),
        experiment=facts.experiment.name,
        settings=settings_tree(facts.experiment, from_json(Network, facts.manifest["network"])),
        run_dir=facts.run_dir,
        seed=facts.experiment.seed,
        cut_short=cut_short(facts),
        origin_ns=tables.origin_ns,
        arrival=tables.arrival,
        duration_s=window.seconds if window else None,
        planned_s=facts.experiment.duration.s,
        overhead_s=facts.manifest.get("overhead_s"),
        drained=bool(facts.of_type("drained")),
        limits=_limits(facts.experiment.limits),
        clocks=clock_figures(facts),
        terrestrial_rtt_ms=_terrestrial(facts),
        base_rtt_ms=base_rtt_ms,
        rtt_max_ms=rtt_max_ms,
        sojourn_max_ms=round(rtt_max_ms - base_rtt_ms, 6)
        if rtt_max_ms is not None and base_rtt_ms is not None
        else None,
        ping_sojourn=seen.ping_sojourn(tables, window, facts.base_rtt_ns),
        **_sojourn_bounds(facts),
        ping_sent=pings.sent,
        ping_lost=pings.lost,
        ping_planned=_pings_planned(facts),
        ping_last_s=ping_last_s,
        ping_path_loss=_ping_path_loss(facts),
        ping_blocked_share=ping_blocked_share(facts),
        base_rtt_shortest_ms=rtts[0] if rtts else None,
        ping_unsent=unsent,
        ping_unstamped=unstamped,
        bottleneck=bottleneck.box if bottleneck else None,
        links=links,
        queue_max_bytes=slowest["queue_max_bytes"] if slowest else None,
        windows_over_rate=_sum(link["windows_over_rate"] for link in links.values()),
        scheduled_windows_over_rate=_sum(link["scheduled_windows_over_rate"] for link in links.values()),
        lateness_max_ms=facts.lateness_max_ns / 1e6 if facts.lateness_max_ns is not None else None,
        lateness_p99_ms=p99_ns / 1e6 if p99_ns is not None else None,
        stalls=facts.stalls.count if facts.stalls else None,
        stalled_s=facts.stalls.total_ns / 1e9 if facts.stalls else None,
        overloaded=[m.box for m in facts.measurements if m.overloaded],
        oversize_packets=sum(m.oversize_packets for m in facts.measurements),
        unknown_vlan_packets=sum(m.unknown_vlan_packets for m in facts.measurements),
        unread_packets=sum(m.unread_packets for m in facts.measurements),
        unstamped_packets=sum(m.unstamped_packets for m in facts.measurements),
        no_checksum_packets=sum(m.no_checksum_packets for m in facts.measurements),
        clamped_packets=sum(part.clamped_packets for m in facts.measurements for part in m.parts),
        clamped_max_ms=max((part.clamped_max_ns / 1e6 for m in facts.measurements for part in m.parts), default=0.0),
        idle_s=slowest["idle_s"] if slowest else None,
        queue_full_s=slowest["queue_full_s"] if slowest else None,
        standing_queue=standing_queue(
            intervals, facts.over_time(bottleneck), full_size_bytes(facts, bottleneck), standing_window_s(facts)
        )
        if bottleneck
        else None,
        regime=_regime(facts, bottleneck, intervals, links, lost_in_bursts, crowd) if bottleneck else None,
        chains=chain_figures(tables, facts) if facts.has_branches else {},
        changes=[change_figures(change, facts) for change in facts.changes],
        low_priority={
            link.box: _low_priority(link.to_island.low_priority, facts.direction(link, "to_island"))
            for link in facts.experiment.links
            if link.to_island.low_priority
        },
        loss_bursts=lost_in_bursts,
        stretches=compared,
        payload=payload(facts, tables),
        loss_bytes_captures=both[0].ip_bytes - both[1].ip_bytes if both else None,
        loss_bytes_link=_sum(links[link.box]["loss_bytes"] for link in facts.tapped_links or facts.links),
        probed_bytes_max=most_bytes(facts),
        loss_packets_captures=both[0].packets - both[1].packets if both else None,
        loss_fraction=slowest["loss_fraction"] if slowest else None,
        tcp_payload_loss_bytes=both[0].tcp_payload_bytes - both[1].tcp_payload_bytes if both else None,
        lost_outside=lost_outside(facts.manifest, facts.between_captures),
        throughput_mbit_s=seen.mbit_s(arrived.ip_bytes, window.seconds) if arrived and window else None,
        goodput_mbit_s=seen.mbit_s(arrived.goodput_bytes, window.seconds) if arrived and window else None,
        utilisation=slowest["utilisation"] if slowest else None,
        channels=facts.experiment.most_channels,
        placement=facts.placement,
        start=start_figures(facts, logs) if window else None,
        flows_completed=flows.completed,
        flows_cut=flows.cut,
        flows_failed=flows.failed,
        flows_failed_by=flows.failed_by,
        flows_silent=service.silent,
        flows_failed_in_changes=flows_failed_in_changes(tables, facts),
        mean_flow_bytes=flows.mean_bytes,
        flow_classes=flow_classes(channel_flows) if facts.experiment.most_channels else [],
        initial_window=initial_window(channel_flows, segment_bytes(facts)) if facts.experiment.most_channels else None,
        long_flows_mean=_long_flows(facts, channel_flows),
        concurrency=crowd,
        connections=seen.connections(tables, facts),
        concurrent_flows_max=seen.concurrent_max(tables),
        fairness=service.fairness,
        longest_wait_ms=service.longest_wait_ns / 1e6 if service.longest_wait_ns is not None else None,
        servers=servers,
        clients=clients,
        silences=silence_figures(tables, facts, servers, clients, ping_last_s),
        flow_tries=flow_tries(tables, facts, {**servers, **clients}, flows.completed, ping_last_s),
        path_loss=path_loss(facts),
        **_transfer(facts, tables, logs),
        udp=udp_figures(udp.packet, facts.experiment.mean_udp_rate, facts.experiment.duration.s, logs)
        if (udp := facts.experiment.udp) and window
        else None,
        captures=seen.capture_quality(tables, facts, logs),
        whistles=dict(seen.whistles(tables, facts)),
    )
    if damages:
        summary["damaged_files"] = [*damages]
    if heat := host_heat(facts.manifest):
        summary["host_heat"] = heat
    if control := in_band_control(facts.manifest):
        summary["in_band_control"] = control
    if duplicates := duplicate_addresses(facts.network, tables.decoded):
        summary["duplicate_addresses"] = duplicates
    if residual := residual_bursts(tables, facts):
        summary["residual_bursts"] = residual
    if figures := _box_figures(facts):
        summary["boxes"] = figures
        if ended := _ended_connections(facts, tables, figures, transferred=bool(summary["transfer_received_bytes"])):
            summary["ended_connections"] = ended
    findings = judge(summary)
    for texts, codes, is_grave in (("reasons", "reason_codes", True), ("caveats", "caveat_codes", False)):
        summary[texts] = [finding.text for finding in findings if finding.grave is is_grave]
        summary[codes] = [finding.code for finding in findings if finding.grave is is_grave]
    summary["verdict"] = verdict_of(findings)
    summary["notes"] += [*accounts(summary), *silent_starts(summary["start"]), *outside_notes(summary["lost_outside"])]
    summary["notes"] += control_notes(summary.get("in_band_control"))
    return summary


def _limits(limits: VerdictBounds) -> LimitFigures:
    return LimitFigures(
        lateness_p99_ms=limits.lateness_p99.ms,
        stall_ms=limits.stall.ms,
        stalled_share=limits.stalled_share,
        lateness_of_rtt=limits.lateness_of_rtt,
        failed_flows=limits.failed_flows,
    )


def _box_figures(facts: RunData) -> dict[str, dict[str, int]]:
    """The counters that the kinds of boxes declare for their programs."""
    declared = {box.name: [each.name for each in box.kind.counters] for box in facts.network.boxes if box.kind.counters}
    return {
        measured.box: {name: measured.sums[name] for name in declared[measured.box] if name in measured.sums}
        for measured in facts.measurements
        if measured.box in declared
    }


def _ended_connections(
    facts: RunData, tables: Tables, figures: Mapping[str, Mapping[str, int]], *, transferred: bool
) -> dict[str, EndedConnections]:
    """The connections at boxes that end them, as the boxes and as clients count them."""
    completed = completed_by_chain(tables)
    ends = [facts.network.with_role(role)[:1] for role in (HostRole.WORLD_SPECIAL, HostRole.ISLAND_SPECIAL)]
    if transferred and all(ends):
        (world,), (island,) = ends
        carriers = {
            each.experiment.carrier(world.address, island.address, Protocol.TCP).name for each in facts.standing
        }
        if len(carriers) == 1:
            completed[carriers.pop()] += 1
    return {
        box.name: EndedConnections(
            kind=box.kind.name,
            counted=figures[box.name][box.kind.connections_counter],
            completed=sum(count for name, count in completed.items() if facts.always_passes(name, box.name)),
        )
        for box in facts.network.boxes
        if box.kind.connections_counter in figures.get(box.name, {})
    }


def _link_figures(facts: RunData, tables: Tables, link: Link) -> LinkFigures:
    measured, back = facts.direction(link, "to_island"), facts.direction(link, "to_world")
    over_time, window = facts.over_time(link), facts.window
    # How much a late departure can push from one window into the next is unknown where lateness is not measured.
    unbounded = measured is not None and measured.lateness_max_ns is None and not facts.in_virtual_time
    slack = VIRTUAL_SLACK if facts.in_virtual_time else TIMER_SLACK
    box = facts.network.box(link.box)
    mtu = PathMtus(facts.network, facts.experiment).longest_at(box)
    bucket = bucket_bytes(link.to_island.rate, slack, box.mtu) if facts.manifest.get("backend") == Backend.TC else 0
    return LinkFigures(
        chains=list(dict.fromkeys(chain.name for chain in facts.experiment.all_chains if link.box in chain.hops)),
        rate_bit_s=link.to_island.rate.bit_s,
        mean_rate_bit_s=over_time.mean_rate(window.start_ns, window.end_ns).bit_s if window else None,
        least_rate_bit_s=over_time.rates(window.start_ns, window.end_ns)[0].bit_s if window else None,
        queue_bytes=link.to_island.queue.bytes,
        queue_max_bytes=measured.queue_max_bytes if measured else None,
        loss_bytes=dropped_bytes(facts, link),
        loss_fraction=_share_lost(measured),
        losses=by_cause(measured.losses, link.to_island) if measured else {},
        loss_fraction_to_world=_share_lost(back),
        losses_to_world=by_cause(back.losses, link.to_world) if back else {},
        sojourn=_sojourn(measured.sojourn) if measured and measured.sojourn else None,
        idle_s=seen.idle_s(tables, link, facts.window) if facts.window else None,
        queue_full_s=seen.queue_full_s(tables, link),
        windows_over_rate=None
        if unbounded
        else seen.windows_over_rate(tables, link, over_time, mtu, facts.lateness_max_ns or 0, bucket),
        scheduled_windows_over_rate=measured.scheduled_windows_over_rate if measured else None,
        utilisation=_utilisation(facts, tables, link),
    )


def _share_lost(measured: Part | None) -> float | None:
    return measured.dropped_packets / measured.in_packets if measured and measured.in_packets else None


def _sojourn(measured: Sojourn) -> SojournFigures:
    return SojournFigures(
        mean_ms=None if measured.mean_ns is None else measured.mean_ns / 1e6,
        p50_ms=measured.p50_ns / 1e6,
        p95_ms=measured.p95_ns / 1e6,
        p99_ms=measured.p99_ns / 1e6,
        max_ms=measured.max_ns / 1e6,
    )


def _low_priority(low: LowPriority, measured: Part | None) -> LowPriorityFigures:
    seen_there = measured.low_priority if measured else None
    return LowPriorityFigures(
        queue_bytes=low.queue.bytes,
        queue_max_bytes=seen_there.queue_max_bytes if seen_there else None,
        in_packets=seen_there.in_packets if seen_there else None,
        sent_packets=seen_there.sent_packets if seen_there else None,
        sent_bytes=seen_there.sent_bytes if seen_there else None,
        sojourn=_sojourn(seen_there.sojourn) if seen_there and seen_there.sojourn else None,
    )


def _regime(
    facts: RunData,
    link: Link,
    intervals: pl.DataFrame,
    links: Mapping[str, LinkFigures],
    bursts: Mapping[str, LossBursts],
    crowd: Concurrency | None,
) -> RegimeFigures:
    """Return the regime at the slowest link."""
    measured = facts.direction(link, "to_island")
    dropped = [lost.packets for cause, lost in measured.losses.items() if cause in ("queue", "aqm")] if measured else []
    span_s = RTTS * facts.base_rtt_ns / 1e9 if facts.base_rtt_ns is not None else None
    load, *others = facts.experiment.loads
    is_steady = load.flows_per_s is not None and all(other == load for other in others)
    return regime(
        utilisation=links[link.box]["utilisation"],
        queue_loss=sum(dropped) / measured.in_packets if measured and measured.in_packets and dropped else None,
        burst_share=bursts[link.box]["burst_share"] if link.box in bursts else None,
        swinging=None if span_s is None else swinging_share(intervals, span_s),
        span_s=span_s,
        grows=crowd["grows"] if crowd and is_steady else None,
    )


def _long_flows(facts: RunData, flows: pl.LazyFrame) -> float | None:
    """Return how many flows that are larger than the bandwidth-delay product of the slowest link were open at once."""
    link, window = facts.bottleneck, facts.window
    if link is None or window is None or facts.base_rtt_ns is None:
        return None
    mean_rate = facts.over_time(link).mean_rate(window.start_ns, window.end_ns)
    product_bytes = mean_rate.bit_s * facts.base_rtt_ns // (8 * 10**9)
    return long_flows(flows, product_bytes, window.start_ns, window.end_ns)


def _terrestrial(facts: RunData) -> dict[str, TerrestrialRtt]:
    # Jitter of a class moves single RTTs by design, so it widens what a few pings may differ by.
    jitter_ms = {check.src: check.jitter_ns / 1e6 for check in facts.plan.checks}
    found: dict[str, TerrestrialRtt] = {}
    for event in facts.of_type("terrestrial"):
        configured = event["configured_ns"] / 1e6
        allowed = terrestrial_allowance_ns(event["configured_ns"]) / 1e6
        server = str(event["server"])
        found[server] = TerrestrialRtt(
            configured=configured,
            measured=event["measured_ns"] / 1e6,
            tolerance=round(allowed + jitter_ms.get(server, 0.0), 6),
        )
        if "scatter_ns" in event:
            found[server]["scatter"] = event["scatter_ns"] / 1e6
    return found


def _transfer(facts: RunData, tables: Tables, logs: Path) -> dict[str, Any]:
    asked = facts.experiment.transfer
    received: int | None = None
    seconds: float | None = None
    complete: bool | None = None
    if asked is not None:
        done = transfer_done(logs)
        captured = seen.transfer_in_capture(tables, facts)
        if done is not None:
            received, complete = int(done.get("received_bytes", 0)), bool(done.get("complete"))
            seconds = float(done["seconds"]) if complete and done.get("seconds") else None
        elif captured is not None:
            received, complete = captured[0], captured[0] >= asked.size.bytes
            seconds = captured[1] if complete else None
    return {
        "transfer_bytes": asked.size.bytes if asked else None,
        "transfer_room_s": facts.experiment.duration.s - asked.start.s if asked else None,
        "transfer_received_bytes": received,
        "transfer_tries": transfer_tries(facts),
        "transfer_failure": next((str(event["message"]) for event in facts.of_type("transfer")), None),
        "transfer_complete": complete,
        "transfer_s": seconds,
        "transfer_mbit_s": seen.mbit_s(received, seconds) if received and seconds else None,
    }


def _pings_planned(facts: RunData) -> int | None:
    if not any(job.phase is Phase.PING for job in facts.plan.jobs):
        return None
    return -(-facts.experiment.duration.ns // facts.experiment.ping.interval.ns)


def _ping_path_loss(facts: RunData) -> float | None:
    """Return the largest packet loss of the paths of the ping series."""
    return max((lost_on(facts, way, blocked=True) for way in facts.ping_links), default=None)


def _utilisation(facts: RunData, tables: Tables, link: Link) -> float | None:
    window = facts.window
    if window is None or window.seconds <= 0:
        return None
    sent = seen.sent_by_link(tables, link, window)
    return None if sent is None else sent / seen.capacity_bytes(facts.over_time(link), link, window)


def _sojourn_bounds(facts: RunData) -> dict[str, float | None]:
    """Return what full queues can add to a ping's RTT, forth, back and both, on the path where that is most."""
    if not facts.links:
        return dict.fromkeys(("sojourn_bound_ms", "sojourn_bound_to_island_ms", "sojourn_bound_to_world_ms"))
    ways = [
        (sum(link.to_island.full_queue.ms for link in links), sum(link.to_world.full_queue.ms for link in links))
        for links in facts.ping_links or (facts.links,)
    ]
    to_island_ms, to_world_ms = max(ways, key=sum)
    return {
        "sojourn_bound_ms": to_island_ms + to_world_ms,
        "sojourn_bound_to_island_ms": to_island_ms,
        "sojourn_bound_to_world_ms": to_world_ms,
    }


def _sum(figures: Any) -> int | None:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None
