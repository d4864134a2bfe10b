# SPDX-License-Identifier: Apache-2.0
"""Columns of a run's tables: types, units, meanings. The tables are made by it, and `atoll results` prints them.

Times: ``t_ns`` and other instants CLOCK_REALTIME; ``window`` counts 100 ms from the start of the measurement, negative
before it. ``to_island``: true for packets to the island's prefix. Bytes are IP bytes unless a column says otherwise.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from atoll_analysis.tables.box_counters import COUNTER_CAUSES
from atoll_analysis.tables.directions import TO_WORLD, table_name
from atoll_analysis.tables.packet_records import SCHEMA
from atoll_core.errors import RunDirError

DataType = type[pl.DataType]
Column = tuple[DataType, str]  # type, meaning

_UNITS = {"mbit_s": "Mbit/s", "bit_s": "bit/s", "seconds": "s", **{u: u for u in ("ns", "ms", "s", "bytes", "packets")}}
_UNIT = re.compile(rf"(?:^|_)({'|'.join(_UNITS)})(?=_|$)")


def unit_of(name: str) -> str:
    """Return the unit in the name of a column or key (``goodput_mbit_s``: Mbit/s); "" if there is none."""
    units = [] if name.endswith("_share") else _UNIT.findall(name)
    return _UNITS[units[-1]] if units else ""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One table of a run."""

    rows: str  # what a row is
    columns: Mapping[str, Column]  # their units are in their names (:func:`unit_of`)

    @property
    def types(self) -> dict[str, DataType]:
        """The columns' types by name."""
        return {name: kind for name, (kind, _) in self.columns.items()}

    @property
    def units(self) -> dict[str, str]:
        """Metadata of the Parquet file: ``unit:t_ns`` is ``ns``."""
        return {f"unit:{name}": unit for name in self.columns if (unit := unit_of(name))}

    def empty(self) -> pl.LazyFrame:
        """The table without rows."""
        return pl.LazyFrame(schema=self.types)


def _text(meaning: str) -> Column:
    return pl.String, meaning


def _integer(meaning: str) -> Column:
    return pl.Int64, meaning


def _boolean(meaning: str) -> Column:
    return pl.Boolean, meaning


_CAPTURE = _text("name of the capture")
_TO_ISLAND = _boolean("direction: true for packets to the island")
_WINDOW = _integer("number of the window of 100 ms since the start of the measurement, negative before it")
_PAYLOAD = _integer("bytes of TCP payload, those sent again included")
_GOODPUT = _integer("bytes of TCP payload that this capture sees for the first time")
_LINK = _text("name of the link's box")

_PACKET_MEANINGS = {
    "t_ns": "when the packet was captured",
    "src": "IPv4 address of the sender, as a number",
    "dst": "IPv4 address of the receiver, as a number",
    "ip_bytes": "total length in the IP header",
    "payload_bytes": "bytes after the TCP, UDP or ICMP header",
    "new_payload_bytes": "TCP: those that this capture sees for the first time",
    "seq": "TCP: sequence number",
    "ack": "TCP: acknowledgement number",
    "flow": "number of the 5-tuple, the same for both directions",
    "window": "TCP: receive window in the header, without its scale",
    "sport": "source port; ICMP echo: identifier",
    "dport": "destination port; ICMP echo: sequence number",
    "ip_id": "identification in the IP header",
    "vlan": "VLAN id; 0: untagged",
    "proto": "IP protocol: 1 ICMP, 6 TCP, 17 UDP",
    "tcp_flags": "TCP: the flags, FIN is 1",
    "to_island": "1 for packets to the island, 0 for others",
    "icmp_type": "ICMP: the type",
}

_COUNTER_MEANINGS = {
    "in_packets": "packets that came to the box",
    "in_bytes": "their bytes",
    "out_packets": "packets that left the box",
    "out_bytes": "their bytes",
    "dropped_packets": "packets that the box dropped, for any reason",
    "dropped_bytes": "their bytes",
    "oversize_packets": "packets larger than the MTU, which the box refused",
    "queue_bytes": "bytes in the queue at this instant",
    "queue_max_bytes": "most bytes in the queue during the last 100 ms",
    "held_packets": "packets in the box at this instant: in the queue or delayed",
    "idle_ns": "time in which the link had nothing to send",
    "lost_after_bytes": "of the dropped bytes, those that were dropped after they had used the link",
    "low_priority_in_packets": "packets that came for the low-priority queue",
    "low_priority_in_bytes": "their bytes",
    "low_priority_sent_packets": "packets that were sent from the low-priority queue",
    "low_priority_sent_bytes": "their bytes",
    "low_priority_queue_bytes": "bytes in the low-priority queue at this instant",
    "low_priority_queue_max_bytes": "most bytes in the low-priority queue during the last 100 ms",
    "lateness_max_ns": "largest lateness of a departure during the last 100 ms",
}
_CAUSE_MEANINGS = {
    "queue": "the queue was full",
    "low_priority": "the low-priority queue was full",
    "loss": "the loss model dropped the packet",
    "aqm": "active queue management dropped the packet",
    "blocked": "the link's trace blocked the link",
    "unsent": "the network interface did not take the packet",
}

_TABLES: dict[str, TableSchema] = {
    "packets-<capture>": TableSchema(
        "a packet of one capture, in the order of the capture. `packets-arrived`: where chains have captures of their "
        "own at the island, the packets that reached the island through each chain, at that chain's last capture; "
        "`arrived` then counts as a capture in the other tables",
        {name: (kind, _PACKET_MEANINGS[name]) for name, kind in SCHEMA.items()},
    ),
    "throughput": TableSchema(
        "a capture, a window of 100 ms and a direction; windows without packets have no row",
        {
            "capture": _CAPTURE,
            "window": _WINDOW,
            "to_island": _TO_ISLAND,
            "packets": _integer("packets, whatever their protocol"),
            "ip_bytes": _integer("their bytes"),
            "tcp_payload_bytes": _PAYLOAD,
            "goodput_bytes": _GOODPUT,
        },
    ),
    "flows": TableSchema(
        "a capture and a TCP connection or UDP flow; packets and bytes are those to the island",
        {
            "capture": _CAPTURE,
            "flow": (pl.UInt32, "number of the flow in the capture's packets"),
            "protocol": _text("`tcp` or `udp`"),
            "server": _text("name of the world's host"),
            "sport": _integer("the server's port"),
            "client": _text("name of the island's host"),
            "first_ns": _integer("when its first packet was captured, of either direction"),
            "last_ns": _integer("when its last packet was captured, of either direction"),
            "packets": _integer("packets"),
            "ip_bytes": _integer("their bytes"),
            "tcp_payload_bytes": _PAYLOAD,
            "goodput_bytes": _integer("bytes of TCP payload seen for the first time; of UDP all payload"),
            "ended": _boolean("the client acknowledged the server's FIN"),
        },
    ),
    "concurrent": TableSchema(
        "a window of 100 ms",
        {
            "window": _WINDOW,
            "open": _integer(
                "connections of the channels that are open at its end: from their first packet to the server's last "
                "new payload or first FIN, whichever is later"
            ),
            "receiving": _integer("connections with payload within the window, in the direction of the client's load"),
        },
    ),
    "volume": TableSchema(
        "a host; packets and bytes to the island, where they arrive (`arrival` in the summary), without those of "
        "transfers from world servers or to island clients",
        {
            "host": _text("name of the host"),
            "role": _text("role of the host in lab.yaml"),
            "packets": _integer("packets from or to the host"),
            "ip_bytes": _integer("their bytes"),
            "goodput_bytes": _GOODPUT,
            "measured_goodput_bytes": _integer(
                "bytes of TCP payload that this capture sees for the first time, within the measurement"
            ),
            "first_ns": _integer("when its first packet was captured; null: there was none"),
            "last_ns": _integer("when its last packet was captured"),
            "payload_first_ns": _integer("when its first packet with new TCP payload was captured"),
            "payload_last_ns": _integer("when its last packet with new TCP payload was captured"),
        },
    ),
    "pings": TableSchema(
        "an echo request of the ping series",
        {
            "target": _text("name of the host that answers"),
            "seq": _integer("sequence number"),
            "sent_ns": _integer("when the request was sent"),
            "rtt_ns": _integer("RTT; null: no answer"),
        },
    ),
    "queue": TableSchema(
        "a link and an interval of 100 ms between its counters, within the measurement; the direction to the island",
        {
            "link": _LINK,
            "t_ns": _integer("end of the interval"),
            "seconds": (pl.Float64, "length of the interval"),
            "least_bytes": _integer("least bytes in the queue"),
            "most_bytes": _integer("most bytes in the queue"),
            "idle": _boolean("at some instant the link had nothing to send"),
            "full": _boolean("at some instant a full-size packet did not fit into the queue, or was dropped for this"),
            "floor_bytes": _integer(
                "the largest minimum of the queue over all spans of one base RTT (at least 1 s) that contain the "
                "interval: the height of the standing queue; null: no span does"
            ),
        },
    ),
    "losses": TableSchema(
        "a packet to the island that a link lost within the measurement; of links between two captures",
        {
            "link": _LINK,
            "number": _integer("number of the packet among those that came to the link, from 0"),
            "t_ns": _integer("when the capture before the link saw it"),
            "ip_bytes": _integer("its bytes"),
        },
    ),
    "boxes": TableSchema(
        "counters of a link box or delay box, every 100 ms: sums since the start of the box, maxima of the last "
        "100 ms; null: the box does not count this. Bytes as the link counts them: of IP packets or Ethernet frames",
        {
            "box": _text("name of the box"),
            "part": _text("`to_island` or `to_world`; of a delay box the VLAN id of a latency class"),
            "t_ns": _integer("when the counters were read"),
            **{name: _integer(meaning) for name, meaning in _COUNTER_MEANINGS.items()},
            **{
                f"dropped_{cause}_{unit}": _integer(f"dropped {unit}: {_CAUSE_MEANINGS[cause]}")
                for cause in COUNTER_CAUSES
                for unit in ("packets", "bytes")
            },
        },
    ),
    "channel_flows": TableSchema(
        "a flow of a channel: one connection of a client, as its traffic generator logged it",
        {
            "channel": _integer("number of the channel"),
            "flow": _integer("number of the flow in its channel, from 0"),
            "server": _text("name of the server"),
            "size_bytes": _integer("payload that the client requested, or of an upload announced"),
            "received_bytes": _integer("payload that came, or of an upload that the server has confirmed"),
            "start_ns": _integer("when the client began to connect"),
            "connected_ns": _integer("when it was connected; null: never"),
            "first_byte_ns": _integer("when the first byte of payload came; null: never, or an upload"),
            "end_ns": _integer("when the flow ended"),
            "outcome": _text("`completed`, `cut` by the end of the run, or `failed:` and the error's name"),
            "client": _text("name of the client"),
            "chain": _text("the chain that carried the connection when it began"),
        },
    ),
    "udp": TableSchema(
        "counts of a UDP receiver, every 100 ms, since its start; only of runs with UDP traffic",
        {
            "host": _text("name of the receiver; empty in older runs, which have one receiver"),
            "t_ns": _integer("when they were read"),
            "packets": _integer("packets received"),
            "bytes": _integer("their bytes"),
            "lost_packets": _integer("packets missing by their sequence numbers"),
            "reordered_packets": _integer("packets that came after a later one"),
            "jitter_ns": _integer("interarrival jitter (RFC 3550, section 6.4.1)"),
        },
    ),
    "chains": TableSchema(
        "a chain and a window of 100 ms, to the island where packets arrive; only of runs with several chains",
        {
            "chain": _text("name of the chain"),
            "window": _WINDOW,
            "packets": _integer("packets, whatever their protocol"),
            "ip_bytes": _integer("their bytes"),
            "goodput_bytes": _GOODPUT,
        },
    ),
}
TABLES: Mapping[str, TableSchema] = {
    **_TABLES,
    **{
        table_name(name, TO_WORLD): TableSchema(
            f"as `{name}`, of the direction to the world; only of runs with uploads", _TABLES[name].columns
        )
        for name in ("flows", "volume", "queue", "losses", "chains")
    },
}
"""By the name of the file in tables/, without .parquet."""


def schema_of(name: str) -> TableSchema:
    """Return the schema of a table by the name of its file (``throughput``, ``packets-island``)."""
    return TABLES["packets-<capture>" if name.startswith("packets-") else name]


def scan_table(path: Path) -> pl.LazyFrame:
    """Return a table of a stored run, lazily. Raises RunDirError if it is missing or cannot be read."""
    table = pl.scan_parquet(path, glob=False)
    try:
        table.collect_schema()
    except (pl.exceptions.PolarsError, OSError) as error:
        unreadable = f"cannot be read ({str(error).splitlines()[0]})"
        reason = unreadable if path.exists() else "there is no such table"
        raise RunDirError(f"{path}: {reason}; `atoll report {path.parent.parent}` makes it again") from None
    return table
