# SPDX-License-Identifier: Apache-2.0
"""In-band control: entries between the daemon's machine and hosts with one interface, past chains, delays and taps.

They depend on the lab alone, so that no experiment and no swap changes them. IPv4 packets match with both addresses in
the control network, ARP by the port alone: no hardware matches the addresses in ARP. Paths are those of a tree of
trunks with the daemon's machine at its root, so that frames to it and frames from it never enter by the same port.

Segments (cookie): 1 to a host, 2 to the daemon's machine, 3 ARP to hosts, 4 ARP to the daemon's machine.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network

from atoll_apps.segments.segment import COOKIE_MARK, App, cookie
from atoll_core.lab.network import CONTROL, Control, Host, Network
from atoll_core.lab.port_ref import PortRef
from atoll_core.lab.shortest_paths import Topology
from atoll_core.plan.flow_entry import ARP, FlowEntry, Match, Output, Vlan
from atoll_core.plural import first_of

PRIORITY = 0xF000
"""Above those of all chains (``chain_routes``)."""

_MAX_NAMES = 2  # hosts of an entry

TO_HOST, TO_DAEMON, ARP_TO_HOSTS, ARP_TO_DAEMON = range(1, 5)  # segments


def control_entries(network: Network) -> tuple[FlowEntry, ...]:
    """The entries of in-band control; none without it. Raises PlanError if no trunks lead to a host."""
    control = network.control
    if control is None:
        return ()
    topology = Topology.of(network)
    to_daemon: dict[tuple[PortRef, int], list[Host]] = defaultdict(list)  # by way: ingress, and egress port
    from_daemon: dict[PortRef, dict[int, list[Host]]] = defaultdict(lambda: defaultdict(list))
    for host in network.in_band_hosts:
        for ingress, egress in _path_ports(host.interface.attached, control.port, topology):
            to_daemon[ingress, egress].append(host)
            from_daemon[PortRef(ingress.switch, egress)][ingress.port].append(host)
    return (*_to_daemon(control, to_daemon), *_to_hosts(control, from_daemon))


def is_control(cookie: int) -> bool:
    """Whether an entry with this cookie is one of in-band control."""
    return cookie >> 48 == COOKIE_MARK << 8 | App.CONTROL


def is_to_hosts(cookie: int) -> bool:
    """Whether an entry of in-band control leads to hosts, and not to the daemon's machine."""
    return cookie >> 40 & 0xFF in (TO_HOST, ARP_TO_HOSTS)


def _path_ports(ingress: PortRef, end: PortRef, topology: Topology) -> Iterator[tuple[PortRef, int]]:
    """The ingress and the egress port of each switch between a host's port and the daemon's machine."""
    while ingress.switch != end.switch:
        hop = topology.next_hop(ingress.switch, end.switch)
        yield ingress, hop.out.port
        ingress = hop.arrival
    yield ingress, end.port


def _to_daemon(control: Control, paths: dict[tuple[PortRef, int], list[Host]]) -> Iterator[FlowEntry]:
    for (ingress, egress), hosts in paths.items():
        why = f"{_names(hosts)} -> {CONTROL}"
        yield _entry(ingress, _ipv4(ingress, control, control.network), [egress], TO_DAEMON, f"{why}: in-band control")
        if control.arp:
            yield _entry(ingress, _arp(ingress), [egress], ARP_TO_DAEMON, f"{why}: ARP of in-band control")


def _to_hosts(control: Control, paths: dict[PortRef, dict[int, list[Host]]]) -> Iterator[FlowEntry]:
    for ingress, out_ports in paths.items():
        for egress, hosts in out_ports.items():
            for host in hosts:
                match = _ipv4(ingress, control, IPv4Network(host.control))
                yield _entry(ingress, match, [egress], TO_HOST, f"{CONTROL} -> {host.name}: in-band control")
        if control.arp:
            names = _names([host for hosts in out_ports.values() for host in hosts])
            yield _entry(
                ingress, _arp(ingress), sorted(out_ports), ARP_TO_HOSTS, f"{CONTROL} -> {names}: ARP of in-band control"
            )


def _entry(ingress: PortRef, match: Match, out_ports: Iterable[int], segment: int, why: str) -> FlowEntry:
    return FlowEntry(ingress.switch, PRIORITY, match, tuple(map(Output, out_ports)), cookie(App.CONTROL, segment), why)


def _ipv4(ingress: PortRef, control: Control, dst: IPv4Network) -> Match:
    return Match(ingress.port, Vlan.UNTAGGED, ipv4_src=control.network, ipv4_dst=dst)


def _arp(ingress: PortRef) -> Match:
    return Match(ingress.port, Vlan.UNTAGGED, eth_type=ARP)


def _names(hosts: list[Host]) -> str:
    return first_of([host.name for host in hosts], _MAX_NAMES)
