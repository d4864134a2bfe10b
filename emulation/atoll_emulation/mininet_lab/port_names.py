# SPDX-License-Identifier: Apache-2.0
"""The Linux interfaces behind the ports of emulated switches: their names and addresses, pure.

Without Mininet's classes, as machines without Mininet use these names, too.
"""

from atoll_core.errors import LabError
from atoll_core.lab.network import LearningSwitch, Network
from atoll_core.lab.port_ref import PortRef

_UPLINK = 65279  # 0xfeff, the highest number of a port in Open vSwitch
NAME_MAX = 15  # IFNAMSIZ - 1: Linux' longest interface name, and so Open vSwitch's longest bridge name


def used_ports(network: Network) -> list[PortRef]:
    """Every switch port a cable ends at, sorted."""
    ports = [interface.cable_end for interfaces in network.machines.values() for interface in interfaces]
    uplinks = [end for switch in network.learning_switches for end in (switch.uplink, uplink_port(switch))]
    return sorted([*ports, *uplinks, *(end for trunk in network.trunks for end in (trunk.a, trunk.b))])


def uplink_port(learning: LearningSwitch) -> PortRef:
    """The port of an emulated learning switch at which its uplink ends: no host's, as lab.yaml does not name it."""
    return PortRef(learning.name, _UPLINK)


def bridges(network: Network) -> list[str]:
    """The bridges of an emulated lab: its switches, then its learning switches."""
    return [switch.name for switch in (*network.switches, *network.learning_switches)]


def port_interface_names(network: Network) -> dict[PortRef, str]:
    """The Linux interface behind every used switch port: ``sw-c-eth15``, or ``s3-eth15`` where that is too long.

    Raises LabError for a switch name that is too long for a bridge, and for names that would collide.
    """
    too_long = [name for name in bridges(network) if len(name) > NAME_MAX]
    if too_long:
        msg = f"{network.file}: switch {too_long[0]!r}: an Open vSwitch bridge's name has at most {NAME_MAX} characters"
        raise LabError(msg)
    position = {name: number for number, name in enumerate(bridges(network), start=1)}
    names: dict[PortRef, str] = {}
    used_names = set(position)
    for port in used_ports(network):
        name = f"{port.switch}-eth{port.port}"
        if len(name) > NAME_MAX:
            name = f"s{position[port.switch]}-eth{port.port}"
        if name in used_names:
            msg = f"{network.file}: interface name {name!r} of port {port} is taken: rename switch {port.switch!r}"
            raise LabError(msg)
        used_names.add(name)
        names[port] = name
    return names


def port_mac(network: Network, port: PortRef) -> str:
    """The MAC address of a switch's own end of a cable.

    No packet ever carries it; it is fixed so that two labs from one description are equal. Locally administered
    (06:...), distinct from machines' addresses (02:...).
    """
    position = bridges(network).index(port.switch)
    octets = (0x06, 0xA7, *position.to_bytes(2), *port.port.to_bytes(2))
    return ":".join(f"{octet:02x}" for octet in octets)
