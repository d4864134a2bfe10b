# SPDX-License-Identifier: Apache-2.0
"""A switch's own configuration follows from lab and plan; the committed ones are those that are made."""

import subprocess
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from atoll_apps.steering import flow_entries
from atoll_core.description.loader import load_experiment
from atoll_core.errors import PlanError
from atoll_core.lab.network import Network
from atoll_switches.capability_profile import drivers, profile, refuse_unsupported
from atoll_switches.configuration import OPENFLOW_PORT, ConfiguredPort, configuration, ports_of

CONTROLLER = (IPv4Address("192.0.2.10"), OPENFLOW_PORT)


@pytest.fixture
def lab(project: Path) -> tuple[Network, tuple]:
    """The laboratory of which the configurations are committed, and its entries."""
    profile.cache_clear()
    network, experiment = load_experiment(project / "switch-configs/rendered/experiment.yaml")
    return network, flow_entries(network, experiment)


def test_the_committed_configurations_are_the_rendered_ones(project: Path, lab: tuple[Network, tuple]) -> None:
    """One switch of every driver, whose plan none of them refuses; the command stands in switch-configs/README.md."""
    network, entries = lab
    assert {switch.driver for switch in network.switches} == set(drivers())
    refuse_unsupported(network, entries)
    for switch in network.switches:
        committed = (project / "switch-configs/rendered" / f"{switch.name}.conf").read_text()
        assert configuration(network, switch.name, entries, CONTROLLER) == committed


def test_ports_know_where_they_lead_and_which_tags_cross_them(lab: tuple[Network, tuple]) -> None:
    """A tag is on a port if an entry takes it in there or sends it out there; copies without one do not count."""
    network, entries = lab
    ports = {port.number: port for port in ports_of(network, "sw-c", entries)}
    assert ports[1] == ConfiguredPort(1, "trunk to sw-w/24", (101, 102))
    assert ports[13] == ConfiguredPort(13, "coder-w", ())
    assert ports[21] == ConfiguredPort(21, "cap-w", ())


def test_untagged_frames_get_a_vlan_that_no_latency_class_has(lab: tuple[Network, tuple]) -> None:
    """Classes 101 and 102 are taken; the VLAN of the controller is never one of the lab's ports."""
    network, entries = lab
    lines = configuration(network, "sw-w", entries, CONTROLLER).splitlines()
    assert "vlan 2" in lines
    assert "   untagged 1-2,10-11,24" in lines
    assert lines[lines.index("vlan 101") + 2] == "   tagged 24"
    assert "   controller-id 1 ip 192.0.2.10 port 6653 controller-interface vlan 1" in lines


def test_the_management_port_is_used_where_it_is_asked_for(lab: tuple[Network, tuple]) -> None:
    """With --out-of-band the controller is not reached through a VLAN."""
    network, entries = lab
    made = configuration(network, "sw-c", entries, (CONTROLLER[0], 6654), out_of_band=True)
    assert "controller-id 1 ip 192.0.2.10 port 6654 controller-interface oobm" in made
    assert "controller-interface vlan" not in made


def test_what_is_not_verified_of_a_switch_stands_in_its_configuration(lab: tuple[Network, tuple]) -> None:
    """Whoever pastes it reads what no source says for certain."""
    network, entries = lab
    made = configuration(network, "sw-i", entries, CONTROLLER)
    unverified = profile("procurve-v1").unverified
    assert unverified
    assert [each for each in unverified if f";  - {each}\n" not in made] == []


def test_an_open_vswitch_script_is_a_shell_script(lab: tuple[Network, tuple]) -> None:
    """The shell understands it, and every port waits to be told its interface."""
    network, entries = lab
    made = configuration(network, "sw-d", entries, CONTROLLER)
    subprocess.run(["sh", "-n"], input=made, text=True, check=True, timeout=60)
    assert "port_1=  # delay, VLAN tags 101, 102" in made


def test_an_unknown_switch_is_told_the_known_ones(lab: tuple[Network, tuple]) -> None:
    """The message lists the lab's switches."""
    network, entries = lab
    with pytest.raises(PlanError, match=r"has no switch 'sw-x'; it has sw-w, sw-c, sw-i, sw-d"):
        configuration(network, "sw-x", entries, CONTROLLER)


def test_ports_of_raised_cables_and_trunks_take_their_packets(lab: tuple[Network, tuple]) -> None:
    """Open vSwitch by the interface's MTU, a ProCurve by jumbo in every VLAN of the lab; others stay as they are."""
    network, entries = lab
    (first, *others) = network.boxes
    mtus = {side: replace(getattr(first, side), mtu=1560) for side in ("world", "island")}
    raised = replace(network, boxes=(replace(first, **mtus), *others))
    assert {port.mtu for port in ports_of(network, first.world.attached.switch, entries)} == {1500}
    ports = {port.number: port.mtu for port in ports_of(raised, first.world.attached.switch, entries)}
    assert ports[first.world.attached.port] == 1560
    for switch in raised.switches:
        made = configuration(raised, switch.name, entries, CONTROLLER).splitlines()
        numbers = [port.number for port in ports_of(raised, switch.name, entries) if port.mtu == 1560]
        assert numbers, "a trunk at least"
        if switch.driver == "ovs":
            assert [f'ip link set "$port_{number}" mtu 1560 up' for number in numbers] == [
                line for line in made if "mtu" in line
            ]
        else:
            vlans = [line for line in made if line.startswith("vlan ")]
            assert len(vlans) == made.count("   jumbo") > 0
