# SPDX-License-Identifier: Apache-2.0
"""Latency classes with ports of their own: plans without VLAN tags, their traces, and mistakes in lab.yaml."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from atoll_controller.planner.planner import make_plan
from atoll_controller.tracing.packet_trace import HopKind, trace
from atoll_core.description.loader import load_experiment, load_lab
from atoll_core.errors import DescriptionError, PlanError
from atoll_core.experiment.experiment import Experiment, Protocol
from atoll_core.lab.network import Network
from atoll_core.plan.flow_entry import Output
from atoll_core.plan.plan import Backend

DATA = Path(__file__).parents[2] / "data" / "port-classes"


def on_v1(network: Network) -> Network:
    """The lab with ProCurve switches whose hardware cannot rewrite VLAN tags."""
    return replace(network, switches=tuple(replace(switch, driver="procurve-v1") for switch in network.switches))


@pytest.fixture
def small() -> tuple[Network, Experiment]:
    """Three servers, two of them delayed."""
    return load_experiment(DATA / "experiment.yaml")


@pytest.fixture
def whole(project: Path, tmp_path: Path) -> tuple[Network, Experiment]:
    """The full-size laboratory, its classes with ports and its taps in cables of the boxes behind them."""
    lab = (project / "emulation/labs/laboratory.yaml").read_text(encoding="utf-8")
    lab = re.sub(
        r"vlan: (\d+)", lambda vlan: f"world: sw-c/{2 * int(vlan[1])}, island: sw-c/{2 * int(vlan[1]) + 1}", lab
    )
    lab = lab.replace("    trunk: sw-c/10\n", "")
    for port, cable in {21: 11, 22: 13, 23: 15, 24: 16, 25: 20}.items():
        lab = lab.replace(f"port: sw-c/{port}}}", f"cable: sw-c/{cable}}}")
    (tmp_path / "laboratory.yaml").write_text(lab, encoding="utf-8")
    experiment = (project / "examples/laboratory.yaml").read_text(encoding="utf-8")
    path = tmp_path / "experiment.yaml"
    path.write_text(experiment.replace("../emulation/labs/", ""), encoding="utf-8")
    return load_experiment(path)


def test_the_full_laboratory_lies_in_the_hardware_of_v1(whole: tuple[Network, Experiment], project: Path) -> None:
    """With ports for its classes and physical taps; with a trunk and copies it does not."""
    network, experiment = whole
    plan = make_plan(on_v1(network), experiment)
    assert len(plan.flows) > 300
    assert all(len(entry.actions) == 1 and isinstance(entry.actions[0], Output) for entry in plan.flows)
    network, experiment = load_experiment(project / "examples/laboratory.yaml")
    with pytest.raises(PlanError, match="VLAN"):
        make_plan(on_v1(network), experiment)


def test_a_trace_names_the_class_in_both_directions(small: tuple[Network, Experiment]) -> None:
    """Frames of a class pass it, those of others do not, though they arrive by the same trunk."""
    network, experiment = small
    plan = make_plan(network, experiment)
    for server, name, delay_ns in (("w1", "rtt-20", 10_000_000), ("w2", "rtt-80", 40_000_000)):
        for src, dst in ((server, "i1"), ("i1", server)):
            hops = trace(network, experiment, plan.flows, src, dst, Protocol.TCP).hops
            delays = [hop for hop in hops if hop.kind is HopKind.DELAY]
            assert [(hop.note, hop.delay_ns, hop.vlan) for hop in delays] == [(f"class {name}", delay_ns, None)]
    found = trace(network, experiment, plan.flows, "w3", "i1", Protocol.TCP)
    assert found.arrives
    assert not [hop for hop in found.hops if hop.kind is HopKind.DELAY]


def test_the_delay_box_gets_both_directions_of_each_class(small: tuple[Network, Experiment]) -> None:
    """By interface, with a number each for counters and requests."""
    network, experiment = small
    job = next(job for job in make_plan(network, experiment).jobs if job.name == "delay-delay")
    assert job.config is not None
    assert "trunk" not in job.config
    assert job.config["classes"][:2] == [
        {"vlan": 4096, "from": "delay-1w", "to": "delay-1i", "delay_ns": 10_000_000, "jitter_ns": 0},
        {"vlan": 4097, "from": "delay-1i", "to": "delay-1w", "delay_ns": 10_000_000, "jitter_ns": 0},
    ]
    tc = next(job for job in make_plan(network, experiment, Backend.TC).jobs if job.name == "delay-delay")
    assert tc.config is not None
    assert [*tc.config["delay"]["classes"]] == ["4096", "4097", "4098", "4099"]


@pytest.mark.parametrize(
    ("classes", "answer"),
    [
        ("{rtt-20: {rtt: 20 ms}, rtt-80: {rtt: 80 ms, world: sw-c/23, island: sw-c/24}}", "write either vlan"),
        ("{rtt-20: {rtt: 20 ms, world: sw-c/21}}", "write either vlan"),
        ("{rtt-20: {rtt: 20 ms, vlan: 101, world: sw-c/21, island: sw-c/22}}", "write either vlan"),
        (
            "{rtt-20: {rtt: 20 ms, vlan: 101}, rtt-80: {rtt: 80 ms, world: sw-c/23, island: sw-c/24}}",
            "its delay box has no trunk; add 'trunk: SWITCH/PORT' to it",
        ),
        ("{rtt-20: {rtt: 20 ms, world: sw-c/13, island: sw-c/22}}", "port sw-c/13 is already taken by box 'sat'"),
    ],
)
def test_a_class_has_a_vlan_or_two_ports(tmp_path: Path, classes: str, answer: str) -> None:
    """One line names the class and what to write."""
    text = (DATA / "lab.yaml").read_text(encoding="utf-8")
    before, after = text.split("    classes:\n")[0], text[text.index("\ntaps:") :]
    path = tmp_path / "lab.yaml"
    path.write_text(f"{before}    classes: {classes}\n{after}", encoding="utf-8")
    with pytest.raises(DescriptionError) as refusal:
        load_lab(path)
    assert len(refusal.value.mistakes) == 1
    assert answer in str(refusal.value)
