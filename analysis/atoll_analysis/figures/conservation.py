# SPDX-License-Identifier: Apache-2.0
"""Packets between captures: loss of each section of a chain, TCP payload through the whole chain."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

import polars as pl

from atoll_analysis.figures.observables import Totals, totals
from atoll_analysis.tables.capture_pairs import capture_pairs
from atoll_analysis.tables.packet_records import ETHERNET_HEADER_BYTES
from atoll_analysis.tables.probe_filter import most_bytes, of_changes
from atoll_analysis.tables.run_data import RunData
from atoll_analysis.tables.tables import Tables
from atoll_analysis.verdict.loss_agreement import Payload, Section
from atoll_core.experiment.experiment import Counted, Link, Protocol
from atoll_core.plural import counted

_DISCARD = 9  # the port of probes


def stretches(data: RunData, tables: Tables) -> list[Section]:
    """Return every section between two captures whose loss can be compared, from world to island."""
    dropped = {link.box: dropped_bytes(data, link) for link in data.topology.links}
    declared = {box.name for box in data.network.boxes if box.conserves_packets}
    probes = of_changes(data) if data.changes else None
    found: list[Section] = []
    seen: dict[str, Totals | None] = {}
    for first, last, boxes in capture_pairs(data, tables.decoded):
        for name in (first, last):
            if name not in seen:
                seen[name] = totals(tables, name, leaving_out=probes)
        before, after = seen[first], seen[last]
        lost = [dropped[box] for box in boxes if box in dropped]
        known = [each for each in lost if each is not None]
        if before is None or after is None or len(known) < len(lost):
            continue
        found.append(
            Section(
                first=first,
                last=last,
                boxes=list(boxes),
                links=[box for box in boxes if box in dropped],
                declared=[box for box in boxes if box in declared],
                captured_bytes=before.ip_bytes - after.ip_bytes,
                counted_bytes=sum(known),
                probed_bytes_max=most_bytes(data) if known else 0,
            )
        )
    return found


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
    if not boxes or not {"world", "island"} <= tables.decoded.keys():
        return None
    hosts = {host.name: host.address for host in data.network.hosts}
    flows = tables.scan("flows").filter((pl.col("protocol") == "tcp") & (pl.col("sport") != _DISCARD))
    pair = ["server", "sport", "client"]
    connections = flows.select("capture", *pair, "goodput_bytes", "ended")
    before, after = (connections.filter(pl.col("capture") == name) for name in ("world", "island"))
    sent = before.group_by(pair).agg(world=pl.col("goodput_bytes").sum(), largest=pl.col("goodput_bytes"))
    came = after.group_by(pair).agg(island=pl.col("goodput_bytes").sum(), open=(~pl.col("ended")).sum())
    found = Payload(
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
    rows = sent.join(came, on=pair, how="full", coalesce=True).sort(pair).collect(engine="streaming")
    for server, port, client, world, largest, island, still_open in rows.iter_rows():
        if not (server in hosts and client in hosts and _passes_both(data, hosts[server], hosts[client])):
            continue
        one = _Pair(f"{server}:{port} to {client}", world or 0, island or 0, still_open or 0, largest or [])
        found["world_bytes"] += one.world
        found["island_bytes"] += one.island
        found["open_connections"] += one.still_open
        found["held_bytes_max"] += one.held_max
        found["wrong"] += () if found["lossy"] else one.wrong()
        if port == data.experiment.traffic.port and (client_said := received.get((server, client))) is not None:
            found["received_bytes"] = (found["received_bytes"] or 0) + client_said[0]
            found["wrong"] += one.wrong_at_client(*client_said)
    return found


@dataclass(frozen=True, slots=True)
class _Pair:
    """A server, its port and a client: payload bytes at both captures."""

    name: str
    world: int
    island: int
    still_open: int  # connections that had not ended at the island
    sent: list[int]  # by connection, in the capture world

    @property
    def held_max(self) -> int:
        """An upper bound of the bytes that a box can hold of connections that had not ended."""
        return sum(sorted(self.sent, reverse=True)[: self.still_open])

    def wrong(self) -> Iterator[str]:
        missing = self.world - self.island
        if missing < 0:
            yield f"{self.name}: {counted(-missing, 'byte')} more reached the island than entered"
        elif missing > self.held_max:
            held = f" (boxes may still hold up to {self.held_max}" if self.still_open else ""
            yield f"{self.name}: {counted(missing, 'byte')} did not reach the island{held}"

    def wrong_at_client(self, received: int, finished: bool) -> Iterator[str]:
        """``finished``: every one of the client's flows from that server was completed."""
        if received > self.island or (finished and received < self.island):
            yield f"{self.name}: {counted(self.island, 'byte')} reached the island, the client received {received}"


def _passes_both(data: RunData, world: IPv4Address, island: IPv4Address) -> bool:
    """Return whether TCP between two hosts passed both captures in every version."""
    carriers = (each.experiment.carrier(world, island, Protocol.TCP) for each in data.topology.standing)
    return all(map(data.topology.passes_both, carriers))


def _received(tables: Tables) -> dict[tuple[str, str], tuple[int, bool]]:
    """Return the payload that each client received from each server, and whether all of its flows were completed."""
    rows = (
        tables.scan("channel_flows")
        .group_by("server", "client")
        .agg(pl.col("received_bytes").sum(), finished=(pl.col("outcome") == "completed").all())
        .collect()
    )
    return {
        (server, client): (received, finished)
        for server, client, received, finished in rows.iter_rows()
        if server is not None
    }
