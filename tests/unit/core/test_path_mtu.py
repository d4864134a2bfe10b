# SPDX-License-Identifier: Apache-2.0
"""MTUs of paths, from the cables of a lab to the routes of its machines; mistakes have file and line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from atoll_controller.planner.planner import make_plan
from atoll_core.description.loader import load_experiment
from atoll_core.errors import DescriptionError, PlanError
from atoll_core.experiment.experiment import Experiment, Protocol
from atoll_core.experiment.path_mtu import PathMtus
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend
from atoll_core.units import Size
from atoll_switches.capability_profile import too_long

Edit = tuple[str, str]
Load = Callable[..., tuple[Network, Experiment]]


@pytest.fixture
def load(tmp_path: Path, project: Path) -> Load:
    """Load the narrow chain of the tests' data, with edits of lab and experiment."""

    def load_edited(*edits: Edit) -> tuple[Network, Experiment]:
        left = dict(edits)
        for name in ("narrow-lab.yaml", "narrow.yaml"):
            text = (project / "tests/data/mtu" / name).read_text(encoding="utf-8")
            for old, new in edits:
                if old in text:
                    text = text.replace(old, new)
                    left.pop(old, None)
            (tmp_path / name).write_text(text, encoding="utf-8")
        assert not left
        return load_experiment(tmp_path / "narrow.yaml")

    return load_edited


def routes(network: Network, experiment: Experiment) -> dict[str, dict[str, int | None]]:
    """The MTU of every route of every machine that has routes."""
    found = {
        each.host: {route.prefix: route.mtu for interface in each.interfaces for route in interface.routes}
        for each in make_plan(network, experiment).hosts
    }
    return {host: mtus for host, mtus in found.items() if mtus}


def test_hosts_have_the_mtu_of_their_paths_by_prefix(load: Load) -> None:
    """A branch has its own; a host that only the branch reaches keeps its interface's."""
    found = routes(*load())
    assert found["w1"] == found["ws"] == {"10.20.0.0/16": 1400, "10.20.0.2/32": None}
    assert (found["i1"], found["i2"]) == ({"10.10.0.0/16": 1400}, {"10.10.0.0/16": None})
    assert found["router-w"] == {"10.10.0.0/16": None, "10.20.0.0/16": None}, "its legs have the MTU"


def test_interfaces_and_boxes_have_the_mtu_of_their_cables(load: Load) -> None:
    network, experiment = load()
    plan = make_plan(network, experiment)
    mtus = {interface.name: interface.mtu for each in plan.hosts for interface in each.interfaces}
    assert {name for name, mtu in mtus.items() if mtu == 1400} == {"router-w-i", "sat-w", "sat-i", "router-i-w"}
    assert set(mtus.values()) == {1400, 1500}
    for backend in Backend:
        jobs = {job.name: job.config or {} for job in make_plan(network, experiment, backend).jobs}
        assert (jobs["link-sat"]["mtu"], jobs["link-wide"]["mtu"], jobs["delay-delay"]["mtu"]) == (1400, 1500, 1500)


def test_where_the_protocol_decides_the_least_mtu_applies(load: Load) -> None:
    network, experiment = load(("{island: 10.20.0.2/32}", "{protocol: udp}"))
    assert routes(network, experiment)["w1"] == {"10.20.0.0/16": 1400}
    paths = PathMtus(network, experiment)
    ends = network.host("w1"), network.host("i1")
    assert (paths.between(*ends, Protocol.UDP), paths.between(*ends, Protocol.TCP)) == (1500, 1400)


def test_a_delay_box_and_a_host_narrow_their_own_paths_alone(load: Load) -> None:
    network, experiment = load(
        ("classes: {rtt-20", "mtu: 1300, classes: {rtt-20"), ("port: sw-c/1}", "port: sw-c/1, mtu: 1200}")
    )
    found = routes(network, experiment)
    assert found["w1"] == {"10.20.0.0/16": 1300, "10.20.0.1/32": 1200}, "the link carries more"
    assert found["ws"] == {"10.20.0.0/16": 1400, "10.20.0.1/32": 1200, "10.20.0.2/32": None}
    assert found["i1"] == {"10.10.0.0/16": None}
    assert found["i2"] == {"10.10.0.0/16": None, "10.10.0.1/32": 1300}


def test_routed_boxes_have_the_mtu_of_the_rest_of_the_path(load: Load) -> None:
    """A box that ends connections sends packets of its own."""
    network, experiment = load(("{port: sw-w/12, mtu: 1400}", "sw-w/12"))
    assert routes(network, experiment)["router-w"] == {"10.10.0.0/16": None, "10.20.0.0/16": 1400}


def test_taps_take_the_longest_packets_of_the_lab(load: Load) -> None:
    network, _ = load(
        (
            "wide: {kind: link, world: sw-c/17, island: sw-c/18}",
            "wide: {kind: link, world: sw-c/17, island: sw-c/18, mtu: 9000}",
        )
    )
    assert {tap.interface.mtu for tap in network.taps} == {9000}


def test_udp_packets_are_as_long_as_their_path_allows(load: Load) -> None:
    _, experiment = load()
    assert experiment.udp is not None
    assert experiment.udp.packet == Size(1400)
    _, experiment = load(("udp: {rate: 1 Mbit/s}", "udp: {rate: 1 Mbit/s, packet: 800 B}"))
    assert experiment.udp is not None
    assert experiment.udp.packet == Size(800)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mtu: 1400}\n  router-i", "mtu: 9300}\n  router-i", r"narrow-lab.yaml:20: box 'sat': mtu"),
        (
            "sat: {kind: link, world: sw-c/13, island: sw-c/14, mtu: 1400}",
            "sat: {kind: link, world: {port: sw-c/13, mtu: 1300}, island: sw-c/14}",
            r"narrow-lab.yaml:20: box 'sat': MTUs of 1300 and 1500 on both sides of a transparent box; write one mtu",
        ),
        (
            "island: {port: sw-w/12, mtu: 1400}}",
            "island: {port: sw-w/12, mtu: 1400}, spare: {world: sw-w/13, island: {port: sw-w/14, mtu: 1450}}}",
            r"narrow-lab.yaml:19: box 'router-w': spare: its MTUs differ from those of the first pair",
        ),
        (
            "udp: {rate: 1 Mbit/s}",
            "udp: {rate: 1 Mbit/s, packet: 1401 B}",
            r"narrow.yaml:17: udp: packet: 1401 B exceeds the MTU of its path; write at most 1400 B",
        ),
        (
            "to_world: {rate: 16 Mbit/s, delay: 20 ms, queue: 100 kB}",
            "to_world: {rate: 16 Mbit/s, delay: 20 ms, queue: 1450 B}",
            r"link 'wide': to_world: queue: 1450 B is too small; it must be at least 1500 B \(one MTU of 'wide'\)",
        ),
    ],
)
def test_a_mistake_has_its_line_and_its_remedy(load: Load, old: str, new: str, message: str) -> None:
    with pytest.raises(DescriptionError, match=message) as refused:
        load((old, new))
    assert len(str(refused.value).splitlines()) == 1


def test_what_a_switch_does_not_forward_is_refused_with_file_and_line(load: Load) -> None:
    """Of the switch at which a cable ends, and of one between two legs."""
    raised = (
        (
            "sat: {kind: link, world: sw-c/13, island: sw-c/14, mtu: 1400}",
            "sat: {kind: link, world: sw-c/13, island: sw-c/14, mtu: 9200}",
        ),
        ("mtu: 1400", "mtu: 9200"),
    )
    network, experiment = load(*raised)
    assert not list(too_long(network, experiment))
    network, experiment = load(*raised, ("sw-w: {dpid: 1, driver: ovs}", "sw-w: {dpid: 1, driver: procurve-v3}"))
    (leg, *taps) = [str(each) for each in too_long(network, experiment)]
    assert leg.endswith(
        "narrow-lab.yaml:19: router-w-i: sw-w (HP/Aruba, v3 modules) forwards packets of at most 9198 bytes, not 9200; "
        "write an mtu of at most 9198, or attach it to a switch with a larger limit"
    )
    assert ["cap-w-tap-w" in each for each in taps] == [True]
    with pytest.raises(PlanError, match=r"narrow-lab\.yaml:19: router-w-i"):
        make_plan(network, experiment)


def test_a_switch_between_two_legs_forwards_their_packets_too(load: Load) -> None:
    between = (
        ("sw-c: {dpid: 2, driver: ovs}", "sw-c: {dpid: 2, driver: ovs}\n  sw-m: {dpid: 3, driver: procurve-v2}"),
        (
            "{from: sw-w/24, to: sw-c/24, rate: 1 Gbit/s}",
            "{from: sw-w/24, to: sw-m/1, rate: 1 Gbit/s}\n  - {from: sw-m/2, to: sw-c/24, rate: 1 Gbit/s}",
        ),
        ("mtu: 1400", "mtu: 9200"),
    )
    network, experiment = load(*between)
    (found,) = [str(each) for each in too_long(network, experiment)]
    assert "narrow-lab.yaml:21: router-w-i: sw-m (HP ProCurve, v2 modules)" in found
