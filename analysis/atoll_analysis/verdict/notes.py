# SPDX-License-Identifier: Apache-2.0
"""Notes of a run: figures that could not be measured or judged, and why; they do not affect the verdict."""

import itertools
from collections.abc import Iterator

from atoll_analysis.figures.clocks import unknown_start_notes
from atoll_analysis.summary import ControlPackets, ControlTraffic, Summary
from atoll_analysis.tables.run_data import RunData
from atoll_analysis.tables.tables import MERGED_ARRIVALS, Tables
from atoll_analysis.verdict.imported import clock_note
from atoll_analysis.verdict.loss_agreement import compared_links
from atoll_analysis.verdict.lost_outside import outside_notes
from atoll_core.experiment.experiment import Protocol
from atoll_core.lab.network import HostRole
from atoll_core.plan.plan import Backend
from atoll_core.plan.tc_settings import early_starts
from atoll_core.plural import bit_rate, counted


def notes(data: RunData, tables: Tables, summary: Summary) -> list[str]:
    """The notes, one line each."""
    return [
        # Without a measurement, the reasons say so; of an imported run, the caveats.
        *(_measurement_notes(data, tables, summary) if data.window and not data.is_imported else ()),
        *_import_notes(data, tables, summary),
        *_count_notes(summary),
        *unknown_start_notes(summary["start"]),
        *outside_notes(summary["lost_outside"]),
        *control_notes(summary.get("in_band_control")),
    ]


def _import_notes(data: RunData, tables: Tables, summary: Summary) -> Iterator[str]:
    if imported := summary.get("imported"):
        yield clock_note(imported)
        yield from _one_way(data, tables)


def _measurement_notes(data: RunData, tables: Tables, summary: Summary) -> Iterator[str]:
    yield from _arrivals(data, tables)
    yield from _arrivals_to_world(data, tables)
    yield from _one_way(data, tables)
    yield from _links(data, tables, summary)
    yield from _boxes(data)
    yield from _split_transfer(data)
    yield from _latency(data, summary)
    yield from _idle(data)


def _count_notes(summary: Summary) -> Iterator[str]:
    """Return notes from the counts of pings and captures."""
    if summary["ping_unsent"]:
        yield (
            f"the kernel refused to send {counted(summary['ping_unsent'], 'ping')} of the series: the host had no "
            "route, or a full send queue; these pings count as lost"
        )
    if summary["ping_unstamped"]:
        yield (
            f"{counted(summary['ping_unstamped'], 'answered ping')} had no kernel timestamp: RTT and sojourn time "
            "include the time that the ping program waited for a processor"
        )
    for name, capture in summary["captures"].items():
        if capture["unchecked"]:
            yield (
                f"capture {name} has {counted(capture['unchecked'], 'frame')} without a computed checksum: the sender "
                "has offloads enabled, so captured packets may be larger than those on the wire"
            )


def _arrivals(data: RunData, tables: Tables) -> Iterator[str]:
    if not data.topology.links:
        subject_text = "no chain has a" if len(data.topology.chains) > 1 else "the chain has no"
        yield f"{subject_text} satellite link: link rate, queue and loss were not measured"
    if tables.arrival is None:
        yield "no tap captures island traffic: throughput, goodput, flows and shares were not measured"
    elif tables.arrival == MERGED_ARRIVALS:
        arrivals = {chain: data.topology.arrival_capture(chain, tables.captures) for chain in data.topology.chains}
        captures = ", ".join(dict.fromkeys(name for name in arrivals.values() if name is not None))
        yield f"each chain has its own last tap: island traffic is merged from captures {captures}"
        if uncaptured := ", ".join(dict.fromkeys(chain.name for chain, name in arrivals.items() if name is None)):
            yield f"no tap captures the island traffic of chain {uncaptured}: its traffic is missing from all figures"
    elif "island" not in tables.captures:
        yield f"no island tap: throughput and goodput were computed from capture {tables.arrival}, behind the link"


def _arrivals_to_world(data: RunData, tables: Tables) -> Iterator[str]:
    """Return a note if uploads were not captured where they arrive."""
    if data.experiment.has_uploads and tables.arrival_to_world is None:
        yield "no capture shows what reaches the world: throughput, goodput and shares of uploads were not measured"


def _one_way(data: RunData, tables: Tables) -> Iterator[str]:
    """Return a note if the capture at the island has no packets to the world."""
    captures = sorted(data.topology.one_way_captures & tables.captures.keys())
    if not captures:
        return
    captures_text = ("capture " if len(captures) == 1 else "captures ") + ", ".join(captures)
    beginnings = "their first answers" if data.is_imported else "the clients' logs"
    concurrency_text = (
        f"; concurrency has the beginnings of connections from {beginnings}, and connections without an answer are "
        "not counted"
        if tables.arrival in captures
        else ""
    )
    yield (
        f"{captures_text}: only packets to the island, so throughput to the world is not in its tables"
        f"{concurrency_text}"
    )


def _links(data: RunData, tables: Tables, summary: Summary) -> Iterator[str]:
    tapped = data.topology.tapped_links if {"world", "island"} <= tables.captures.keys() else ()
    compared = {*(link.box for link in tapped), *compared_links(summary["stretches"])}
    uncompared = [link.box for link in data.topology.links if link.box not in compared]
    if uncompared:
        counters = "the link's own counter" if len(uncompared) == 1 else "the links' own counters"
        yield f"the loss of {', '.join(uncompared)} is from {counters}; no captures on both sides confirm it"
    if data.topology.links and not data.measurements:
        yield (
            "the boxes did not report the end of the measurement: lateness, loss at the link and queue maximum are "
            "unknown"
        )
    if any(direction.trace for link in data.topology.links for direction in (link.to_island, link.to_world)):
        yield (
            "a link followed a trace or was changed: sojourn time is RTT minus the RTT at the start; utilisation and "
            "standing queue are relative to the rate of each instant"
        )
    if data.manifest.get("backend") == Backend.TC:
        for link, direction, serialisation in early_starts(data.network, data.topology.links):
            yield (
                f"{link.box} was emulated by tc: {direction.replace('_', ' the ')}, the first packet after an idle "
                f"time gets no serialisation delay (up to {serialisation.ms:.1f} ms), so its RTT is too short by that"
            )
    if data.in_virtual_time:
        yield "virtual time: the clock stops while a machine computes, so no departure can be late"


def _boxes(data: RunData) -> Iterator[str]:
    """Return notes on frames with inexact arrival times, and for frames that no receiver accepts."""
    for box in data.measurements:
        if box.unread_packets:
            yield (
                f"{box.box} lost {counted(box.unread_packets, 'packet')} at its own socket; "
                "no other figure includes them"
            )
        if box.unstamped_packets:
            packets = counted(box.unstamped_packets, "packet")
            yield (
                f"{packets} reached {box.box} without a receive timestamp: the time at which {box.box} read them is "
                "used as their arrival"
            )
        late_parts = [part for part in box.parts if part.clamped_packets]
        if late_parts:
            packets = counted(sum(part.clamped_packets for part in late_parts), "packet")
            latest_ms = max(part.clamped_max_ns for part in late_parts) / 1e6
            yield (
                f"{box.box} received {packets} up to {latest_ms:.3f} ms after they arrived; this is included in their "
                "lateness"
            )
        if box.no_checksum_packets:
            packets = counted(box.no_checksum_packets, "packet")
            yield (
                f"{packets} reached {box.box} without a checksum; receivers discard such packets: disable checksum "
                "offload at the sender (ethtool -K INTERFACE tx off)"
            )


def _split_transfer(data: RunData) -> Iterator[str]:
    """Return a note if iperf3 sent through a box that ends connections: its sender sees only that box."""
    splitting = {box.name for box in data.network.boxes if box.ends_connections}
    passed = (
        (hop, transfer)
        for transfer in data.experiment.all_transfers
        if transfer.tool == "iperf3"
        for chain in data.topology.chains_between(*transfer.ends(data.network), Protocol.TCP)
        for hop in chain.hops
        if hop in splitting
    )
    for box, transfer in itertools.islice(passed, 1):
        receiver, end = ("server", "world") if transfer.is_upload else ("client", "island")
        yield (
            f"iperf3's sender counts bytes that {box} accepted, not bytes that the {receiver} received, so its rate is "
            f"too high; atoll shows the rate of the {end}'s capture instead"
        )


def _latency(data: RunData, summary: Summary) -> Iterator[str]:
    if data.topology.links and not data.of_type("base_rtt"):
        yield "no base RTT was measured: queue sojourn times are unknown"
    elif data.topology.links and not summary["ping_sent"]:
        yield "no ping was recorded in the measurement: queue sojourn times are unknown"
    if len(data.topology.ping_links) > 1:
        yield (
            "the ping series changed to another link: sojourn times are relative to the RTT at the start of the ping "
            "series"
        )
    special = {host.name for host in data.network.with_role(HostRole.WORLD_SPECIAL)}
    delays = {
        tuple(pair for pair in experiment.latency if pair[0] in special) for _, experiment in data.topology.periods
    }
    if len(delays) > 1:
        yield (
            "the special server's latency changed: sojourn times are relative to the RTT at the start of the ping "
            "series"
        )


def _idle(data: RunData) -> Iterator[str]:
    """Return a note on clients without channels that would have some if all capacities were equal."""
    for load in data.experiment.traffic.loads:
        clients = [client for client in data.plan.placement if client.group == load.name]
        idle = [f"{client.host} (capacity {client.capacity:g})" for client in clients if not client.channels]
        if idle and load.channels >= len(clients):
            of_group = f" of group {load.name}" if load.name else ""
            yield f"{', '.join(idle)} got none of the {load.channels} channels{of_group}"


def control_notes(traffic: ControlTraffic | None) -> Iterator[str]:
    """Return a note on in-band control, which shares cables with the experiment's packets.

    It passes no tap of a switch. Physical taps may capture it; figures leave it out. Interface counters of its hosts
    contain it.
    """
    if traffic is None or not traffic["seconds"]:
        return

    def text(direction: ControlPackets) -> str:
        rate = bit_rate(8 * direction["bytes"] / traffic["seconds"])
        return f"{counted(direction['packets'], 'packet')} ({direction['bytes'] / 1e3:.1f} kB, {rate})"

    yield (
        f"in-band control of {counted(traffic['hosts'], 'host')} during the measurement: {text(traffic['to_hosts'])} "
        f"to them, {text(traffic['to_daemon'])} from them; figures do not contain it"
    )
