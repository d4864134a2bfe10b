# SPDX-License-Identifier: Apache-2.0
"""The PEP: a box that splits TCP connections, transparently to both hosts (docs/pep.md).

Its machine hands it packets by the rules of docs/contracts.md, "pep". Bit 0 of a packet's mark delivers it to this
machine's sockets; bits 1 and 2 name the pair of legs; bit 3 is set on SYNs from the world.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from atoll_core.lab.box_kind import (
    PEER_PORT,
    BoxKind,
    BoxUse,
    Configuration,
    Forwarding,
    Peer,
    register,
)
from atoll_core.metrics.metrics_schema import MetricField
from atoll_core.plan.plan import (
    TCP_RECEIVE_BUFFER,
    TCP_SEND_BUFFER,
    FilterVerdict,
    HostSettings,
    LocalDelivery,
    PacketMark,
    PacketRule,
    Packets,
    Privilege,
)

_LOCAL = PacketMark(1, 1)
_LOCAL_TABLE = 100
_PAIR_MASK = 6
_FROM_WORLD = 8
_SYN_MASK = _LOCAL.mask | _PAIR_MASK | _FROM_WORLD
_FIRST_LISTEN_PORT = 5001
_TCP_HEADERS = 40  # IPv4 and TCP without options (RFC 9293, 3.7.1)
_TCP_OPTIONS = 12  # time stamps (RFC 7323)
_SIDES = ("world", "island")
_UTILISATION = 0.985
"""The part of its link's rate at which a multiplexed connection is paced: acknowledgements and others have the rest."""

_FASTOPEN = str(0x1 | 0x2 | 0x4 | 0x200)
"""Clients and servers, without cookies (Linux, networking/ip-sysctl.rst): first segments of strangers are dropped."""

_SOMAXCONN = 4096
"""The kernel's default (listen(2)). The program lets half as many connections be pending."""


def _mark(pair: int) -> int:
    return pair << 1


def _ports(pair: int) -> dict[str, int]:
    """The ports of the listeners for clients of either side."""
    return {side: _FIRST_LISTEN_PORT + 2 * pair + number for number, side in enumerate(_SIDES)}


def _configuration(use: BoxUse) -> Configuration:
    settings = use.settings
    return {
        "pairs": [
            {"world": world, "island": island, "mark": _mark(pair), "ports": _ports(pair)}
            for pair, (world, island) in enumerate(use.legs)
        ],
        "local_mark": _LOCAL.value,
        "world_mark": _FROM_WORLD,
        "hosts": {"world": [str(host) for host in use.world_hosts], "island": [str(host) for host in use.island_hosts]},
        "mode": settings["accept"],
        "legs": {side: _leg_configuration(use, side) for side in _SIDES},
        "learned_for_ns": settings["learned_for"],
        "handshake_ns": settings["handshake"],
        "pending_max": settings["pending_max"],
        "connections_max": settings["connections_max"],
        "silence_ns": settings["silence"],
        "flush_ns": settings["flush"],
        **({"between": _peer_configuration(use, use.peer)} if use.peer else {}),
    }


def _peer_configuration(use: BoxUse, peer: Peer) -> Configuration:
    settings = use.settings
    configuration: Configuration = {
        "side": peer.side,
        "world": f"{peer.world}:{PEER_PORT}",
        "island": f"{peer.island}:{PEER_PORT}",
        "stream_bytes": settings["buffer_max"],
    }
    if rate := settings["between_rate"]:
        payload_share = (use.mtu - _TCP_HEADERS - _TCP_OPTIONS) / use.mtu
        configuration["pacing_bit_s"] = round(_UTILISATION * rate * payload_share)
    if window := settings[f"{peer.side}_initial_window"]:
        configuration["window_segments"] = window
        configuration["padding_bytes"] = window * (use.mtu - _TCP_HEADERS) // 2
    return configuration


def _leg_configuration(use: BoxUse, side: str) -> dict[str, Any]:
    settings = use.settings
    configuration = {
        "congestion_control": settings[f"{side}_congestion_control"],
        "pacing_bit_s": settings[f"{side}_pacing"],
        "notsent_lowat_bytes": settings[f"{side}_unsent"],
        "window_clamp_bytes": settings[f"{side}_window"],
        "mss_bytes": use.mtu - _TCP_HEADERS if settings["mss_clamp"] else None,
        "fast_open": settings[f"{side}_fast_open"] or None,
    }
    return {key: value for key, value in configuration.items() if value is not None}


def _host_settings(router: HostSettings, use: BoxUse) -> HostSettings:
    settings = use.settings
    windows = {
        name: settings[f"{side}_initial_window"] for pair in use.legs for side, name in zip(_SIDES, pair, strict=True)
    }
    return replace(
        router,
        interfaces=tuple(
            replace(leg, routes=tuple(replace(route, initial_window=windows[leg.name]) for route in leg.routes))
            for leg in router.interfaces
        ),
        sysctls=(
            ("net.ipv4.tcp_rmem", _buffer_sizes(*TCP_RECEIVE_BUFFER, settings["buffer_max"])),
            ("net.ipv4.tcp_wmem", _buffer_sizes(*TCP_SEND_BUFFER, settings["buffer_max"])),
            ("net.ipv4.tcp_ecn", "1" if settings["ecn"] else "0"),
            ("net.ipv4.tcp_no_metrics_save", "1"),
            ("net.ipv4.tcp_tw_reuse", "1"),
            *((("net.core.somaxconn", f"{backlog}"),) if (backlog := 2 * settings["pending_max"]) > _SOMAXCONN else ()),
            *((("net.ipv4.tcp_slow_start_after_idle", "0"),) if settings["between"] == "multiplexed" else ()),
            *((("net.ipv4.tcp_fastopen", _FASTOPEN),) if any(settings[f"{side}_fast_open"] for side in _SIDES) else ()),
        ),
        legs=tuple(
            replace(legs, mark=PacketMark(_mark(pair), _PAIR_MASK), accept_foreign=True)
            for pair, legs in enumerate(router.legs)
        ),
        local=LocalDelivery(_LOCAL_TABLE, _LOCAL),
        packet_rules=tuple(_rules(use)),
    )


def _buffer_sizes(minimum: int, initial: int, maximum: int) -> str:
    return f"{minimum} {initial} {max(maximum, initial)}"


def _rules(use: BoxUse) -> Iterator[PacketRule]:
    """SYNs are the program's, which sends them again by ``lo``; other TCP goes to its sockets or is answered by RST."""
    world, island = ([pair[side] for pair in use.legs] for side in (0, 1))
    legs = (*world, *island)
    drop, accept = FilterVerdict.DROP, FilterVerdict.ACCEPT
    yield PacketRule(legs, Packets.SYN, verdict=drop)
    yield PacketRule(legs, Packets.TCP, transparent_socket=True, set_mark=_LOCAL, verdict=accept)
    for pair, names in enumerate(use.legs):
        for side, name in zip(_SIDES, names, strict=True):
            port = _ports(pair)[side]
            yield PacketRule((name,), Packets.TCP, set_mark=_LOCAL, tproxy_port=port, verdict=accept)
    yield PacketRule(legs, Packets.TCP, verdict=drop)
    for pair in range(len(use.legs)):
        for side, side_mark in zip(_SIDES, (_FROM_WORLD, 0), strict=True):
            mark = PacketMark(_LOCAL.value | side_mark | _mark(pair), _SYN_MASK)
            yield PacketRule(("lo",), Packets.SYN, mark=mark, tproxy_port=_ports(pair)[side], verdict=accept)
    yield PacketRule(legs, Packets.TCP_ICMP_ERRORS, set_mark=_LOCAL, verdict=accept)


def _settings() -> type[Any]:
    """Imported when a description is read: the programs of an emulated lab do without pydantic."""
    from atoll_core.description.pep_settings import PepSettings

    return PepSettings


PEP = register(
    BoxKind(
        "pep",
        Forwarding.ROUTED,
        stateful=True,
        subcommand="pep",
        privileges=(Privilege.NET_ADMIN, Privilege.NET_RAW, Privilege.NET_BIND_SERVICE),
        settings=_settings,
        ends_connections=True,
        peer_setting=("between", "multiplexed"),
        settable=("admit", "mode", "learned_for_ns", "handshake_ns", "pending_max", "silence_ns", "flush_ns"),
        configuration=_configuration,
        host_settings=_host_settings,
        counters=(
            MetricField("connections", "1", "connections established on both sides"),
            MetricField("refused_connections", "1", "refused by their server"),
            MetricField("unreachable_connections", "1", "failed because the server was unreachable"),
            MetricField("unanswered_connections", "1", "given up before they were established"),
            MetricField("unaccepted_connections", "1", "ended before they were established, for another reason"),
            MetricField("evicted_connections", "1", "of these, those that made room for another one"),
            MetricField("ignored_syns", "1", "beyond a limit"),
            MetricField("to_island_bytes", "bytes", "payload passed to sockets towards the island"),
            MetricField("to_world_bytes", "bytes", "payload passed to sockets towards the world"),
            MetricField("client_first_ends", "1", "connections that their client closed first"),
            MetricField("server_first_ends", "1", "connections that their server closed first"),
            MetricField("client_resets", "1", "connections reset by their client"),
            MetricField("server_resets", "1", "connections reset by their server"),
            MetricField("client_vanished_ends", "1", "connections whose client vanished"),
            MetricField("server_vanished_ends", "1", "connections whose server vanished"),
            MetricField("own_resets", "1", "connections reset by the PEP, for example because of a swap"),
            MetricField("multiplexed_connections", "1", "connections that were multiplexed"),
            MetricField("multiplex_losses", "1", "losses of the multiplexed connection to the other PEP"),
        ),
        levels=(
            MetricField("open_connections", "1", "connections established on both sides that have not ended"),
            MetricField("pending_connections", "1", "connections not established on both sides yet"),
            MetricField("pending_of_a_server", "1", "of these, those to the server with the most"),
            MetricField("held_bytes", "bytes", "received from one side and not acknowledged by the other"),
            MetricField("held_max_bytes", "bytes", "largest value since the previous point"),
            MetricField("buffered_bytes", "bytes", "those of held_bytes that are in the program itself"),
            MetricField("buffered_max_bytes", "bytes", "largest value since the previous point"),
            MetricField("world_rtt_median_ns", "ns", "median of smoothed RTTs towards world hosts"),
            MetricField("world_rtt_max_ns", "ns", "largest smoothed RTT towards world hosts"),
            MetricField("island_rtt_median_ns", "ns", "median of smoothed RTTs towards island hosts"),
            MetricField("island_rtt_max_ns", "ns", "largest smoothed RTT towards island hosts"),
            MetricField("multiplexes", "1", "multiplexed connections to the other PEP that are up"),
            MetricField("multiplex_rtt_ns", "ns", "smoothed RTT of the multiplexed connection"),
            MetricField("pipes", "1", "pipes of the program"),
            MetricField("memory_bytes", "bytes", "resident memory of the program"),
        ),
    )
)
"""A proxy that splits TCP connections, on one side of the satellite link or on both."""
