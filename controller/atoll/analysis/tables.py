# SPDX-License-Identifier: Apache-2.0
"""Captures and logs to Parquet tables: one file a table in tables/, rebuilt as a whole.

Times: ``t_ns`` CLOCK_REALTIME; ``window`` counts 100 ms from the start of the measurement (negative before it).
Directions: ``to_island`` true for packets to the island's prefix. Bytes are IP bytes.

packets-<capture>   a row a packet, columns of records.SCHEMA
throughput          capture, window, to_island, packets, ip_bytes, tcp_payload_bytes, goodput_bytes;
                    windows without packets have no row
flows               capture, flow, protocol (tcp or udp), server, sport (the server's), client, first_ns, last_ns, and
                    of the island-bound direction packets, ip_bytes, tcp_payload_bytes, goodput_bytes (of UDP, of which
                    nothing is sent twice, all payload); ended: the client has acknowledged the server's FIN
concurrent          window, open (connections of the channels at its end, from their first packet to the last new
                    payload of the server or its first FIN), receiving (those with payload within it)
volume              host, role, packets, ip_bytes, goodput_bytes, first_ns, last_ns, payload_first_ns,
                    payload_last_ns (of new TCP payload): island-bound at the arrival capture
pings               target, seq, sent_ns, rtt_ns (null: lost)
boxes               box, part (direction or VLAN id), t_ns, the box's counters: sums since its start, maxima of 100 ms
channel_flows       client, chain (that carried it when it began) and the columns of the clients' flow logs
udp                 of runs with UDP traffic: t_ns, and as the receiver had counted by then packets, bytes,
                    lost_packets, reordered_packets, jitter_ns

Of runs whose chains have arrival captures of their own there is also packets-arrived: what reached the island through
each chain, at that chain's arrival capture; it counts as a capture in the tables above. Of runs with several chains:

chains              chain, window, packets, ip_bytes, goodput_bytes: island-bound at the arrival capture
"""

import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from atoll.analysis.carried import by_chain
from atoll.analysis.facts import Facts
from atoll.analysis.logs import box_table, channel_flow_table, ping_table, udp_table
from atoll.analysis.probes import is_probe
from atoll.analysis.records import TCP, UDP, Decoded, decode, scan_records
from atoll.model.experiment import Chain
from atoll.model.network import Host, HostRole
from atoll.rundir.files import plain_errors, replacing, told_error
from atoll.rundir.rundir import RunDir

ARRIVED = "arrived"
"""What stands for the capture at the island where no single one sees what all chains bring."""

_FIN, _RST = 0x01, 0x04

WINDOW_NS = 100_000_000
"""Length of the windows in which rates are given: 100 ms, as in the literature the lab compares with."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one run and what was said of its captures while they were decoded."""

    folder: Path
    origin_ns: int  # where window 0 begins
    decoded: Mapping[str, Decoded]
    arrival: str | None  # the packets that stand for "has reached the island": a capture's, ARRIVED, or None

    def scan(self, name: str) -> pl.LazyFrame:
        """One table, lazily."""
        return pl.scan_parquet(self.folder / f"{name}.parquet", glob=False)

    def packets(self, capture: str) -> pl.LazyFrame:
        """The packets of one capture, lazily."""
        return self.scan(f"packets-{capture}")


def build_tables(run: RunDir, facts: Facts, binary: Path) -> Tables:
    """Build every table of a run. Captures that are missing are left out; what is there of a cut one is used.

    Raises RunError: a capture that is none, a full disk (tables of before stay as they were).
    """
    with plain_errors(run.tables):
        run.tables.mkdir(exist_ok=True)
    decoded = _decode_all(run, facts, binary)
    origin = facts.window.start_ns if facts.window else _first_packet_ns(run, decoded)
    tables = Tables(run.tables, origin, decoded, _arrival(run, facts, decoded))
    _write(tables, "pings", ping_table(run.logs))
    _write(tables, "boxes", box_table(run.path / "link.jsonl"))
    _write(tables, "channel_flows", _channel_flows(run, facts))
    _write(tables, "throughput", _throughput(tables))
    _write(tables, "flows", _flows(tables, facts))
    if facts.experiment.udp is not None:
        _write(tables, "udp", udp_table(run.logs))
    _write(tables, "concurrent", _concurrent(tables, facts))
    _write(tables, "volume", _volume(tables, facts))
    if tables.arrival is not None and facts.has_branches:
        _write(tables, "chains", _chains(tables, facts))
    return tables


def _decode_all(run: RunDir, facts: Facts, binary: Path) -> dict[str, Decoded]:
    captures = {point.name: run.capture(point.name) for point in facts.plan.captures}
    found = {name: path for name, path in captures.items() if path is not None and path.stat().st_size > 0}
    with plain_errors(run.tables), tempfile.TemporaryDirectory(prefix=".records-", dir=run.tables) as scratch:

        def to_table(name: str) -> Decoded:
            records = Path(scratch) / f"{name}.bin"
            decoded = decode(found[name], records, facts.network.island, binary)
            _sink(scan_records(records), run.tables / f"packets-{name}.parquet")
            return decoded

        with ThreadPoolExecutor(max_workers=2) as pool:
            return dict(zip(found, pool.map(to_table, found), strict=True))


def _arrival(run: RunDir, facts: Facts, decoded: Mapping[str, Decoded]) -> str | None:
    """The capture of all chains; where they have several, these make a table of their own."""
    captures = dict.fromkeys(facts.arrival(chain, decoded) for chain in facts.chains)
    if len(captures) == 1:
        return next(iter(captures))
    seen_at = _carrier(facts, lambda chain: facts.arrival(chain, decoded) or "")
    frames = [
        _with_ends(pl.scan_parquet(run.tables / f"packets-{name}.parquet", glob=False))
        .filter(seen_at == name)
        .drop("world_end", "island_end")
        for name in captures
        if name is not None
    ]
    _sink(pl.concat(frames).sort("t_ns", maintain_order=True), run.tables / f"packets-{ARRIVED}.parquet")
    return ARRIVED


def _with_ends(packets: pl.LazyFrame) -> pl.LazyFrame:
    """Packets with the addresses of their ends, whatever their direction."""
    bound = pl.col("to_island") == 1
    return packets.with_columns(
        world_end=pl.when(bound).then("src").otherwise("dst"), island_end=pl.when(bound).then("dst").otherwise("src")
    )


def _carrier(facts: Facts, label: Callable[[Chain], str]) -> pl.Expr:
    """What ``label`` says of the chain that carried a packet of :func:`_with_ends`."""
    return by_chain(facts.standing, label, "world_end", "island_end", pl.col("proto"), "t_ns")


def island_bound(tables: Tables, facts: Facts, capture: str) -> pl.LazyFrame:
    """The island-bound packets of a capture, with the name of the chain that carried each in ``chain``."""
    packets = _with_ends(tables.packets(capture)).filter(pl.col("to_island") == 1)
    return packets.with_columns(chain=_carrier(facts, lambda chain: chain.name))


def _first_packet_ns(run: RunDir, decoded: Mapping[str, Decoded]) -> int:
    firsts = [
        pl.scan_parquet(run.tables / f"packets-{name}.parquet", glob=False)
        .select(pl.col("t_ns").min())
        .collect()
        .item()
        for name in decoded
    ]
    return min((first for first in firsts if first is not None), default=0)


# Tables made of packets


def total(column: str) -> pl.Expr:
    """Sum of a column of unsigned 32 bits without its overflow."""
    return pl.col(column).cast(pl.Int64).sum()


def _each_capture(tables: Tables, summed: Callable[[pl.LazyFrame], pl.LazyFrame]) -> pl.LazyFrame | None:
    """What ``summed`` makes of the packets of every capture, below each other; None without any.

    One capture after the other: to group by numbers alone takes half as long as by the captures' names besides.
    """
    names = [*tables.decoded, *([ARRIVED] if tables.arrival == ARRIVED else [])]
    frames = [summed(tables.packets(name)).select(pl.lit(name).alias("capture"), pl.all()) for name in names]
    return pl.concat(frames) if frames else None


def _throughput(tables: Tables) -> pl.LazyFrame:
    tcp = pl.col("proto") == TCP

    def by_window(packets: pl.LazyFrame) -> pl.LazyFrame:
        return packets.group_by(
            window=(pl.col("t_ns") - tables.origin_ns).floordiv(WINDOW_NS),
            to_island=pl.col("to_island").cast(pl.Boolean),
        ).agg(
            packets=pl.len().cast(pl.Int64),
            ip_bytes=total("ip_bytes"),
            tcp_payload_bytes=pl.col("payload_bytes").filter(tcp).cast(pl.Int64).sum(),
            goodput_bytes=pl.col("new_payload_bytes").filter(tcp).cast(pl.Int64).sum(),
        )

    rows = _each_capture(tables, by_window)
    if rows is None:
        return _empty("capture", "window", "to_island", "packets", "ip_bytes", "tcp_payload_bytes", "goodput_bytes")
    return rows.sort("capture", "window", "to_island")


def _flows(tables: Tables, facts: Facts) -> pl.LazyFrame:
    hosts = _host_names(facts)
    bound, tcp = pl.col("to_island") == 1, pl.col("proto") == TCP
    arrived = pl.when(tcp).then("new_payload_bytes").otherwise("payload_bytes")
    fin, reset = (pl.col("tcp_flags") & flag != 0 for flag in (_FIN, _RST))
    after_fin = (pl.col("seq").cast(pl.Int64) + pl.col("payload_bytes") + 1) % 2**32
    acknowledged = pl.col("ack").cast(pl.Int64).filter(~bound & ~reset)

    def by_flow(packets: pl.LazyFrame) -> pl.LazyFrame:
        return (
            packets.filter(tcp | ((pl.col("proto") == UDP) & ~is_probe()))
            .group_by("flow")
            .agg(
                protocol=pl.when(tcp.first()).then(pl.lit("tcp")).otherwise(pl.lit("udp")),
                server=pl.when(bound).then("src").otherwise("dst").first(),
                sport=pl.when(bound).then("sport").otherwise("dport").first().cast(pl.Int64),
                client=pl.when(bound).then("dst").otherwise("src").first(),
                first_ns=pl.col("t_ns").min(),
                last_ns=pl.col("t_ns").max(),
                packets=bound.cast(pl.Int64).sum(),
                ip_bytes=pl.col("ip_bytes").filter(bound).cast(pl.Int64).sum(),
                tcp_payload_bytes=pl.col("payload_bytes").filter(bound & tcp).cast(pl.Int64).sum(),
                goodput_bytes=arrived.filter(bound).cast(pl.Int64).sum(),
                ended=(acknowledged == after_fin.filter(bound & fin).max()).any(),
            )
        )

    rows = _each_capture(tables, by_flow)
    if rows is None:
        return _empty(
            "capture", "flow", "protocol", "server", "sport", "client", "first_ns", "last_ns", "packets", "ip_bytes"
        ).with_columns(tcp_payload_bytes=pl.lit(0), goodput_bytes=pl.lit(0), ended=pl.lit(value=False))
    named = pl.col("server", "client").replace_strict(hosts, default=None, return_dtype=pl.String)
    return rows.with_columns(named).sort("capture", "first_ns", "flow")


def _concurrent(tables: Tables, facts: Facts) -> pl.LazyFrame:
    if tables.arrival is None:
        return _empty("window", "open", "receiving")
    window = (pl.col("t_ns") - tables.origin_ns).floordiv(WINDOW_NS)
    port = facts.experiment.traffic.port
    channel = (pl.col("proto") == TCP) & ((pl.col("sport") == port) | (pl.col("dport") == port))
    packets = tables.packets(tables.arrival).filter(channel)
    # Once all payload and the FIN have come, the channel begins its next flow. What follows on the old connection only
    # closes it, or repeats what came: the server had not heard of that yet.
    bound = pl.col("to_island") == 1
    last = pl.max_horizontal(
        window.filter(bound & (pl.col("new_payload_bytes") > 0)).max(),
        window.filter(bound & (pl.col("tcp_flags") & _FIN != 0)).min(),
    )
    spans = packets.group_by("flow").agg(first=window.min(), last=pl.coalesce(last, window.max()))
    opened = spans.group_by(window="first").agg(change=pl.len().cast(pl.Int64))
    closed = spans.group_by(window="last").agg(change=-pl.len().cast(pl.Int64))
    changes = pl.concat([opened, closed]).group_by("window").agg(pl.col("change").sum())
    receiving = (
        packets.filter((pl.col("to_island") == 1) & (pl.col("payload_bytes") > 0))
        .group_by(window=window)
        .agg(receiving=pl.col("flow").n_unique().cast(pl.Int64))
    )
    # Without any flow (a run without load) the range is empty, not null.
    first, end = pl.col("window").min().fill_null(0), pl.col("window").max().fill_null(-1) + 1
    every = changes.select(window=pl.int_range(first, end))
    return (
        every.join(changes, on="window", how="left")
        .join(receiving, on="window", how="left")
        .sort("window")
        .select("window", open=pl.col("change").fill_null(0).cum_sum(), receiving=pl.col("receiving").fill_null(0))
    )


def _chains(tables: Tables, facts: Facts) -> pl.LazyFrame:
    packets = island_bound(tables, facts, tables.arrival or "")
    window = (pl.col("t_ns") - tables.origin_ns).floordiv(WINDOW_NS)
    return (
        packets.group_by("chain", window=window)
        .agg(
            packets=pl.len().cast(pl.Int64),
            ip_bytes=total("ip_bytes"),
            goodput_bytes=pl.col("new_payload_bytes").filter(pl.col("proto") == TCP).cast(pl.Int64).sum(),
        )
        .sort("chain", "window")
    )


def _channel_flows(run: RunDir, facts: Facts) -> pl.LazyFrame:
    hosts, port = facts.network.hosts, facts.experiment.traffic.port
    servers = {f"{host.address}:{port}": int(host.address) for host in hosts}
    clients = {host.name: int(host.address) for host in hosts}
    chain = by_chain(
        facts.standing, lambda chain: chain.name, "world_end", "island_end", pl.lit(TCP, pl.UInt8), "start_ns"
    )
    return (
        channel_flow_table(run.logs)
        .with_columns(
            world_end=pl.col("server").replace_strict(servers, default=None, return_dtype=pl.UInt32),
            island_end=pl.col("client").replace_strict(clients, default=None, return_dtype=pl.UInt32),
        )
        .with_columns(chain=chain)
        .drop("world_end", "island_end")
    )


def _volume(tables: Tables, facts: Facts) -> pl.LazyFrame:
    if tables.arrival is None:
        times = ("first_ns", "last_ns", "payload_first_ns", "payload_last_ns")
        return _empty("packets", "ip_bytes", "goodput_bytes", *times).with_columns(host=pl.lit(""), role=pl.lit(""))
    names = _host_names(facts)
    packets = tables.packets(tables.arrival).filter(pl.col("to_island") == 1)
    payload = (pl.col("proto") == TCP) & (pl.col("new_payload_bytes") > 0)
    sides = pl.concat([packets.with_columns(address="src"), packets.with_columns(address="dst")])
    seen = sides.group_by("address").agg(
        packets=pl.len().cast(pl.Int64),
        ip_bytes=total("ip_bytes"),
        goodput_bytes=pl.col("new_payload_bytes").filter(pl.col("proto") == TCP).cast(pl.Int64).sum(),
        first_ns=pl.col("t_ns").min(),
        last_ns=pl.col("t_ns").max(),
        payload_first_ns=pl.col("t_ns").filter(payload).min(),
        payload_last_ns=pl.col("t_ns").filter(payload).max(),
    )
    hosts = pl.LazyFrame(
        {
            "host": [host.name for host in facts.network.hosts],
            "role": [host.role.value for host in facts.network.hosts],
            "address": list(names),
        },
        schema={"host": pl.String, "role": pl.String, "address": pl.UInt32},
    )
    return (
        hosts.join(seen, on="address", how="left", maintain_order="left")
        .drop("address")
        .with_columns(pl.col("packets", "ip_bytes", "goodput_bytes").fill_null(0))
    )


def _host_names(facts: Facts) -> dict[int, str]:
    return {int(host.address): host.name for host in facts.network.hosts}


def traffic_hosts(facts: Facts) -> tuple[tuple[Host, ...], tuple[Host, ...]]:
    """The world servers and the island clients that carry the load."""
    return facts.network.with_role(HostRole.WORLD_SERVER), facts.network.with_role(HostRole.ISLAND_CLIENT)


# Writing


def _empty(*columns: str) -> pl.LazyFrame:
    return pl.LazyFrame(schema=dict.fromkeys(columns, pl.Int64))


def _write(tables: Tables, name: str, frame: pl.LazyFrame) -> None:
    _sink(frame, tables.folder / f"{name}.parquet")


def _sink(frame: pl.LazyFrame, path: Path) -> None:
    with replacing(path) as temporary:
        try:
            frame.sink_parquet(temporary, compression="zstd", compression_level=3)
        except pl.exceptions.PolarsError as error:
            raise told_error(path, str(error), f"{path} could not be made: {error}") from error
