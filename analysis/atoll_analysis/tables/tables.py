# SPDX-License-Identifier: Apache-2.0
"""Captures and logs to Parquet tables: one file a table in tables/, rebuilt as a whole.

The columns of each are in table_schemas.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from atoll_analysis.run_directory.atomic_files import replacing, write_errors
from atoll_analysis.run_directory.directory import COUNTERS_FILE, RunDir
from atoll_analysis.run_directory.scratch import scratch_folder
from atoll_analysis.tables.change_timeline import NEVER_NS
from atoll_analysis.tables.directions import (
    TO_ISLAND,
    Direction,
    direction_of,
    table_name,
    world_port,
)
from atoll_analysis.tables.job_logs import box_table, channel_flow_table, ping_table, udp_table
from atoll_analysis.tables.lost_packets import longest_transit_ns, lost_packets, sent_in_measurement
from atoll_analysis.tables.packet_records import TCP, UDP, Decoded, bound, decode, scan_records
from atoll_analysis.tables.probe_filter import is_change_probe, is_probe
from atoll_analysis.tables.queue_intervals import full_size_bytes, queue_intervals, standing_window_s
from atoll_analysis.tables.run_data import RunData, Window
from atoll_analysis.tables.slices import Parts, merged, sink, slices
from atoll_analysis.tables.table_schemas import TABLES, schema_of
from atoll_core.experiment.experiment import Chain, Experiment
from atoll_core.lab.network import Host, HostRole

MERGED_ARRIVALS = "arrived"
"""Name used in place of a capture when no single capture at the island sees the traffic of all chains."""

_SCRATCH = ".records-"
_FIN, _SYN, _RST = 0x01, 0x02, 0x04
_SLICE_FLOWS, _SLICE_WINDOWS, _SLICE_PACKETS = 1 << 14, 1 << 13, 1 << 17  # of a slice

WINDOW_NS = 100_000_000
"""Length of the windows in which rates are given: 100 ms, as in the literature the lab compares with."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one run and what was said of its captures while they were decoded."""

    folder: Path
    origin_ns: int  # where window 0 begins
    captures: Mapping[str, Decoded]
    arrival: str | None  # the packets that count as "have reached the island": a capture's, MERGED_ARRIVALS, or None
    arrival_to_world: str | None = None  # likewise the world; None, too, of runs without uploads

    def arrival_of(self, direction: Direction) -> str | None:
        """The packets that count as "have reached the end" in a direction."""
        return self.arrival if direction is TO_ISLAND else self.arrival_to_world

    def scan(self, name: str, direction: Direction = TO_ISLAND) -> pl.LazyFrame:
        """One table, lazily."""
        return pl.scan_parquet(self.folder / f"{table_name(name, direction)}.parquet", glob=False)

    def packets(self, capture: str) -> pl.LazyFrame:
        """The packets of one capture, lazily."""
        return self.scan(f"packets-{capture}")


def build_tables(run: RunDir, data: RunData, binary: Path) -> Tables:
    """Build every table of a run. Captures that are missing are left out; what is there of a cut one is used.

    Raises RunError: a capture that is none, a full disk (tables of before stay as they were).
    """
    with write_errors(run.tables):
        run.tables.mkdir(exist_ok=True)
    decoded = _decode_all(run, data, binary)
    origin = data.window.start_ns if data.window else _first_packet_ns(run, decoded)
    arrivals = [_arrival(run, data, decoded, direction) for direction in data.directions]
    tables = Tables(run.tables, origin, decoded, *arrivals)
    with scratch_folder(run.tables, _SCRATCH) as scratch:
        _write(tables, "pings", ping_table(run.logs, scratch))
        _write(tables, "boxes", box_table(run.path / COUNTERS_FILE, scratch))
        if data.experiment.udp is not None:
            _write(tables, "udp", udp_table(run.logs, scratch))
        _write(tables, "throughput", _throughput(tables, scratch))
        for direction in data.directions:
            _write(tables, table_name("flows", direction), _flows(tables, data, scratch, direction))
        _write(tables, "concurrent", _concurrent(tables, data, _channel_flows(run, data), scratch))
        for direction in data.directions:
            _write(tables, table_name("losses", direction), _losses(tables, data, scratch, direction))
            if tables.arrival_of(direction) is not None and data.topology.has_branches:
                _write(tables, table_name("chains", direction), _chains(tables, data, scratch, direction))
    for direction in data.directions:
        _write(tables, table_name("queue", direction), _queue(tables, data, direction))
    _write(tables, "channel_flows", _channel_flows(run, data))
    for direction in data.directions:
        _write(tables, table_name("volume", direction), _volume(tables, data, direction))
    return tables


def _decode_all(run: RunDir, data: RunData, binary: Path) -> dict[str, Decoded]:
    captures = {point.name: run.capture(point.name) for point in data.plan.captures}
    readable = {name: path for name, path in captures.items() if path is not None and path.stat().st_size > 0}
    control = data.network.control
    control_network = control and control.network
    with scratch_folder(run.tables, _SCRATCH) as scratch:

        def to_table(name: str) -> Decoded:
            records = scratch / f"{name}.bin"
            decoded = decode(readable[name], records, data.network.island, binary, control_network=control_network)
            _replace(_measured(scan_records(records), name, data), run.tables / f"packets-{name}.parquet")
            return decoded

        with ThreadPoolExecutor(max_workers=2) as pool:
            return dict(zip(readable, pool.map(to_table, readable), strict=True))


def _measured(packets: pl.LazyFrame, capture: str, data: RunData) -> pl.LazyFrame:
    """Of a run that was imported, the packets of its measurement: its captures may be longer."""
    spans = data.manifest.get("measured")
    if spans is None:
        return packets
    to_island, to_world = pl.col("to_island") == 1, spans.get(f"{capture}_to_world", spans["to_world"])
    is_measured = pl.when(to_island).then(_within(spans[capture])).otherwise(_within(to_world))
    return packets.filter(is_measured)


def _within(span: Sequence[int]) -> pl.Expr:
    first_ns, last_ns = span
    return pl.col("t_ns").is_between(first_ns, last_ns)


def _arrival(run: RunDir, data: RunData, decoded: Mapping[str, Decoded], direction: Direction) -> str | None:
    """The capture of all chains; where they have several, these make a table of their own."""

    def of_chain(chain: Chain) -> str | None:
        return data.topology.arrival_capture(chain, decoded, direction)

    captures = dict.fromkeys(map(of_chain, data.topology.chains))
    if len(captures) == 1:
        return next(iter(captures))
    arrival_of_chain = _carrier(data, lambda chain: of_chain(chain) or "")
    frames = [
        _with_ends(_packets(run, name)).filter(arrival_of_chain == name).drop("world_end", "island_end")
        for name in captures
        if name is not None
    ]
    name = table_name(MERGED_ARRIVALS, direction)
    with scratch_folder(run.tables, _SCRATCH) as scratch:
        _replace(merged(frames, scratch, _SLICE_PACKETS), run.tables / f"packets-{name}.parquet")
    return name


def _with_ends(packets: pl.LazyFrame) -> pl.LazyFrame:
    """Packets with the addresses of their ends, whatever their direction."""
    to_island = pl.col("to_island") == 1
    return packets.with_columns(
        world_end=pl.when(to_island).then("src").otherwise("dst"),
        island_end=pl.when(to_island).then("dst").otherwise("src"),
    )


def _carrier(data: RunData, label: Callable[[Chain], str]) -> pl.Expr:
    """``label`` of the chain that carried a packet of :func:`_with_ends`."""
    return _by_chain(data, label, pl.col("proto"), "t_ns")


def _by_chain(data: RunData, label: Callable[[Chain], str], proto: pl.Expr, t_ns: str) -> pl.Expr:
    """``label`` of the chain that carries a row, by its columns world_end and island_end, protocol and instant.

    A packet in flight when a version became active counts for the new version, though the old one carried it: at the
    arrival capture these are the packets of one round trip.
    """

    def is_carried_by(branch: Chain) -> pl.Expr:
        carries = branch.carries
        matches: pl.Expr = pl.lit(value=True)
        for end, prefix in (("world_end", carries.world), ("island_end", carries.island)):
            if prefix is not None:
                matches &= pl.col(end).is_between(int(prefix.network_address), int(prefix.broadcast_address))
        return matches if carries.protocol is None else matches & (proto == carries.protocol.number)

    def in_version(experiment: Experiment) -> pl.Expr:
        *branches, main_chain = experiment.chains
        name: pl.Expr = pl.lit(label(main_chain))
        for branch in reversed(branches):
            name = pl.when(is_carried_by(branch)).then(pl.lit(label(branch))).otherwise(name)
        return name

    (_, first), *later = data.topology.periods
    name = in_version(first)
    for since_ns, experiment in later:
        name = pl.when(pl.col(t_ns) < since_ns).then(name).otherwise(in_version(experiment))
    return name


def with_chains(tables: Tables, data: RunData, capture: str, direction: Direction = TO_ISLAND) -> pl.LazyFrame:
    """The packets of a capture in a direction, with the name of the chain that carried each in ``chain``."""
    packets = _with_ends(tables.packets(capture)).filter(bound(direction))
    return packets.with_columns(chain=_carrier(data, lambda chain: chain.name))


def in_window(tables: Tables, box: str, window: Window, direction: Direction = TO_ISLAND) -> pl.LazyFrame:
    """The counters of a link box in a direction within the measurement."""
    return tables.scan("boxes").filter(
        (pl.col("box") == box)
        & (pl.col("part") == direction)
        & pl.col("t_ns").is_between(window.start_ns, window.end_ns)
    )


def _first_packet_ns(run: RunDir, decoded: Mapping[str, Decoded]) -> int:
    starts = [_packets(run, name).select(pl.col("t_ns").min()).collect(engine="streaming").item() for name in decoded]
    return min((first for first in starts if first is not None), default=0)


def _packets(run: RunDir, capture: str) -> pl.LazyFrame:
    return pl.scan_parquet(run.tables / f"packets-{capture}.parquet", glob=False)


# Tables made of packets


def total(column: str, where: pl.Expr | None = None) -> pl.Expr:
    """Sum of a column of unsigned 32 bits without its overflow, of all rows or of some."""
    return (pl.col(column) if where is None else masked(pl.col(column), where)).cast(pl.Int64).sum()


def masked(expression: pl.Expr, where: pl.Expr) -> pl.Expr:
    """The expression in some rows, null in others, for an aggregation that leaves nulls out.

    A filter within an aggregation says the same, but Polars (2.1) takes all rows into memory for it.
    """
    return pl.when(where).then(expression)


def _captures(tables: Tables) -> list[str]:
    """Every capture that there are packets of, sorted by name."""
    arrivals = {name for name in (tables.arrival, tables.arrival_to_world) if name}
    return sorted({*tables.captures, *arrivals})


def _window(tables: Tables, instant: str = "t_ns") -> pl.Expr:
    """The window that an instant is in."""
    return (pl.col(instant) - tables.origin_ns).floordiv(WINDOW_NS)


def _throughput(tables: Tables, scratch: Path) -> pl.LazyFrame:
    tcp = pl.col("proto") == TCP
    parts = Parts(scratch, "throughput", TABLES["throughput"].empty())
    for name in _captures(tables):
        for packets, _ in slices(tables.packets(name), _window(tables), _SLICE_WINDOWS):
            sums = packets.group_by(window=_window(tables), to_island=pl.col("to_island").cast(pl.Boolean)).agg(
                packets=pl.len().cast(pl.Int64),
                ip_bytes=total("ip_bytes"),
                tcp_payload_bytes=total("payload_bytes", tcp),
                goodput_bytes=total("new_payload_bytes", tcp),
            )
            parts.append(sums.sort("window", "to_island").select(pl.lit(name).alias("capture"), pl.all()))
    return parts.table()


def _flows(tables: Tables, data: RunData, scratch: Path, direction: Direction) -> pl.LazyFrame:
    parts = Parts(scratch, table_name("flows", direction), TABLES["flows"].empty())
    names = pl.col("server", "client").replace_strict(_host_names(data), default=None, return_dtype=pl.String)
    transport = (pl.col("proto") == TCP) | ((pl.col("proto") == UDP) & ~is_probe())
    for name in data.topology.captures_of(_captures(tables), direction):
        waiting: list[pl.DataFrame] = []  # flows that some of a later slice may precede
        for packets, later_ns in slices(tables.packets(name).filter(transport), pl.col("flow"), _SLICE_FLOWS):
            rows = _flow_rows(packets, direction, one_way=name in data.topology.one_way_captures)
            rows = pl.concat([*waiting, rows]).sort("first_ns", "flow")
            ready = pl.lit(value=True) if later_ns is None else pl.col("first_ns") < later_ns
            waiting = [rows.filter(~ready)]
            parts.append(rows.lazy().filter(ready).select(pl.lit(name).alias("capture"), pl.all()).with_columns(names))
    return parts.table()


def _flow_rows(packets: pl.LazyFrame, direction: Direction, *, one_way: bool) -> pl.DataFrame:
    """Packets of TCP and UDP, a row a flow. They are read thrice, one after the other: at once takes more memory.

    ``one_way``: acknowledgements to the world were not captured. A connection then has ended when its FIN and all
    payload before it were captured.
    """
    to_island, forward, tcp = pl.col("to_island") == 1, bound(direction), pl.col("proto") == TCP
    arrived = pl.when(tcp).then("new_payload_bytes").otherwise("payload_bytes")
    fin, reset = (pl.col("tcp_flags") & flag != 0 for flag in (_FIN, _RST))
    after_fin = (pl.col("seq").cast(pl.Int64) + pl.col("payload_bytes") + 1) % 2**32
    # To compare acknowledgements within the groups would take all packets into memory.
    ends = packets.filter(forward & fin & tcp).group_by("flow").agg(end=after_fin.max()).collect(engine="streaming")
    acknowledged = (
        _acknowledged_by_payload(packets.filter(forward & tcp))
        if one_way
        else packets.filter(~forward & ~reset & tcp).select("flow", end=pl.col("ack").cast(pl.Int64))
    )
    last = acknowledged.join(ends.lazy(), on=["flow", "end"], how="semi").select("flow").unique()
    ended = last.collect(engine="streaming")
    flows = packets.group_by("flow").agg(
        protocol=pl.when(tcp.any()).then(pl.lit("tcp")).otherwise(pl.lit("udp")),
        server=pl.when(to_island).then("src").otherwise("dst").min(),
        sport=pl.when(to_island).then("sport").otherwise("dport").min().cast(pl.Int64),
        client=pl.when(to_island).then("dst").otherwise("src").min(),
        first_ns=pl.col("t_ns").min(),
        last_ns=pl.col("t_ns").max(),
        packets=forward.cast(pl.Int64).sum(),
        ip_bytes=total("ip_bytes", forward),
        tcp_payload_bytes=total("payload_bytes", forward & tcp),
        goodput_bytes=masked(arrived, forward).cast(pl.Int64).sum(),
    )
    return (
        flows.collect(engine="streaming")
        .join(ended.with_columns(ended=pl.lit(value=True)), on="flow", how="left")
        .with_columns(pl.col("ended").fill_null(value=False))
    )


def _acknowledged_by_payload(packets: pl.LazyFrame) -> pl.LazyFrame:
    """Of each flow the sequence number after its FIN, if all payload that the packets have is all that it sent."""
    syn = pl.col("tcp_flags") & _SYN != 0
    return packets.group_by("flow").agg(
        end=(masked(pl.col("seq").cast(pl.Int64), syn).min() + 2 + total("new_payload_bytes")) % 2**32
    )


def _client_spans(tables: Tables, flows: pl.LazyFrame) -> pl.LazyFrame:
    """The windows in which clients began connections, and ended those that no server answered."""
    unanswered = masked(_window(tables, "end_ns"), pl.col("connected_ns").is_null())
    return flows.select(pl.lit(0, pl.UInt32).alias("flow"), first=_window(tables, "start_ns"), last=unanswered)


def _concurrent(tables: Tables, data: RunData, flows: pl.LazyFrame, scratch: Path) -> pl.LazyFrame:
    """``flows``: the table `channel_flows`, which has the begin of connections whose capture has only answers."""
    parts = Parts(scratch, "concurrent", TABLES["concurrent"].empty())
    if tables.arrival is None:
        return parts.table()
    window, port = _window(tables), data.experiment.traffic.port
    is_channel = (pl.col("proto") == TCP) & ((pl.col("sport") == port) | (pl.col("dport") == port))
    packets = tables.packets(tables.arrival).filter(is_channel)
    # Once all payload and the FIN have come, the channel begins its next flow. What follows on the old connection only
    # closes it, or repeats what came: the server had not heard of that yet.
    to_island = pl.col("to_island") == 1
    last = pl.max_horizontal(
        masked(window, to_island & (pl.col("new_payload_bytes") > 0)).max(),
        masked(window, to_island & (pl.col("tcp_flags") & _FIN != 0)).min(),
    )
    # Without the clients' logs, a connection begins with its first answer.
    one_way = tables.arrival in data.topology.one_way_captures and not data.is_imported
    spans = Parts(scratch, "spans", pl.LazyFrame(schema={"flow": pl.UInt32, "first": pl.Int64, "last": pl.Int64}))
    first_window = pl.lit(None, pl.Int64) if one_way else window.min()
    for part, _ in slices(packets, pl.col("flow"), _SLICE_FLOWS):
        spans.append(part.group_by("flow").agg(first=first_window, last=pl.coalesce(last, window.max())))
    if one_way:
        spans.append(_client_spans(tables, flows))
    first, last = spans.table().select(pl.col("first").min(), pl.col("last").max()).collect(engine="streaming").row(0)
    still_open = 0
    for begin in range(first, last + 1, _SLICE_WINDOWS) if first is not None else ():  # without any flow there is none
        windows = range(begin, min(begin + _SLICE_WINDOWS, last + 1))
        rows = _open_in(tables, windows, spans.table(), packets, _has_payload(data))
        rows = rows.with_columns(pl.col("open").cum_sum() + still_open).collect(engine="streaming")
        parts.append(rows.lazy())
        still_open = rows["open"].item(-1)
    return parts.table()


def _has_payload(data: RunData) -> pl.Expr:
    """Whether a channel's packet has payload in the direction of the client's load."""
    payload, to_island = pl.col("payload_bytes") > 0, pl.col("to_island") == 1
    uploading = data.uploading_addresses
    if not uploading:
        return to_island & payload
    return payload & pl.when(to_island).then(~pl.col("dst").is_in(uploading)).otherwise(pl.col("src").is_in(uploading))


def _open_in(
    tables: Tables, windows: range, spans: pl.LazyFrame, packets: pl.LazyFrame, has_payload: pl.Expr
) -> pl.LazyFrame:
    """Of each of these windows: window, open (how many more connections than in the one before), receiving."""
    begin_ns, end_ns = (tables.origin_ns + window * WINDOW_NS for window in (windows.start, windows.stop))
    within = pl.col("t_ns").is_between(begin_ns, end_ns, closed="left")
    receiving = (
        packets.filter(within & has_payload).group_by(window=_window(tables)).agg(receiving=pl.col("flow").n_unique())
    )
    first, last = (
        spans.filter(pl.col(end).is_between(windows.start, windows.stop, closed="left"))
        .group_by(window=end)
        .agg(pl.len().cast(pl.Int64).alias(end))
        for end in ("first", "last")
    )
    rows = pl.LazyFrame({"window": windows}, schema={"window": pl.Int64})
    for counts in (first, last, receiving):
        rows = rows.join(counts, on="window", how="left")
    rows = rows.sort("window").with_columns(pl.exclude("window").fill_null(0).cast(pl.Int64))
    return rows.select("window", open=pl.col("first") - pl.col("last"), receiving=pl.col("receiving"))


def _chains(tables: Tables, data: RunData, scratch: Path, direction: Direction) -> pl.LazyFrame:
    arrived = with_chains(tables, data, tables.arrival_of(direction) or "", direction)
    parts = Parts(scratch, table_name("chains", direction), TABLES["chains"].empty())
    for chain in sorted({chain.name for chain in data.topology.chains}):
        for packets, _ in slices(arrived.filter(pl.col("chain") == chain), _window(tables), _SLICE_WINDOWS):
            sums = packets.group_by(window=_window(tables)).agg(
                packets=pl.len().cast(pl.Int64),
                ip_bytes=total("ip_bytes"),
                goodput_bytes=total("new_payload_bytes", pl.col("proto") == TCP),
            )
            parts.append(sums.sort("window").select(pl.lit(chain).alias("chain"), pl.all()))
    return parts.table()


def _losses(tables: Tables, data: RunData, scratch: Path, direction: Direction) -> pl.LazyFrame:
    parts = Parts(scratch, table_name("losses", direction), TABLES["losses"].empty())
    probes = is_change_probe(data) if data.changes else None
    for link, (first, last, _) in data.topology.links_between_captures(tables.captures, direction):
        sent = sent_in_measurement(tables.packets(first), data, probes, direction)
        arrived = tables.packets(last).filter(bound(direction))
        for lost in lost_packets(sent, arrived, longest_transit_ns(direction_of(link, direction))):
            rows = lost.lazy().with_columns(pl.col("ip_bytes").cast(pl.Int64), link=pl.lit(link.box))
            parts.append(rows.select(TABLES["losses"].columns.keys()))
    return parts.table()


def _queue(tables: Tables, data: RunData, direction: Direction) -> pl.LazyFrame:
    intervals = [TABLES["queue"].empty()]
    if data.window is None:
        return intervals[0]
    for link in data.topology.links:
        counters = in_window(tables, link.box, data.window, direction)
        link_over_time = data.link_over_time(link, direction)
        rows = queue_intervals(counters, link_over_time, full_size_bytes(data, link), standing_window_s(data))
        intervals.append(rows.lazy().select(pl.lit(link.box).alias("link"), pl.all()))
    return pl.concat(intervals)


def _channel_flows(run: RunDir, data: RunData) -> pl.LazyFrame:
    hosts, port = data.network.hosts, data.experiment.traffic.port
    servers = {f"{host.address}:{port}": host.name for host in hosts}
    addresses = {host.name: int(host.address) for host in hosts}
    chain = _by_chain(data, lambda chain: chain.name, pl.lit(TCP, pl.UInt8), "start_ns")
    return (
        channel_flow_table(run.logs)
        .with_columns(pl.col("server").replace_strict(servers, default=None, return_dtype=pl.String))
        .with_columns(
            pl.col(host).replace_strict(addresses, default=None, return_dtype=pl.UInt32).alias(end)
            for host, end in (("server", "world_end"), ("client", "island_end"))
        )
        .with_columns(chain=chain)
        .drop("world_end", "island_end")
    )


def _volume(tables: Tables, data: RunData, direction: Direction) -> pl.LazyFrame:
    arrival = tables.arrival_of(direction)
    if arrival is None:
        return TABLES["volume"].empty()
    arrived = tables.packets(arrival).filter(bound(direction))
    packets = arrived.filter(~_is_transfer_between_hosts_of_the_load(data, direction))
    payload = (pl.col("proto") == TCP) & (pl.col("new_payload_bytes") > 0) & ~_is_of_other_direction(data, direction)
    window = data.window or Window(0, NEVER_NS)
    measured = pl.col("t_ns").is_between(window.start_ns, window.end_ns, closed="left")
    sides = pl.concat([packets.with_columns(address="src"), packets.with_columns(address="dst")])
    volumes = sides.group_by("address").agg(
        packets=pl.len().cast(pl.Int64),
        ip_bytes=total("ip_bytes"),
        goodput_bytes=total("new_payload_bytes", payload),
        measured_goodput_bytes=total("new_payload_bytes", payload & measured),
        first_ns=pl.col("t_ns").min(),
        last_ns=pl.col("t_ns").max(),
        payload_first_ns=masked(pl.col("t_ns"), payload).min(),
        payload_last_ns=masked(pl.col("t_ns"), payload).max(),
    )
    hosts = pl.LazyFrame(
        {
            "host": [host.name for host in data.network.hosts],
            "role": [host.role.value for host in data.network.hosts],
            "address": list(_host_names(data)),
        },
        schema={"host": pl.String, "role": pl.String, "address": pl.UInt32},
    )
    return (
        hosts.join(volumes, on="address", how="left", maintain_order="left")
        .drop("address")
        .with_columns(pl.col("packets", "ip_bytes", "goodput_bytes", "measured_goodput_bytes").fill_null(0))
    )


def _is_transfer_between_hosts_of_the_load(data: RunData, direction: Direction) -> pl.Expr:
    """Whether a packet of a direction belongs to a transfer from or to a world server or an island client."""
    load_hosts = {host.name for hosts in traffic_hosts(data) for host in hosts}
    ports = [each.port for each in data.experiment.all_transfers if load_hosts & {each.sender, each.receiver}]
    return (pl.col("proto") == TCP) & pl.col(world_port(direction)).is_in(ports)


def _is_of_other_direction(data: RunData, direction: Direction) -> pl.Expr:
    """Whether a packet is a request of a flow of the other direction, or the receipt of an upload."""
    is_channel = (pl.col("proto") == TCP) & (pl.col(world_port(direction)) == data.experiment.traffic.port)
    is_upload = pl.col("dst" if direction is TO_ISLAND else "src").is_in(data.uploading_addresses)
    return is_channel & (is_upload if direction is TO_ISLAND else ~is_upload)


def _host_names(data: RunData) -> dict[int, str]:
    return {int(host.address): host.name for host in data.network.hosts}


def traffic_hosts(data: RunData) -> tuple[tuple[Host, ...], tuple[Host, ...]]:
    """The world servers and the island clients that carry the load."""
    return data.network.with_role(HostRole.WORLD_SERVER), data.network.with_role(HostRole.ISLAND_CLIENT)


# Writing


def _write(tables: Tables, name: str, frame: pl.LazyFrame) -> None:
    _replace(frame, tables.folder / f"{name}.parquet")


def _replace(frame: pl.LazyFrame, path: Path) -> None:
    with replacing(path) as temporary:
        sink(frame, temporary, path, metadata=schema_of(path.stem).units)
