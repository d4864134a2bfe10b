# SPDX-License-Identifier: Apache-2.0
"""A Network as a Mininet topology: the same names, numbers and addresses, and names that Linux accepts."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from atoll_core.description.loader import load_lab
from atoll_core.errors import LabError
from atoll_core.lab.network import Network, Switch
from atoll_core.lab.port_ref import PortRef
from atoll_emulation.mininet_lab.mininet_path import find_mininet

pytestmark = pytest.mark.skipif(find_mininet() is None, reason="Mininet is not installed; run: make setup")

LABS = sorted((Path(__file__).parents[3] / "emulation" / "labs").glob("*.yaml"))


@pytest.fixture(params=LABS, ids=lambda path: path.stem)
def network(request: pytest.FixtureRequest) -> Network:
    """Every shipped laboratory."""
    return load_lab(request.param)


@pytest.fixture
def island() -> Network:
    return load_lab(next(path for path in LABS if path.stem == "island"))


def test_hosts_and_switches_are_those_of_the_network(network: Network) -> None:
    from atoll_emulation.mininet_lab.topology import LabTopo

    topo = LabTopo(network)
    assert sorted(topo.hosts()) == sorted(network.machines)
    learning = {each.name for each in network.learning_switches}
    assert set(topo.switches()) == {switch.name for switch in network.switches} | learning
    dpids = {name: int(topo.nodeInfo(name)["dpid"], 16) for name in topo.switches()}
    assert len(set(dpids.values())) == len(dpids)
    assert {(switch.name, switch.dpid) for switch in network.switches} <= dpids.items()
    modes = {name: topo.nodeInfo(name)["failMode"] for name in topo.switches()}
    assert {name for name, mode in modes.items() if mode == "standalone"} == learning


def test_cables_end_at_the_described_ports_under_the_described_names(network: Network) -> None:
    from atoll_emulation.mininet_lab.port_names import uplink_port
    from atoll_emulation.mininet_lab.topology import LabTopo

    links = [info for *_, info in LabTopo(network).links(withInfo=True)]
    found = {
        (link["node1"], link["intfName1"], link["addr1"], PortRef(link["node2"], link["port2"]))
        for link in links
        if link["node1"] in network.machines
    }
    assert found == {
        (machine, interface.name, interface.mac, interface.cable_end)
        for machine, interfaces in network.machines.items()
        for interface in interfaces
    }
    trunks = {
        (PortRef(link["node1"], link["port1"]), PortRef(link["node2"], link["port2"]))
        for link in links
        if link["node1"] not in network.machines
    }
    uplinks = {(uplink_port(each), each.uplink) for each in network.learning_switches}
    assert trunks == {(trunk.a, trunk.b) for trunk in network.trunks} | uplinks


def test_no_two_interfaces_share_a_name_or_a_mac_address(network: Network) -> None:
    from atoll_emulation.mininet_lab.port_names import port_interface_names, port_mac, used_ports

    names = list(port_interface_names(network).values())
    assert len(set(names)) == len(names) == len(used_ports(network))
    assert max(map(len, names)) <= 15
    machines = [interface.mac for interfaces in network.machines.values() for interface in interfaces]
    ports = [port_mac(network, port) for port in used_ports(network)]
    assert len({*machines, *ports}) == len(machines) + len(ports)
    assert all(int(mac[:2], 16) & 0b11 == 0b10 for mac in ports)  # locally administered, unicast


def renamed(network: Network, name: str) -> Network:
    """The island lab with another name for switch sw-c, and only the trunks as cables."""
    trunks = tuple(replace(trunk, b=replace(trunk.b, switch=name)) for trunk in network.trunks)
    switches = tuple(replace(switch, name=name) if switch.name == "sw-c" else switch for switch in network.switches)
    return replace(network, switches=switches, trunks=trunks, boxes=(), delay_boxes=(), taps=())


def test_a_long_switch_name_gets_short_port_names(island: Network) -> None:
    from atoll_emulation.mininet_lab.port_names import port_interface_names

    names = port_interface_names(renamed(island, "teleport-core-1"))
    assert names[PortRef("teleport-core-1", 3)] == "s3-eth3"
    assert names[PortRef("sw-i", 24)] == "sw-i-eth24"


def test_a_switch_name_no_bridge_can_have_is_refused(island: Network) -> None:
    from atoll_emulation.mininet_lab.port_names import port_interface_names

    with pytest.raises(LabError, match=r"'teleport-core-switch': .* at most 15 characters"):
        port_interface_names(renamed(island, "teleport-core-switch"))


def test_a_port_name_that_is_a_switch_is_refused(island: Network) -> None:
    from atoll_emulation.mininet_lab.port_names import port_interface_names

    clash = replace(island, switches=(*island.switches, Switch("sw-i-eth24", 9, "ovs")))
    with pytest.raises(LabError, match=r"'sw-i-eth24' of port sw-i/24 is taken: rename switch 'sw-i'"):
        port_interface_names(clash)


def test_runs_need_no_mininet_but_in_the_lab() -> None:
    """Who drives a rack of real machines need not have it; what an emulated lab's ports are called is known without."""
    look = "import sys, atoll_testbed.run.live_run, atoll_testbed.platforms.hardware; print('mininet' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout == "False\n"
