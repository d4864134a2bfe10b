# SPDX-License-Identifier: Apache-2.0
"""The entries of in-band control: exactly these, in the hardware of each kind of switch, and traced past the chain."""

from dataclasses import replace
from pathlib import Path

import pytest

from atoll_apps.control import PRIORITY, control_entries
from atoll_controller.planner.planner import make_plan
from atoll_controller.tracing.packet_trace import HopKind, trace, trace_text
from atoll_core.description.loader import load_experiment
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import Experiment, Protocol
from atoll_core.lab.network import CONTROL, HostRole, Network
from atoll_core.plan.flow_entry import FlowEntry
from atoll_switches.capability_profile import refuse_unsupported
from atoll_switches.configuration import ports_of
from atoll_switches.entry_placement import TableKind, place_entries

NET = "192.168.10.0/24"


@pytest.fixture(scope="module")
def lab(project: Path) -> tuple[Network, Experiment]:
    """A lab with a host at a port of its own, and two behind a learning switch on another switch."""
    return load_experiment(project / "tests/data/rack-in-band.yaml")


def of_driver(network: Network, driver: str) -> Network:
    return replace(network, switches=tuple(replace(switch, driver=driver) for switch in network.switches))


def without_arp(network: Network) -> Network:
    assert network.control
    return replace(network, control=replace(network.control, arp=False))


def words(entries: tuple[FlowEntry, ...]) -> list[str]:
    assert {entry.priority for entry in entries} <= {PRIORITY}
    return sorted(str(entry).replace(f": priority {PRIORITY}", "").replace(", untagged", "") for entry in entries)


def test_the_entries_lead_along_the_trunk_and_part_at_the_hosts(lab: tuple[Network, Experiment]) -> None:
    network, _ = lab
    packets = [
        f"sw-i, port 1, {NET} -> {NET}: port 24",
        f"sw-i, port 24, {NET} -> 192.168.10.31/32: port 1",
        f"sw-i, port 24, {NET} -> 192.168.10.32/32: port 1",
        f"sw-w, port 20, {NET} -> 192.168.10.12/32: port 3",
        f"sw-w, port 20, {NET} -> 192.168.10.31/32: port 24",
        f"sw-w, port 20, {NET} -> 192.168.10.32/32: port 24",
        f"sw-w, port 24, {NET} -> {NET}: port 20",
        f"sw-w, port 3, {NET} -> {NET}: port 20",
    ]
    arp = [
        "sw-i, port 1, any -> any, ARP: port 24",
        "sw-i, port 24, any -> any, ARP: port 1",
        "sw-w, port 20, any -> any, ARP: port 3, port 24",
        "sw-w, port 24, any -> any, ARP: port 20",
        "sw-w, port 3, any -> any, ARP: port 20",
    ]
    assert words(control_entries(network)) == sorted([*packets, *arp])
    assert words(control_entries(without_arp(network))) == packets
    assert control_entries(replace(network, control=None)) == ()


def test_every_plan_has_them_and_no_experiment_changes_them(lab: tuple[Network, Experiment]) -> None:
    network, experiment = lab
    shorter = replace(experiment, chain=replace(experiment.chain, hops=experiment.chain.hops[1:]))
    for each in (experiment, shorter):
        flows = make_plan(network, each).flows
        assert set(control_entries(network)) <= set(flows)
        assert len(control_entries(network)) == sum(entry.priority == PRIORITY for entry in flows)


@pytest.mark.parametrize("driver", ["ovs", "procurve-v2", "procurve-v3"])
def test_hardware_takes_all_of_them(lab: tuple[Network, Experiment], driver: str) -> None:
    network, experiment = of_driver(lab[0], driver), lab[1]
    entries = control_entries(network)
    refuse_unsupported(network, entries)
    placed = place_entries(network, experiment, entries)
    assert {each.table_kind for each in placed} == {TableKind.DATAPATH if driver == "ovs" else TableKind.HARDWARE}
    assert {each.expects_packets_s for each in placed} == {1}, "control is quiet while an experiment runs"


def test_v1_modules_take_them_without_arp(lab: tuple[Network, Experiment]) -> None:
    network = of_driver(lab[0], "procurve-v1")
    with pytest.raises(PlanError, match=r"cannot match frames that are not IPv4 in hardware.*write 'arp: false'") as no:
        refuse_unsupported(network, control_entries(network))
    assert "several ports" not in str(no.value), "no tap has to do with it"
    refuse_unsupported(network, control_entries(without_arp(network)))


@pytest.mark.parametrize("host", ["wh", "i1", "i2"])
def test_traces_of_control_pass_switches_alone(lab: tuple[Network, Experiment], host: str) -> None:
    network, experiment = lab
    flows = make_plan(network, experiment).flows
    for src, dst in ((CONTROL, host), (host, CONTROL)):
        found = trace(network, experiment, flows, src, dst, Protocol.TCP)
        assert found.arrives
        assert {hop.kind for hop in found.hops} == {HopKind.SWITCH, HopKind.HOST}
        assert trace_text(found).startswith(f"tcp from {src} to {dst} is in-band control, past all chains: it arrives")
    with pytest.raises(PlanError, match="w1 has no in-band control"):
        trace(network, experiment, flows, CONTROL, "w1", Protocol.TCP)


def test_a_host_may_be_named_control_in_a_lab_without_it(lab: tuple[Network, Experiment]) -> None:
    hosts = (replace(host, name=CONTROL if host.name == "w1" else host.name, control=None) for host in lab[0].hosts)
    network = replace(lab[0], control=None, hosts=tuple(hosts))
    flows = make_plan(network, lab[1]).flows
    for src, dst in ((CONTROL, "i1"), ("i1", CONTROL)):
        found = trace(network, lab[1], flows, src, dst, Protocol.TCP)
        assert found.arrives
        assert found.chain
        assert {hop.note for hop in found.hops if hop.name == CONTROL} <= {HostRole.WORLD_SERVER.value}


def test_hosts_keep_arp(lab: tuple[Network, Experiment]) -> None:
    plan = make_plan(*lab)
    in_band = {each.host for each in plan.hosts if any(interface.in_band for interface in each.interfaces)}
    assert in_band == {"wh", "i1", "i2"}


def test_the_port_is_configured_and_drawn(lab: tuple[Network, Experiment]) -> None:
    network, experiment = lab
    leads_to = {port.number: port.leads_to for port in ports_of(network, "sw-w", make_plan(network, experiment).flows)}
    assert leads_to[20] == "in-band control: the machine that runs atoll"
