# SPDX-License-Identifier: Apache-2.0
"""The laboratory as an ordinary Mininet topology.

``LabTopo`` holds names, port numbers, interface names, MAC addresses and datapath ids only, so it works with any
Mininet host, link and switch class: with this project's (``nodes.py``), with Mininet's own, or from ``mn --custom``
(emulation/README.md shows how).
"""

import itertools
from pathlib import Path

from atoll_core.errors import LabError
from atoll_core.lab.network import Network
from atoll_emulation.mininet_lab.mininet_api import Topo
from atoll_emulation.mininet_lab.port_names import port_interface_names, port_mac, uplink_port


class LabTopo(Topo):
    """Mininet topology of a Network: a host per machine, a switch per switch, a link per cable.

    Raises LabError when a switch name cannot be a bridge's name on Linux, and for physical taps.
    """

    def build(self, network: Network) -> None:
        """Called by ``Topo.__init__`` with its arguments."""
        if physical := [tap.name for tap in network.taps if tap.physical]:
            raise LabError(
                f"{network.file}: tap {physical[0]!r} is a splitter in a cable, and an emulated lab has no cables to "
                "split; give it a switch port: 'port' instead of 'cable'"
            )
        addresses = {host.name: f"{host.address}/8" for host in network.hosts}
        port_names = port_interface_names(network)
        for machine in network.machines:
            self.addHost(machine, ip=addresses.get(machine))
        for switch in network.switches:
            self.addSwitch(switch.name, dpid=f"{switch.dpid:016x}", protocols="OpenFlow13", failMode="secure")
        dpids = {switch.dpid for switch in network.switches}
        unused = (dpid for dpid in itertools.count(1) if dpid not in dpids)
        for learning, dpid in zip(network.learning_switches, unused, strict=False):
            self.addSwitch(learning.name, dpid=f"{dpid:016x}", failMode="standalone")
        for machine, interfaces in network.machines.items():
            for index, interface in enumerate(interfaces):
                port = interface.cable_end
                self.addLink(
                    machine,
                    port.switch,
                    port1=index,
                    port2=port.port,
                    intfName1=interface.name,
                    intfName2=port_names[port],
                    addr1=interface.mac,
                    addr2=port_mac(network, port),
                    params1={"mtu": interface.mtu},
                )
        uplinks = [(uplink_port(learning), learning.uplink) for learning in network.learning_switches]
        for a, b in (*((trunk.a, trunk.b) for trunk in network.trunks), *uplinks):
            self.addLink(
                a.switch,
                b.switch,
                port1=a.port,
                port2=b.port,
                intfName1=port_names[a],
                intfName2=port_names[b],
                addr1=port_mac(network, a),
                addr2=port_mac(network, b),
            )


def _lab(path: str = "emulation/labs/island.yaml") -> LabTopo:
    from atoll_core.description.loader import load_lab

    return LabTopo(load_lab(Path(path)))


topos = {"lab": _lab}  # what `mn --custom` looks for
