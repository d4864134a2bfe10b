# SPDX-License-Identifier: Apache-2.0
"""A switch's own configuration, ready to paste: the settings that it needs before a controller can use it.

Templates are ``switch-configs/templates/<name>.j2``; profiles name theirs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from atoll_core.errors import PlanError
from atoll_core.lab.network import MTU, Network
from atoll_core.plan.flow_entry import FlowEntry, Output, PopVlan, PushVlan
from atoll_core.plural import counted
from atoll_switches.capability_profile import profile

OPENFLOW_PORT = 6653  # assigned by IANA
_MANAGEMENT_VLAN = 1  # the default VLAN of a ProCurve's ports; never a lab's own
_USABLE_VLANS = range(2, 4095)


@dataclass(frozen=True, slots=True)
class ConfiguredPort:
    """A port of the lab: the far end of its cable, the VLAN ids of its tagged frames, ascending, and its MTU."""

    number: int
    leads_to: str
    vlans: tuple[int, ...]
    mtu: int = MTU


def configuration(
    network: Network,
    switch: str,
    entries: Iterable[FlowEntry],
    controller: tuple[IPv4Address, int],
    *,
    out_of_band: bool = False,
) -> str:
    """The configuration of one switch for these entries. ``controller``: the address and port at which it listens.

    ``out_of_band``: the switch reaches the controller by its out-of-band management port.
    Raises PlanError for a switch that the lab does not have.
    """
    if switch not in {each.name for each in network.switches}:
        names = ", ".join(each.name for each in network.switches)
        raise PlanError(f"{network.file} has no switch {switch!r}; it has {names}")
    import jinja2

    described_switch = network.switch(switch)
    kind = profile(described_switch.driver)
    ports = ports_of(network, switch, entries)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=False,  # noqa: S701 - the output is a switch's configuration, not a page
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(f"{kind.config}.j2").render(
        switch=described_switch,
        profile=kind,
        ports=ports,
        usual_mtu=MTU,
        jumbo=any(port.mtu > MTU for port in ports),
        every_port=port_ranges(port.number for port in ports),
        tagged={
            vlan: port_ranges(port.number for port in ports if vlan in port.vlans)
            for vlan in sorted({vlan for port in ports for vlan in port.vlans})
        },
        experiment_vlan=_free_vlan(ports, network),
        controller_address=controller[0],
        controller_port=controller[1],
        out_of_band=out_of_band,
        lab=network.name,
        management_vlan=_MANAGEMENT_VLAN,
    )


def ports_of(network: Network, switch: str, entries: Iterable[FlowEntry]) -> tuple[ConfiguredPort, ...]:
    """The ports of the lab on a switch, by number, with the tags that the entries take in or send out there.

    A trunk takes the longest packets of the lab.
    """
    leads_to = _cables(network, switch)
    vlans: dict[int, set[int]] = {number: set() for number in leads_to}
    for entry in entries:
        if entry.switch != switch:
            continue
        tag = entry.match.vlan if isinstance(entry.match.vlan, int) else None
        if tag is not None:
            vlans[entry.match.in_port].add(tag)
        for action in entry.actions:
            match action:
                case PushVlan(vlan):
                    tag = vlan
                case PopVlan():
                    tag = None
                case Output(port):
                    vlans[port] |= set() if tag is None else {tag}
    cables = [interface for interfaces in network.machines.values() for interface in interfaces]
    mtu_by_port: dict[int, int] = {}
    for cable in cables:
        if cable.attached.switch == switch:  # several of them behind a learning switch
            mtu_by_port[cable.attached.port] = max(cable.mtu, mtu_by_port.get(cable.attached.port, 0))
    largest_mtu = max([MTU, *(cable.mtu for cable in cables)])
    return tuple(
        ConfiguredPort(number, leads_to[number], tuple(sorted(vlans[number])), mtu_by_port.get(number, largest_mtu))
        for number in sorted(leads_to)
    )


def _cables(network: Network, switch: str) -> dict[int, str]:
    far_ends = {
        interface.attached.port: machine
        for machine, interfaces in network.machines.items()
        for interface in interfaces
        if interface.attached.switch == switch
    }
    for learning in network.learning_switches:
        if learning.uplink.switch == switch:
            hosts = counted(len(network.hosts_behind(learning.name)), "host")
            far_ends[learning.uplink.port] = f"learning switch {learning.name}, {hosts}"
    if network.control is not None and network.control.port.switch == switch:
        far_ends[network.control.port.port] = "in-band control: the machine that runs atoll"
    for trunk in network.trunks:
        for here, there in ((trunk.a, trunk.b), (trunk.b, trunk.a)):
            if here.switch == switch:
                far_ends[here.port] = f"trunk to {there}"
    return far_ends


def _free_vlan(ports: tuple[ConfiguredPort, ...], network: Network) -> int:
    """The VLAN of untagged frames within the switch: one whose id no tagged frame has."""
    used = {vlan for port in ports for vlan in port.vlans}
    used |= {each.vlan for box in network.delay_boxes for each in box.classes}
    free = next((vlan for vlan in _USABLE_VLANS if vlan not in used), None)
    if free is None:
        raise PlanError(f"{network.file} leaves no VLAN id for untagged frames; use fewer latency classes")
    return free


def port_ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers as switches write them: 1-3,10."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
