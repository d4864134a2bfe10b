# SPDX-License-Identifier: Apache-2.0
"""Hosts behind one OpenFlow port: the plan tells them apart by address, and traces and hints name the right one."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from atoll_controller.planner.planner import make_plan
from atoll_controller.tracing.packet_trace import HopKind, trace, trace_frame
from atoll_controller.tracing.table_model import Delivery, Frame, SwitchTables
from atoll_core.description.loader import load_experiment
from atoll_core.errors import DescriptionError
from atoll_core.experiment.experiment import Experiment, Protocol
from atoll_core.lab.network import Network
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.plan import Plan
from atoll_switches.configuration import ports_of
from atoll_testbed.verification.probe_receiver import station

UPLINKS = {"lan-w": PortRef("sw-w", 1), "lan-i": PortRef("sw-c", 2)}


@pytest.fixture(scope="module")
def planned(project: Path) -> tuple[Network, Experiment, Plan]:
    network, experiment = load_experiment(project / "tests/data/learning-switches/experiment.yaml")
    return network, experiment, make_plan(network, experiment)


def test_frames_that_enter_by_a_shared_port_are_told_apart_by_their_source(
    planned: tuple[Network, Experiment, Plan],
) -> None:
    """And those that leave by it match their destination."""
    network, _, plan = planned
    for name, uplink in UPLINKS.items():
        hosts = {IPv4Network(host.address) for host in network.hosts_behind(name)}
        entering = {e.match.ipv4_src for e in plan.flows if PortRef(e.switch, e.match.in_port) == uplink and e.actions}
        assert entering == hosts


@pytest.mark.parametrize(
    ("src", "dst", "chain", "delay"),
    [("w1", "i1", "main", "class rtt-20"), ("w2", "i2", "plain", "class rtt-80"), ("w2", "is", "main", "class rtt-80")],
)
def test_each_host_behind_a_port_has_its_own_class_and_chain(
    planned: tuple[Network, Experiment, Plan], src: str, dst: str, chain: str, delay: str
) -> None:
    network, experiment, plan = planned
    found = trace(network, experiment, plan.flows, src, dst, Protocol.TCP)
    assert (found.chain, found.arrives) == (chain, True)
    assert [hop.note for hop in found.hops if hop.kind is HopKind.DELAY] == [delay]
    assert found.hops[-1].note.endswith(f", behind {network.host(dst).interface.behind}")
    assert trace(network, experiment, plan.flows, dst, src, Protocol.TCP).arrives


def test_a_frame_for_an_address_of_no_host_ends_at_the_learning_switch(
    planned: tuple[Network, Experiment, Plan],
) -> None:
    """Where an entry would let it pass at all; no probe waits for it there."""
    network, experiment, plan = planned
    wide = [replace(e, match=replace(e.match, ipv4_dst=network.island)) for e in plan.flows if "-> i1:" in e.why]
    frame = Frame(IPv4Address("10.10.0.1"), IPv4Address("10.20.9.9"), protocol=6)
    last = SwitchTables(network, wide, strict=False).walk(frame, PortRef("sw-c", 14))[-1]
    assert isinstance(last, Delivery)
    assert (last.name, last.port) == ("lan-i", UPLINKS["lan-i"])
    assert station(network, last.name, last.port) is None
    hops = trace_frame(network, experiment, plan.flows, "w1", frame).hops
    assert hops[-1].kind is HopKind.DROP


def test_ports_and_uplinks_of_the_configuration(planned: tuple[Network, Experiment, Plan]) -> None:
    network, _, plan = planned
    leads_to = {port.number: port.leads_to for port in ports_of(network, "sw-c", plan.flows)}
    assert leads_to[2] == "learning switch lan-i, 4 hosts"


def test_an_uplink_that_is_slower_than_the_link_is_refused(project: Path, tmp_path: Path) -> None:
    folder = project / "tests/data/learning-switches"
    lab = (folder / "lab.yaml").read_text().replace("uplink: sw-c/2, rate: 1 Gbit/s", "uplink: sw-c/2, rate: 5 Mbit/s")
    (tmp_path / "lab.yaml").write_text(lab)
    (tmp_path / "experiment.yaml").write_text((folder / "experiment.yaml").read_text())
    with pytest.raises(DescriptionError, match=r"uplink of learning switch 'lan-i' \(5 Mbit/s, .*:13\) is too slow"):
        load_experiment(tmp_path / "experiment.yaml")
