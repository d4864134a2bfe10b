# SPDX-License-Identifier: Apache-2.0
"""Packets between captures: loss of each section of a chain, TCP payload through the whole chain."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

import polars as pl

from atoll_analysis.figures.observables import totals
from atoll_analysis.tables.directions import TO_ISLAND, TO_WORLD, Direction
from atoll_analysis.tables.job_logs import flows_of
from atoll_analysis.tables.packet_records import ETHERNET_HEADER_BYTES
from atoll_analysis.tables.probe_filter import is_change_probe, most_probe_bytes
from atoll_analysis.tables.run_data import RunData
from atoll_analysis.tables.tables import Tables
from atoll_analysis.verdict.loss_agreement import Payload, Section
from atoll_core.experiment.experiment import Counted, Link, Protocol
from atoll_core.experiment.traffic import REQUEST_BYTES
from atoll_core.plural import counted

_DISCARD_PORT = 9  # the port of probes


def sections(data: RunData, tables: Tables, direction: Direction = TO_ISLAND) -> list[Section]:
    """Return every section between two captures whose loss can be compared."""
    dropped = {link.box: dropped_bytes(data, link, direction) for link in data.topology.links}
    declared = {box.name for box in data.network.boxes if box.conserves_packets}
    probes = is_change_probe(data) if data.changes else None

    @functools.cache
    def ip_bytes(capture: str) -> int:
        return totals(tables, capture, excluded=probes, direction=direction).ip_bytes

    sections: list[Section] = []
    for first, last, boxes in data.topology.capture_pairs(tables.captures, direction):
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


def dropped_bytes(data: RunData, link: Link, direction: Direction = TO_ISLAND) -> int | None:
    """IP bytes in a direction that a link counted as dropped; None: not counted."""
    measured = data.direction(link, direction)
    if measured is None:
        return None
    header = ETHERNET_HEADER_BYTES if link.counts is Counted.ETHERNET else 0
    return measured.dropped_bytes - header * measured.dropped_packets


def payload(data: RunData, tables: Tables, direction: Direction = TO_ISLAND) -> Payload | None:
    """Return TCP payload at the captures world and island and at the clients; None where packets prove it already.

    Of uploads the clients know what servers have confirmed.

    Hosts are left out whose chain, in any version, passes only one of the two captures.
    """
    boxes = data.topology.not_conserving
    ends = data.topology.ends(tables.captures, direction)
    if not boxes or ends is None:
        return None
    hosts = {host.name: host.address for host in data.network.hosts}
    flows = tables.scan("flows", direction).filter((pl.col("protocol") == "tcp") & (pl.col("sport") != _DISCARD_PORT))
    pair_columns = ["server", "sport", "client"]
    before, after = (flows.filter(pl.col("capture") == name) for name in ends)
    sent = before.group_by(pair_columns).agg(sent=pl.col("goodput_bytes").sum(), largest=pl.col("goodput_bytes"))
    arrived = after.group_by(pair_columns).agg(arrived=pl.col("goodput_bytes").sum(), open=(~pl.col("ended")).sum())
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
    received = _received(tables, data, direction)
    rows = sent.join(arrived, on=pair_columns, how="full", coalesce=True).sort(pair_columns).collect(engine="streaming")
    for server, port, client, entered, largest, left, still_open in rows.iter_rows():
        if not (server in hosts and client in hosts and _passes_both(data, hosts[server], hosts[client])):
            continue
        way = f"{server}:{port} to {client}" if direction is TO_ISLAND else f"{client} to {server}:{port}"
        pair = _Pair(way, direction, entered or 0, left or 0, still_open or 0, largest or [])
        at_world, at_island = (pair.entered, pair.left) if direction is TO_ISLAND else (pair.left, pair.entered)
        figures["world_bytes"] += at_world
        figures["island_bytes"] += at_island
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
    direction: Direction
    entered: int  # at the first of them
    left: int  # at the last
    still_open: int  # connections that had not ended there
    sent: list[int]  # by connection, at the first

    @property
    def held_bytes_max(self) -> int:
        """An upper bound of the bytes that a box can hold of connections that had not ended."""
        return sum(sorted(self.sent, reverse=True)[: self.still_open])

    def disagreements(self) -> Iterator[str]:
        missing = self.entered - self.left
        if missing < 0:
            yield f"{self.name}: {counted(-missing, 'byte')} more reached the {self._end} than entered"
        elif missing > self.held_bytes_max:
            held = f" (boxes may still hold up to {self.held_bytes_max}" if self.still_open else ""
            yield f"{self.name}: {counted(missing, 'byte')} did not reach the {self._end}{held}"

    def client_disagreements(self, received: int, finished: bool) -> Iterator[str]:
        """``finished``: every one of the client's flows with that server was completed."""
        if received > self.left or (finished and received < self.left):
            received_text = "the client received" if self.direction is TO_ISLAND else "the server confirmed"
            yield f"{self.name}: {counted(self.left, 'byte')} reached the {self._end}, {received_text} {received}"

    @property
    def _end(self) -> str:
        return "island" if self.direction is TO_ISLAND else "world"


def _passes_both(data: RunData, world: IPv4Address, island: IPv4Address) -> bool:
    """Return whether TCP between two hosts passed both captures in every version."""
    chains = (experiment.carrier(world, island, Protocol.TCP) for _, experiment in data.topology.periods)
    return all(map(data.topology.passes_both_end_taps, chains))


def _received(tables: Tables, data: RunData, direction: Direction) -> dict[tuple[str, str], tuple[int, bool]]:
    """Return the payload between each server and client, and whether all of its flows were completed.

    Of clients whose flows have this direction. Each upload has a request, too.
    """
    completed = pl.col("outcome") == "completed"
    received = pl.col("received_bytes") + (REQUEST_BYTES * completed if direction is TO_WORLD else 0)
    flows = tables.scan("channel_flows").filter(pl.col("server").is_not_null() & flows_of(direction, data.uploading))
    pairs = flows.group_by("server", "client")
    rows = pairs.agg(received.sum(), completed.all().alias("finished")).collect().iter_rows()
    return {(server, client): (received, finished) for server, client, received, finished in rows}
