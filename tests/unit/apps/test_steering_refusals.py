# SPDX-License-Identifier: Apache-2.0
"""What steering can do across several switches, and how it says what it can't."""

from dataclasses import replace
from pathlib import Path

import pytest

from atoll_apps.steering import flow_entries, steer
from atoll_controller.tracing.table_model import Frame, SwitchTables
from atoll_core.description.loader import load_experiment
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import Chain, Experiment
from atoll_core.lab.network import Network
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.flow_entry import describe_actions
from atoll_core.plan.tag_layout import Layout


@pytest.fixture
def demo(project: Path) -> tuple[Network, Experiment]:
    """The demo's lab and experiment."""
    return load_experiment(project / "examples" / "geo.yaml")


def moved(network: Network, box: str, world: str, island: str) -> Network:
    """The network with a chain box on other ports (``switch/port``)."""

    def ref(text: str) -> PortRef:
        switch, port = text.split("/")
        return PortRef(switch, int(port))

    old = network.box(box)
    new = replace(old, world=replace(old.world, attached=ref(world)), island=replace(old.island, attached=ref(island)))
    return replace(network, boxes=tuple(new if each is old else each for each in network.boxes))


def names(network: Network, experiment: Experiment, src: str, dst: str) -> list[str]:
    """The machines a frame comes to on its way between two hosts."""
    model = SwitchTables(network, flow_entries(network, experiment))
    one, other = network.host(src), network.host(dst)
    return [seen.name for seen in model.arrivals(Frame(one.address, other.address), one.interface.attached)]


def test_a_delay_box_may_stand_on_a_world_switch(demo: tuple[Network, Experiment]) -> None:
    """Servers of the other world switch cross the chain switch twice, tagged and untagged, and are told apart."""
    network, experiment = demo
    delay = network.delay_boxes[0]
    assert delay.trunk
    elsewhere = replace(delay, trunk=replace(delay.trunk, attached=PortRef("sw-w1", 20)))
    network = replace(network, delay_boxes=(elsewhere,))
    for server in ("w1", "w4"):
        assert names(network, experiment, server, "i3") == ["delay", "tap-w", "sat", "tap-i", "i3"]
        assert names(network, experiment, "i3", server) == ["tap-i", "sat", "tap-w", "delay", server]
    assert names(network, experiment, "ws", "is") == ["tap-w", "sat", "tap-i", "is"]


def test_a_box_may_stand_on_the_island_switch(demo: tuple[Network, Experiment]) -> None:
    """The last box of a chain on the island's own switch: frames cross the trunk once in each direction."""
    network, experiment = demo
    network = moved(network, "pep-i", "sw-i/19", "sw-i/20")
    experiment = replace(experiment, chain=Chain("geo", ("pep-w", "tap-w", "sat", "tap-i", "pep-i")))
    assert names(network, experiment, "w2", "i1") == ["delay", "pep-w", "tap-w", "sat", "tap-i", "pep-i", "i1"]
    assert names(network, experiment, "i1", "w2") == ["pep-i", "tap-i", "sat", "tap-w", "pep-w", "delay", "w2"]


def test_taps_and_delay_without_boxes(demo: tuple[Network, Experiment]) -> None:
    """An empty chain is a plain wire, whose taps still see what passes."""
    network, experiment = demo
    wire = replace(experiment, chain=Chain("wire", ("tap-w",)))
    assert names(network, wire, "w6", "i6") == ["delay", "tap-w", "i6"]
    assert names(network, wire, "i6", "w6") == ["tap-w", "delay", "w6"]
    assert names(network, replace(experiment, chain=Chain("wire", ())), "ws", "i6") == ["i6"]


def test_stretches_that_share_a_trunk_are_told_apart_by_a_tag(demo: tuple[Network, Experiment]) -> None:
    """A box amid the chain on a world switch: its frames come back looking like those of that switch's hosts."""
    network, experiment = demo
    network = moved(network, "coder-w", "sw-w1/13", "sw-w1/14")
    experiment = replace(experiment, chain=Chain("geo", ("pep-w", "tap-w", "coder-w", "sat")))
    for server in ("w1", "w4"):
        assert names(network, experiment, server, "i3") == ["delay", "pep-w", "tap-w", "coder-w", "sat", "i3"]
        assert names(network, experiment, "i3", server) == ["sat", "coder-w", "tap-w", "pep-w", "delay", server]
    steering = steer(network, experiment, Layout())
    assert {tag.gap for tag in steering.layout.gaps} == {2}  # the later stretch; nothing else needs a tag
    assert steer(network, experiment, steering.layout) == steering


def test_a_tap_beside_the_way_gets_copies_over_trunks(demo: tuple[Network, Experiment]) -> None:
    """Frames do not go out of their way for it: a copy with the tap's own tag does."""
    network, experiment = demo
    tap = network.tap("tap-i")
    aside = replace(tap, interface=replace(tap.interface, attached=PortRef("sw-w2", 22)))
    network = replace(network, taps=tuple(aside if each is tap else each for each in network.taps))
    assert sorted(names(network, experiment, "ws", "is")) == ["is", "sat", "tap-i", "tap-w"]
    entries = flow_entries(network, experiment)
    arrivals = [e for e in entries if e.switch == "sw-w2" and e.match.in_port == 24 and e.match.vlan == 4093]
    assert {describe_actions(entry.actions) for entry in arrivals} == {"pop, port 22"}
    assert [entry.why.split(";")[0] for entry in arrivals] == [
        "sat -> tap-i: out of the chain",
        "i1 -> tap-i: into the chain",
    ]


def test_switches_without_a_trunk_between_them_are_named(demo: tuple[Network, Experiment]) -> None:
    """Steering needs trunks; the message says between which switches."""
    network, experiment = demo
    with pytest.raises(PlanError, match=r"no trunks connect sw-w1 to sw-c; add a trunk"):
        flow_entries(replace(network, trunks=()), experiment)


def test_cookies_tell_app_leg_and_class(demo: tuple[Network, Experiment]) -> None:
    """A7, app, leg, class: entries of one leg can be counted together, and are the same in every plan."""
    network, experiment = demo
    cookies = {entry.why: entry.cookie for entry in flow_entries(network, experiment)}
    assert cookies["w3 -> island: class rtt-50 of delay"] == 0xA7_02_01_00_00000067
    assert cookies["sat -> w3: class rtt-50 of delay"] == 0xA7_02_03_00_00000067
    assert cookies["ws -> sat: not delayed"] == 0xA7_01_01_00_00000000
