# SPDX-License-Identifier: Apache-2.0
"""How every machine of the experiment network is set up.

There is no ARP, except of in-band control, and no MAC rewriting: end hosts and routed boxes have on-link routes and
permanent neighbours with their peers' real MAC addresses; transparent boxes and capture hosts only listen.
"""

from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Network

from atoll_controller.planner.box_config import box_uses
from atoll_core.experiment.experiment import Experiment, TcpSettings
from atoll_core.experiment.path_mtu import PathMtus, Routes
from atoll_core.lab.box_kind import BoxUse
from atoll_core.lab.network import ChainBox, Host, Interface, Network
from atoll_core.plan.plan import (
    TCP_RECEIVE_BUFFER,
    TCP_SEND_BUFFER,
    HostSettings,
    InterfaceSettings,
    LegPair,
    RouteSettings,
)

CONGESTION_CONTROL = "net.ipv4.tcp_congestion_control"
HYSTART = "module.tcp_cubic.hystart"
"""A parameter of the kernel's module, which all its network namespaces share."""

_SPARE_TABLE = 2  # of the spare ports' routes; 0 and from 253 on are the kernel's (ip-route(8))


def host_settings(network: Network, experiment: Experiment) -> tuple[HostSettings, ...]:
    """Settings of every machine, in the order of the description.

    The MTUs of routes depend on the experiment's chains: on all of them, so that they are the same in all versions. The
    needs of a box's kind depend on its settings. An external box has no settings: no agent manages it.
    """
    mtus = PathMtus(network, experiment)
    uses = box_uses(network, experiment)
    captures: dict[str, tuple[Interface, ...]] = {}
    for tap in network.taps:
        captures[tap.host] = (*captures.get(tap.host, ()), tap.interface)
    world, island = _neighbours(network.world_hosts), _neighbours(network.island_hosts)
    return (
        *(
            _end_host(host, island if host.role.is_world else world, mtus.of_host(host), experiment.tcp)
            for host in network.hosts
        ),
        *(
            _settings_of_kind(box, _router(box, world, island, mtus), uses.get(box.name))
            if box.routed
            else _listener(box.name, (box.world, box.island))
            for box in network.boxes
            if box.is_managed
        ),
        *(_listener(box.name, box.interfaces) for box in network.delay_boxes),
        *(_listener(host, interfaces) for host, interfaces in captures.items()),
    )


def with_min_mtus(old_settings: HostSettings, new_settings: HostSettings) -> HostSettings:
    """The settings ``new_settings`` of an end host, with the smaller MTU of both to each prefix."""

    def merged(interface: InterfaceSettings, old: InterfaceSettings) -> InterfaceSettings:
        prefixes = dict.fromkeys(route.prefix for item in (interface, old) for route in item.routes)
        mtus = ((prefix, min(_mtu_to(prefix, interface), _mtu_to(prefix, old))) for prefix in prefixes)
        tcp = interface.routes[0] if interface.routes else RouteSettings("")
        routes = tuple(replace(tcp, prefix=prefix, mtu=None if mtu == interface.mtu else mtu) for prefix, mtu in mtus)
        return replace(interface, routes=routes)

    return replace(new_settings, interfaces=tuple(map(merged, new_settings.interfaces, old_settings.interfaces)))


def _mtu_to(prefix: str, interface: InterfaceSettings) -> int:
    """The MTU of the longest prefix that contains this one."""
    enclosing = [route for route in interface.routes if IPv4Network(prefix).subnet_of(IPv4Network(route.prefix))]
    longest = max(enclosing, key=lambda route: IPv4Network(route.prefix).prefixlen, default=None)
    return interface.mtu if longest is None or longest.mtu is None else longest.mtu


def tcp_sysctls(experiment: Experiment, host: str) -> tuple[tuple[str, str], ...]:
    """Settings that decide TCP results on an end host; set for a run, recorded, restored (tcp(7), ip-sysctl.rst).

    Metrics of earlier connections are not reused, so that flows do not depend on which came before.
    """
    tcp = experiment.tcp
    bound = tcp.buffer_max.bytes
    return (
        (CONGESTION_CONTROL, experiment.congestion_control(host)),
        ("net.ipv4.tcp_ecn", _flag(tcp.ecn)),
        ("net.ipv4.tcp_sack", _flag(tcp.sack)),
        ("net.ipv4.tcp_slow_start_after_idle", _flag(tcp.slow_start_after_idle)),
        *(() if tcp.hystart else ((HYSTART, "0"),)),
        ("net.ipv4.tcp_rmem", _buffer(*TCP_RECEIVE_BUFFER, bound)),
        ("net.ipv4.tcp_wmem", _buffer(*TCP_SEND_BUFFER, bound)),
        ("net.ipv4.tcp_no_metrics_save", "1"),
    )


def _flag(is_on: bool) -> str:
    return str(int(is_on))


def _buffer(minimum: int, initial: int, bound: int) -> str:
    return f"{min(minimum, bound)}\t{min(initial, bound)}\t{bound}"


_Neighbours = tuple[tuple[str, str], ...]
"""Address and MAC address of the hosts of one end: one value for all machines of the other end."""


def _neighbours(hosts: Iterable[Host]) -> _Neighbours:
    return tuple((str(host.address), host.interface.mac) for host in hosts)


def _end_host(host: Host, peers: _Neighbours, mtus: Routes, tcp: TcpSettings) -> HostSettings:
    routes = _routes(mtus, host.interface.mtu)
    interface = InterfaceSettings(
        name=host.interface.name,
        mac=host.interface.mac,
        address=f"{host.address}/32",
        routes=tuple(replace(r, initial_window=tcp.initial_window, quick_ack=tcp.quick_ack) for r in routes),
        neighbours=peers,
        mtu=host.interface.mtu,
        in_band=host.control is not None,
    )
    return HostSettings(host.name, (interface,))


def _routes(mtus: Routes, interface_mtu: int) -> tuple[RouteSettings, ...]:
    """``interface_mtu``: the MTU of the interface, which routes without an MTU have."""
    return tuple(RouteSettings(str(prefix), None if mtu == interface_mtu else mtu) for prefix, mtu in mtus)


def _router(box: ChainBox, world: _Neighbours, island: _Neighbours, mtus: PathMtus) -> HostSettings:
    """A plain router, also under a program that takes its packets. Packets leave by the port pair of their arrival."""
    interfaces = tuple(
        InterfaceSettings(
            name=interface.name,
            mac=interface.mac,
            address=None,
            routes=_routes(mtus.of_box(box, to_island=to_island), interface.mtu),
            neighbours=island if to_island else world,
            promiscuous=True,
            mtu=interface.mtu,
        )
        for legs in box.pairs
        for interface, to_island in ((legs.world, False), (legs.island, True))
    )
    pairs = tuple(
        LegPair(legs.world.name, legs.island.name, None if number == 0 else _SPARE_TABLE, accept_foreign=True)
        for number, legs in enumerate(box.pairs)
    )
    return HostSettings(box.name, interfaces, forwarding=True, legs=pairs)


def _settings_of_kind(box: ChainBox, router: HostSettings, use: BoxUse | None) -> HostSettings:
    """The settings of a routed box: those of a plain router, unless its kind has others and it is not off."""
    return box.kind.host_settings(router, use) if use and box.kind.host_settings else router


def _listener(machine: str, interfaces: tuple[Interface, ...]) -> HostSettings:
    listening = tuple(InterfaceSettings(i.name, i.mac, None, (), (), promiscuous=True, mtu=i.mtu) for i in interfaces)
    return HostSettings(machine, listening)
