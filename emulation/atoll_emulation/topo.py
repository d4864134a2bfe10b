# SPDX-License-Identifier: Apache-2.0
"""The laboratory as an ordinary Mininet topology.

``LabTopo`` holds names, port numbers, interface names, MAC addresses and datapath ids only, so it works with any
Mininet host, link and switch class: with this project's (``nodes.py``), with Mininet's own, or from ``mn --custom``
(emulation/README.md shows how).
"""

from pathlib import Path

from atoll.model.errors import LabError
from atoll.model.network import Network, PortRef
from atoll_emulation.mn import Topo

NAME_MAX = 15  # IFNAMSIZ - 1: Linux' longest interface name, and so Open vSwitch's longest bridge name


class LabTopo(Topo):
    """Mininet topology of a Network: a host per machine, a switch per switch, a link per cable.

    Raises LabError when a switch name cannot be a bridge's name on Linux, and for physical taps.
    """

    def build(self, network: Network) -> None:
        """Called by ``Topo.__init__`` with its arguments."""
        if physical := [tap.name for tap in network.taps if tap.physical]:
            msg = (
                f"{network.file}: tap {physical[0]!r} is a splitter in a cable, and an emulated lab has no cables to "
                "split; give it a switch port: 'port' instead of 'cable'"
            )
            raise LabError(msg)
        addresses = {host.name: f"{host.address}/8" for host in network.hosts}
        port_names = port_interface_names(network)
        for machine in network.machines:
            self.addHost(machine, ip=addresses.get(machine))
        for switch in network.switches:
            self.addSwitch(switch.name, dpid=f"{switch.dpid:016x}", protocols="OpenFlow13", failMode="secure")
        for machine, interfaces in network.machines.items():
            for index, interface in enumerate(interfaces):
                port = interface.attached
                self.addLink(
                    machine,
                    port.switch,
                    port1=index,
                    port2=port.port,
                    intfName1=interface.name,
                    intfName2=port_names[port],
                    addr1=interface.mac,
                    addr2=port_mac(network, port),
                )
        for trunk in network.trunks:
            self.addLink(
                trunk.a.switch,
                trunk.b.switch,
                port1=trunk.a.port,
                port2=trunk.b.port,
                intfName1=port_names[trunk.a],
                intfName2=port_names[trunk.b],
                addr1=port_mac(network, trunk.a),
                addr2=port_mac(network, trunk.b),
            )


def used_ports(network: Network) -> list[PortRef]:
    """Every switch port a cable ends at, sorted."""
    ports = [interface.attached for interfaces in network.machines.values() for interface in interfaces]
    return sorted([*ports, *(end for trunk in network.trunks for end in (trunk.a, trunk.b))])


def port_interface_names(network: Network) -> dict[PortRef, str]:
    """The Linux interface behind every used switch port: ``sw-c-eth15``, or ``s3-eth15`` where that is too long.

    Raises LabError for a switch name that is too long for a bridge, and for names that would collide.
    """
    too_long = [switch.name for switch in network.switches if len(switch.name) > NAME_MAX]
    if too_long:
        msg = f"{network.file}: switch {too_long[0]!r}: an Open vSwitch bridge's name has at most {NAME_MAX} characters"
        raise LabError(msg)
    position = {switch.name: number for number, switch in enumerate(network.switches, start=1)}
    names: dict[PortRef, str] = {}
    taken = {switch.name for switch in network.switches}
    for port in used_ports(network):
        name = f"{port.switch}-eth{port.port}"
        if len(name) > NAME_MAX:
            name = f"s{position[port.switch]}-eth{port.port}"
        if name in taken:
            msg = f"{network.file}: interface name {name!r} of port {port} is taken: rename switch {port.switch!r}"
            raise LabError(msg)
        taken.add(name)
        names[port] = name
    return names


def port_mac(network: Network, port: PortRef) -> str:
    """The MAC address of a switch's own end of a cable.

    No packet ever carries it; it is fixed so that two labs from one description are equal. Locally administered
    (06:...), apart from the 02:... that machines get.
    """
    position = [switch.name for switch in network.switches].index(port.switch)
    octets = (0x06, 0xA7, *position.to_bytes(2), *port.port.to_bytes(2))
    return ":".join(f"{octet:02x}" for octet in octets)


def _lab(path: str = "emulation/labs/island.yaml") -> LabTopo:
    from atoll.model.load import load_lab

    return LabTopo(load_lab(Path(path)))


topos = {"lab": _lab}  # what `mn --custom` looks for
