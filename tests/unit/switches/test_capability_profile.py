# SPDX-License-Identifier: Apache-2.0
"""Capability profiles: what a switch can't do in hardware is refused with the reason and the remedy."""

from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from atoll_apps.steering import flow_entries
from atoll_core.description.loader import load_experiment
from atoll_core.description.raw_lab import RawSwitch
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import Chain, TrafficSelector
from atoll_core.lab.network import Interface, Network, Switch
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.flow_entry import FlowEntry, Match, Output, PushVlan, Vlan
from atoll_switches import capability_profile

_OLD = """
driver = "old"
title = "an old switch"
models = "old ones"
config = "procurve"
only_ipv4 = true
table = 100
max_entries = 2
mtu = 1500
matches = ["in_port", "vlan", "untagged", "eth_type", "ipv4_src", "ipv4_dst"]
actions = ["Output"]
unverified = ["how many entries fit"]
[remedies]
PushVlan = "give each latency class a port"
several-outputs = "use a physical tap"
"""

SW = Network(
    "lab",
    "lab.yaml",
    IPv4Network("10.0.0.0/16"),
    IPv4Network("10.1.0.0/16"),
    (Switch("sw", 1, "old"),),
    (),
    (),
    (),
    (),
    (),
)


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that can do little."""
    tmp_path.joinpath("old.toml").write_text(_OLD)
    monkeypatch.setattr(capability_profile, "PROFILES", tmp_path)
    capability_profile.profile.cache_clear()


def entry(
    *actions: Output | PushVlan, in_port: int = 1, ip_proto: int | None = None, why: str = "w1 -> sat"
) -> FlowEntry:
    """An entry on that switch."""
    return FlowEntry("sw", 1000, Match(in_port, Vlan.UNTAGGED, ip_proto=ip_proto), actions, 1, why)


def test_what_hardware_cannot_do_is_refused_all_at_once(old: None) -> None:
    """Each refusal says which switch, what, for which leg first and how many more, and what would help."""
    with pytest.raises(PlanError) as refusal:
        capability_profile.refuse_unsupported(
            SW, [entry(PushVlan(5), Output(2)), entry(Output(2), Output(3), ip_proto=6, why="x"), entry(PushVlan(6))]
        )
    assert str(refusal.value).splitlines() == [
        (
            "sw (an old switch) cannot push a VLAN tag in hardware, needed for 'w1 -> sat' and 1 more; "
            "give each latency class a port"
        ),
        (
            "sw (an old switch) cannot match ip_proto in hardware, needed for 'x'; "
            "choose another driver, or another port for the machine"
        ),
        "sw (an old switch) cannot send a frame out of several ports in hardware, needed for 'x'; use a physical tap",
        (
            "sw (an old switch) has room for 2 entries, but the plan has 3; attach some of its machines to another "
            "switch"
        ),
    ]


def test_entries_for_other_frames_than_ipv4_are_refused_where_hardware_knows_ipv4_only(old: None) -> None:
    """An open EtherType would fall to software as ARP would."""
    for eth_type in (0x0806, None):
        with pytest.raises(PlanError, match="cannot match frames that are not IPv4 in hardware"):
            capability_profile.refuse_unsupported(
                SW, [FlowEntry("sw", 1000, Match(1, None, eth_type), (Output(2),), 1, "arp")]
            )


def test_a_full_table_is_refused(old: None) -> None:
    """The profile bounds how many entries there are."""
    with pytest.raises(PlanError, match=r"sw \(an old switch\) has room for 2 entries, but the plan has 3"):
        capability_profile.refuse_unsupported(SW, [entry(Output(9), in_port=port) for port in (1, 2, 3)])
    capability_profile.refuse_unsupported(SW, [entry(Output(9), in_port=port) for port in (1, 2)])


def with_driver(network: Network, driver: str) -> Network:
    """The same laboratory with all switches of one driver."""
    return replace(network, switches=tuple(replace(switch, driver=driver) for switch in network.switches))


def test_the_oldest_hardware_steers_a_chain_and_refuses_tags_and_fan_out(project: Path) -> None:
    """procurve-v1 takes the demo without taps and latencies; with them, each is refused once a switch."""
    capability_profile.profile.cache_clear()
    network, experiment = load_experiment(project / "examples/geo.yaml")
    old = with_driver(network, "procurve-v1")
    plain = replace(experiment, chain=replace(experiment.chain, hops=("coder-w", "sat", "coder-i")), latency=())
    capability_profile.refuse_unsupported(old, flow_entries(old, plain))
    with pytest.raises(PlanError) as refusal:
        capability_profile.refuse_unsupported(old, flow_entries(old, experiment))
    said = str(refusal.value)
    assert "sw-w1 (HP ProCurve, v1 modules) cannot push a VLAN tag in hardware, needed for 'w1 -> island" in said
    assert "sw-c (HP ProCurve, v1 modules) cannot send a frame out of several ports in hardware" in said
    assert "use a physical tap (cable: instead of port:)" in said
    assert len(said.splitlines()) == 5  # pushing: sw-w1, sw-w2 and sw-c; removing and copying: sw-c


def test_a_latency_is_a_box_of_its_own_where_hardware_knows_no_tags(project: Path) -> None:
    """The remedy that procurve-v1 offers for a latency works: a link in a branch that carries that server's prefix."""
    capability_profile.profile.cache_clear()
    network, experiment = load_experiment(project / "examples/geo.yaml")
    boxes = (*network.boxes, replace(network.box("sat"), name="far", world=leg("far-w", 30), island=leg("far-i", 31)))
    old = with_driver(replace(network, boxes=boxes), "procurve-v1")
    far = Chain("far", ("far", "sat"), TrafficSelector(world=IPv4Network("10.10.0.4/32")))
    branched = replace(experiment, chain=replace(experiment.chain, hops=("sat",)), branches=(far,), latency=())
    capability_profile.refuse_unsupported(old, flow_entries(old, branched))


def leg(name: str, port: int) -> Interface:
    """A leg at a port of the core switch."""
    return Interface(name, f"02:a7:00:03:00:{port:02x}", PortRef("sw-c", port))


@pytest.mark.parametrize("driver", ["procurve-v2", "procurve-v3"])
def test_newer_hardware_takes_every_example(project: Path, driver: str) -> None:
    """What v2 and v3 modules do is enough for what is shipped, and what nobody has verified is said."""
    capability_profile.profile.cache_clear()
    for example in sorted((project / "examples").glob("*.yaml")):
        network, experiment = load_experiment(example)
        newer = with_driver(network, driver)
        capability_profile.refuse_unsupported(newer, flow_entries(newer, experiment))
    assert any("pushed in hardware" in each for each in capability_profile.profile(driver).unverified)


def test_a_lab_may_name_every_driver_there_is() -> None:
    """What lab.yaml takes as a driver is what there are profiles of."""
    driver = RawSwitch.model_json_schema()["properties"]["driver"]
    assert tuple(driver["enum"]) == capability_profile.drivers()


def test_an_unknown_driver_names_the_known_ones() -> None:
    """The message lists what there is."""
    capability_profile.profile.cache_clear()
    with pytest.raises(PlanError, match=r"no switch driver is called 'cisco'; known drivers: .*ovs"):
        capability_profile.profile("cisco")


def test_open_vswitch_takes_the_demo(project: Path) -> None:
    """The shipped profile is complete: nothing the apps ask for is missing from it."""
    capability_profile.profile.cache_clear()
    for example in sorted((project / "examples").glob("*.yaml")):
        network, experiment = load_experiment(example)
        capability_profile.refuse_unsupported(network, flow_entries(network, experiment))
    assert capability_profile.profile("ovs").table == 0
