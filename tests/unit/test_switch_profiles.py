# SPDX-License-Identifier: Apache-2.0
"""Capability profiles: what a switch can't do in hardware is refused with the reason and the remedy."""

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from atoll.model.errors import PlanError
from atoll.model.flow import FlowEntry, Match, Output, PushVlan, Vlan
from atoll.model.load import load_experiment
from atoll.model.network import Network, Switch
from atoll.switches import profiles
from atoll_apps.steering import flow_entries

_OLD = """
driver = "old"
title = "an old switch"
table = 100
max_entries = 2
matches = ["in_port", "vlan", "untagged", "eth_type", "ipv4_src", "ipv4_dst"]
actions = ["Output"]
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
    tmp_path.joinpath("old").mkdir()
    tmp_path.joinpath("old", "profile.toml").write_text(_OLD)
    monkeypatch.setattr(profiles, "_CONFIGS", tmp_path)
    profiles.profile.cache_clear()


def entry(
    *actions: Output | PushVlan, in_port: int = 1, ip_proto: int | None = None, why: str = "w1 -> sat"
) -> FlowEntry:
    """An entry on that switch."""
    return FlowEntry("sw", 1000, Match(in_port, Vlan.UNTAGGED, ip_proto=ip_proto), actions, 1, why)


def test_what_hardware_cannot_do_is_refused_all_at_once(old: None) -> None:
    """Each refusal says which switch, what, for which leg, and what would help."""
    with pytest.raises(PlanError) as refusal:
        profiles.refuse_unsupported(
            SW, [entry(PushVlan(5), Output(2)), entry(Output(2), Output(3), ip_proto=6, why="x")]
        )
    assert str(refusal.value).splitlines() == [
        "sw (an old switch) cannot do PushVlan in hardware, wanted for 'w1 -> sat'; give each latency class a port",
        (
            "sw (an old switch) cannot do ip_proto in hardware, wanted for 'x'; "
            "choose another driver or another port for what is attached here"
        ),
        "sw (an old switch) cannot do several-outputs in hardware, wanted for 'x'; use a physical tap",
    ]


def test_a_full_table_is_refused(old: None) -> None:
    """The profile bounds how many entries there are."""
    with pytest.raises(PlanError, match=r"sw \(an old switch\) holds 2 entries, the plan has 3"):
        profiles.refuse_unsupported(SW, [entry(Output(9), in_port=port) for port in (1, 2, 3)])
    profiles.refuse_unsupported(SW, [entry(Output(9), in_port=port) for port in (1, 2)])


def test_an_unknown_driver_names_the_known_ones() -> None:
    """The message lists what there is."""
    profiles.profile.cache_clear()
    with pytest.raises(PlanError, match=r"no switch driver is called 'cisco'; known drivers: .*ovs"):
        profiles.profile("cisco")


def test_open_vswitch_takes_the_demo(project: Path) -> None:
    """The shipped profile is complete: nothing the apps ask for is missing from it."""
    profiles.profile.cache_clear()
    for example in sorted((project / "examples").glob("*.yaml")):
        network, experiment = load_experiment(example)
        profiles.refuse_unsupported(network, flow_entries(network, experiment))
    assert profiles.profile("ovs").table == 0
