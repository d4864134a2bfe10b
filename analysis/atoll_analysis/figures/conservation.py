# SPDX-License-Identifier: Apache-2.0
"""Packets between captures: loss of each section of a chain, TCP payload through the whole chain."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

import polars as pl

from atoll_analysis.figures.observables import totals
from atoll_analysis.tables.packet_records import ETHERNET_HEADER_BYTES
from atoll_analysis.tables.probe_filter import is_change_probe, most_probe_bytes
from atoll_analysis.tables.run_data import RunData
from atoll_analysis.tables.tables import Tables
from atoll_analysis.verdict.loss_agreement import Payload, Section
from atoll_core.experiment.experiment import Counted, Link, Protocol
from atoll_core.plural import counted

_DISCARD_PORT = 9  # the port of probes


def sections(data: RunData, tables: Tables) -> list[Section]:
    """Return every section between two captures whose loss can be compared, from world to island."""
    dropped = {link.box: dropped_bytes(data, link) for link in data.topology.links}
    declared = {box.name for box in data.network.boxes if box.conserves_packets}
    probes = is_change_probe(data) if data.changes else None

    @functools.cache
    def ip_bytes(capture: str) -> int:
        return totals(tables, capture, excluded=probes).ip_bytes

    sections: list[Section] = []
    for first, last, boxes in data.topology.capture_pairs(tables.captures):
        links = [box for box in boxes if box in dropped]
        counts = [count for link in links if (count := dropped[link]) is not None]
        if len(counts) == len(links):
            section = Section(
                first=first,
                last=last,
                boxes=list(boxes),
                links=links,
                declared=[box for box in boxes if box in declared],
                captured_bytes=ip_bytes(first) - ip_bytes(last),
                counted_bytes=sum(counts),
                probed_bytes_max=most_probe_bytes(data) if links else 0,
            )
            sections.append(section)
    return sections


def dropped_bytes(data: RunData, link: Link) -> int | None:
    """IP bytes to the island that a link counted as dropped; None: not counted."""
    measured = data.direction(link, "to_island")
    if measured is None:
        return None
    header = ETHERNET_HEADER_BYTES if link.counts is Counted.ETHERNET else 0
    return measured.dropped_bytes - header * measured.dropped_packets


def payload(data: RunData, tables: Tables) -> Payload | None:
    """Return TCP payload at the captures world and island and at the clients; None where packets prove it already.

    Hosts are left out whose chain, in any version, passes only one of the two captures.
    """
    boxes = data.topology.not_conserving
    if not boxes or not {"world", "island"} <= tables.captures.keys():
        return None
    hosts = {host.name: host.address for host in data.network.hosts}
    flows = tables.scan("flows").filter((pl.col("protocol") == "tcp") & (pl.col("sport") != _DISCARD_PORT))
    pair_columns = ["server", "sport", "client"]
    before, after = (flows.filter(pl.col("capture") == name) for name in ("world", "island"))
    sent = before.group_by(pair_columns).agg(world=pl.col("goodput_bytes").sum(), largest=pl.col("goodput_bytes"))
    arrived = after.group_by(pair_columns).agg(island=pl.col("goodput_bytes").sum(), open=(~pl.col("ended")).sum())
    figures = Payload(
        boxes=list(boxes),
        lossy=[box.name for box in data.network.boxes if box.name in boxes and not box.conserves_payload],
        world_bytes=0,
        island_bytes=0,
        open_connections=0,
        held_bytes_max=0,
        received_bytes=None,
        wrong=[],
    )
    received = _received(tables)
    rows = sent.join(arrived, on=pair_columns, how="full", coalesce=True).sort(pair_columns).collect(engine="streaming")
    for server, port, client, world, largest, island, still_open in rows.iter_rows():
        if not (server in hosts and client in hosts and _passes_both(data, hosts[server], hosts[client])):
            continue
        pair = _Pair(f"{server}:{port} to {client}", world or 0, island or 0, still_open or 0, largest or [])
        figures["world_bytes"] += pair.world
        figures["island_bytes"] += pair.island
        figures["open_connections"] += pair.still_open
        figures["held_bytes_max"] += pair.held_bytes_max
        figures["wrong"] += () if figures["lossy"] else pair.disagreements()
        if port == data.experiment.traffic.port and (at_client := received.get((server, client))) is not None:
            figures["received_bytes"] = (figures["received_bytes"] or 0) + at_client[0]
            figures["wrong"] += pair.client_disagreements(*at_client)
    return figures


@dataclass(frozen=True, slots=True)
class _Pair:
    """A server, its port and a client: payload bytes at both captures."""

    name: str
    world: int
    island: int
    still_open: int  # connections that had not ended at the island
    sent: list[int]  # by connection, in the capture world

    @property
    def held_bytes_max(self) -> int:
        """An upper bound of the bytes that a box can hold of connections that had not ended."""
        return sum(sorted(self.sent, reverse=True)[: self.still_open])

    def disagreements(self) -> Iterator[str]:
        missing = self.world - self.island
        if missing < 0:
            yield f"{self.name}: {counted(-missing, 'byte')} more reached the island than entered"
        elif missing > self.held_bytes_max:
            held = f" (boxes may still hold up to {self.held_bytes_max}" if self.still_open else ""
            yield f"{self.name}: {counted(missing, 'byte')} did not reach the island{held}"

    def client_disagreements(self, received: int, finished: bool) -> Iterator[str]:
        """``finished``: every one of the client's flows from that server was completed."""
        if received > self.island or (finished and received < self.island):
            yield f"{self.name}: {counted(self.island, 'byte')} reached the island, the client received {received}"


def _passes_both(data: RunData, world: IPv4Address, island: IPv4Address) -> bool:
    """Return whether TCP between two hosts passed both captures in every version."""
    chains = (experiment.carrier(world, island, Protocol.TCP) for _, experiment in data.topology.periods)
    return all(map(data.topology.passes_both_end_taps, chains))


def _received(tables: Tables) -> dict[tuple[str, str], tuple[int, bool]]:
    """Return the payload that each client received from each server, and whether all of its flows were completed."""
    finished = (pl.col("outcome") == "completed").all()
    pairs = tables.scan("channel_flows").filter(pl.col("server").is_not_null()).group_by("server", "client")
    rows = pairs.agg(pl.col("received_bytes").sum(), finished.alias("finished")).collect().iter_rows()
    return {(server, client): (received, finished) for server, client, received, finished in rows}
