# SPDX-License-Identifier: Apache-2.0
"""What a swap asks for, in the full-size laboratory, and how it says what cannot be changed under traffic."""

import time
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from atoll_apps.steering import steer
from atoll_apps.version_separation import steer_transition
from atoll_controller.fabric.swap_plan import SLACK_NS, StageKind, Subject, Swap, chain_drain_ns, plan_swap
from atoll_controller.planner.plan_text import stage_lines, swap_lines
from atoll_controller.planner.planner import make_plan
from atoll_core.description.loader import load_experiment
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import Chain, Experiment, LinkTrace, Protocol, TraceRow, TrafficSelector
from atoll_core.lab.box_kind import EXTERNAL, Forwarding
from atoll_core.lab.network import Network
from atoll_core.plan.tag_layout import UNTAGGED
from atoll_core.units import Duration, Rate

WHOLE = ("tap-1", "pep-w", "tap-2", "coder-w", "tap-3", "sat", "tap-4", "coder-i", "pep-i", "tap-5")
BARE = ("tap-1", "sat", "tap-5")
SPLIT = ("tap-1", "pep-w", "sat", "pep-i", "tap-5")


@pytest.fixture(scope="module")
def lab(project: Path) -> tuple[Network, Experiment]:
    """The full-size laboratory with every box in the chain."""
    return load_experiment(project / "examples" / "laboratory.yaml")


def with_chain(experiment: Experiment, *hops: str) -> Experiment:
    """The experiment with another chain."""
    return replace(experiment, chain=replace(experiment.chain, hops=hops))


def stages(swap: Swap) -> list[StageKind]:
    """What happens, in order."""
    return [stage.kind for stage in swap.stages]


def test_the_full_laboratory_is_planned_and_swapped_soon(lab: tuple[Network, Experiment]) -> None:
    """A plan takes some hundredths of a second, a swap to branches a tenth. A slow machine has 5 s."""
    network, experiment = lab
    assert len(network.with_role(network.hosts[0].role)) == 22
    hops = with_chain(experiment, *BARE).chain.hops
    quarter, pings = TrafficSelector(island=IPv4Network("10.20.0.0/26")), TrafficSelector(protocol=Protocol.ICMP)
    new = replace(experiment, branches=(Chain("quarter", hops, quarter), Chain("pings", hops, pings)))
    began = time.process_time()
    assert len(make_plan(network, experiment).flows) > 400
    assert plan_swap(network, experiment, UNTAGGED, new).stages
    assert time.process_time() - began < 5


def test_a_laboratory_with_other_hosts_has_their_machines_only(lab: tuple[Network, Experiment]) -> None:
    network, _ = lab
    assert network.hosts[1].name in network.machines
    smaller = replace(network, hosts=network.hosts[:1])
    assert network.hosts[1].name not in smaller.machines
    with pytest.raises(KeyError):
        smaller.host(network.hosts[1].name)


def test_the_same_again_is_no_swap(lab: tuple[Network, Experiment]) -> None:
    """Neither stages nor another layout; settings of links and traffic are no business of the switches."""
    network, experiment = lab
    slower = replace(experiment, links=tuple(replace(link, to_island=link.to_world) for link in experiment.links))
    assert plan_swap(network, experiment, UNTAGGED, slower) == Swap((), UNTAGGED, ())


def test_the_first_line_of_stages_says_how_long_drains_take_if_there_are_any(project: Path) -> None:
    network, experiment = load_experiment(project / "examples" / "geo.yaml")
    without = replace(experiment, latency=())
    first, *_ = stage_lines(plan_swap(network, without, UNTAGGED, experiment))
    assert first == "the swap would have 4 stages:"
    first, *_ = stage_lines(plan_swap(network, experiment, UNTAGGED, without))
    assert first.startswith("the swap would have 4 stages; its drains take at least ")


def test_new_boxes_are_installed_probed_and_turned_to(lab: tuple[Network, Experiment]) -> None:
    """Between the bare link and one with PEPs the edge turns, at every server's class and every client's port."""
    network, experiment = lab
    swap = plan_swap(network, with_chain(experiment, *BARE), UNTAGGED, with_chain(experiment, *SPLIT))
    kinds = [StageKind.INSTALL, StageKind.PROBE, StageKind.SHIFT, StageKind.DRAIN, StageKind.COLLECT]
    assert stages(swap) == kinds
    _, probe, shift, drain, _ = swap.stages
    assert len(shift.add) == 22 + 1 + 107  # the servers' classes, that of both special hosts, island hosts
    assert [each.entry for each in shift.probes] == list(shift.add)
    assert probe.probes[: len(shift.probes)] == shift.probes
    hosts = {host.name for host in network.island_hosts}
    assert hosts <= {each.dst for each in probe.probes}  # the entries that deliver to each of them are new, too
    # 600 kB at 16 Mbit/s, to the world, and 250 ms
    assert drain.wait_ns == 300_000_000 + 250_000_000 + SLACK_NS


def test_transparent_boxes_are_shared_by_tag_and_the_way_back_needs_none(lab: tuple[Network, Experiment]) -> None:
    """The satellite emulator stays; frames of the new version carry a tag in it until the next swap."""
    network, experiment = lab
    bare, split = with_chain(experiment, *BARE), with_chain(experiment, *SPLIT)
    there = plan_swap(network, bare, UNTAGGED, split)
    assert [tag.box for tag in there.layout.boxes] == ["sat"]
    back = plan_swap(network, split, there.layout, bare)
    assert back.layout == UNTAGGED


def test_what_both_versions_begin_with_stays_as_it_is(lab: tuple[Network, Experiment]) -> None:
    """Coders come between PEPs: packets turn where they leave the PEPs, nothing changes at the hosts."""
    network, experiment = lab
    new = with_chain(experiment, "tap-1", "pep-w", "coder-w", "sat", "coder-i", "pep-i", "tap-5")
    swap = plan_swap(network, with_chain(experiment, *SPLIT), UNTAGGED, new)
    shift = next(stage for stage in swap.stages if stage.kind is StageKind.SHIFT)
    assert {(entry.switch, entry.match.in_port) for entry in shift.add} == {("sw-c", 12), ("sw-c", 19)}
    assert {(each.entry.switch, each.entry.match.in_port) for each in shift.probes} == {("sw-c", 12), ("sw-c", 19)}
    assert swap.layout.spare == ()


def test_reordered_routed_boxes_take_their_spare_legs(lab: tuple[Network, Experiment]) -> None:
    """Inside such a box packets of both versions lose their tags; they leave it by different ports."""
    network, experiment = lab
    old, new = (
        with_chain(experiment, "pep-w", "coder-w", "sat", "tap-5"),
        with_chain(experiment, "coder-w", "pep-w", "sat", "tap-5"),
    )
    swap = plan_swap(network, old, UNTAGGED, new)
    assert swap.layout.spare
    assert len(swap.parts) == 1


def test_versions_that_nothing_distinguishes_are_refused(lab: tuple[Network, Experiment]) -> None:
    """In one line, with the box and the remedy. A swap whose every detour is refused ends with the same line."""
    network, experiment = lab
    old, new = (
        with_chain(experiment, "pep-w", "coder-w", "sat", "tap-5"),
        with_chain(experiment, "coder-w", "pep-w", "sat", "tap-5"),
    )
    poor = replace(network, boxes=tuple(replace(box, spare=None) for box in network.boxes))
    with pytest.raises(PlanError) as refusal:
        steer_transition(poor, old, steer(poor, old, UNTAGGED), new)
    assert "leave routed box 'pep-w' by the same port without a tag, it has no spare ports" in str(refusal.value)
    assert "give it 'spare: {world: .., island: ..}' in the lab" in str(refusal.value)
    assert str(refusal.value).endswith("or, if packets may be lost, use `atoll apply EXPERIMENT --immediate`")
    assert len(str(refusal.value).splitlines()) == 1
    assert len(plan_swap(poor, old, UNTAGGED, new).parts) > 1, "versions in between distinguish them"


def test_a_latency_change_is_one_change_of_flow_in_each_direction(lab: tuple[Network, Experiment]) -> None:
    """One entry at the server's port, one where frames leave the chain for it; both replaced in place."""
    network, experiment = lab
    latency = tuple((host, "rtt-298" if host == "w1" else name) for host, name in experiment.latency)
    swap = plan_swap(network, experiment, UNTAGGED, replace(experiment, latency=latency))
    assert {stage.subject for stage in swap.stages} == {Subject.LATENCY}
    shift = next(stage for stage in swap.stages if stage.kind is StageKind.SHIFT)
    assert len(shift.add) == 2
    assert shift.delete == ()
    drain = next(stage for stage in swap.stages if stage.kind is StageKind.DRAIN)
    assert drain.wait_ns == 149_000_000 + SLACK_NS  # the slowest class in use, one way


def test_a_branch_is_split_off_and_comes_back(lab: tuple[Network, Experiment]) -> None:
    """Half of the island goes through the coders from now on; its packets in the link still come out the old way."""
    network, experiment = lab
    bare = with_chain(experiment, *BARE)
    coded = Chain(
        "coded", ("tap-1", "coder-w", "sat", "coder-i", "tap-5"), TrafficSelector(island=IPv4Network("10.20.0.0/25"))
    )
    there = plan_swap(network, bare, UNTAGGED, replace(bare, branches=(coded,)))
    assert {tag.chain for tag in there.layout.boxes} == {"coded"}
    back = plan_swap(network, replace(bare, branches=(coded,)), there.layout, bare)
    assert back.layout == UNTAGGED
    shift = next(stage for stage in back.stages if stage.kind is StageKind.SHIFT)
    assert shift.delete
    assert {each.entry for each in shift.probes} == {*shift.add, *shift.delete}
    udp = Chain("udp", BARE, TrafficSelector(protocol=Protocol.UDP))
    assert (
        plan_swap(network, bare, UNTAGGED, replace(bare, branches=(udp,))).layout == UNTAGGED
    )  # the same way: nothing to tell


def test_connections_through_stateful_boxes_are_counted_as_moved(lab: tuple[Network, Experiment]) -> None:
    """A bring-your-own PEP that comes into the chain or leaves it breaks connections; one that stays does not."""
    network, experiment = lab
    boxes = tuple(
        replace(box, kind=EXTERNAL, forwarding=Forwarding.ROUTED, stateful=True) if box.name.startswith("pep") else box
        for box in network.boxes
    )
    network = replace(network, boxes=boxes)
    bare, split = with_chain(experiment, *BARE), with_chain(experiment, *SPLIT)
    assert plan_swap(network, bare, UNTAGGED, split).moved == ("pep-w", "pep-i")
    coders = with_chain(experiment, "tap-1", "pep-w", "coder-w", "sat", "pep-i", "tap-5")
    assert plan_swap(network, split, UNTAGGED, coders).moved == ()


def test_connections_through_both_peps_break_if_one_of_two_that_multiplex_takes_its_other_legs(project: Path) -> None:
    """Streams of one are connections of the other, which must begin none while a swap waits."""
    network, experiment = load_experiment(project / "examples" / "pep-multiplexed.yaml")
    for hops in (("pep-w", "tap-w", "sat", "pep-i", "tap-i"), ("tap-w", "pep-w", "sat", "tap-i", "pep-i")):
        swap = plan_swap(network, experiment, UNTAGGED, with_chain(experiment, *hops))
        assert len(swap.layout.spare) == 1
        assert swap.moved == ("pep-w", "pep-i")


def test_drain_of_a_link_that_follows_a_trace(lab: tuple[Network, Experiment]) -> None:
    """The slowest rate, the longest delay, the longest pause."""
    network, experiment = lab
    bare = with_chain(experiment, *BARE)
    rows = (
        TraceRow(Duration(0), rate=Rate(4_000_000)),
        TraceRow(Duration(10**9), rate=Rate(0)),
        TraceRow(Duration(3 * 10**9), delay=Duration(400_000_000)),
    )
    (link,) = experiment.links
    traced = replace(link, to_island=replace(link.to_island, trace=LinkTrace("rain.csv", rows)))
    drain = chain_drain_ns(network, replace(bare, links=(traced,)), bare.chain)
    assert drain == 1_200_000_000 + 400_000_000 + 2_000_000_000 + SLACK_NS
    assert chain_drain_ns(network, experiment, replace(experiment.chain, hops=("pep-w",))) == SLACK_NS


@pytest.fixture
def held(project: Path) -> tuple[Network, Experiment]:
    """Coders that hold packets for 5 s, and whose repair packets leave within 1.1 s."""
    network, experiment = load_experiment(project / "examples" / "coder-geo.yaml")
    changed = {"in_order_hold": 5 * 10**9, "scheduler": "deferred", "defer": 2 * 10**9, "stale": 10**9, "flush": 10**8}
    boxes = tuple(
        replace(each, settings=tuple({**dict(each.settings), **changed}.items())) if "coder" in each.box else each
        for each in experiment.boxes
    )
    return network, replace(experiment, boxes=boxes)


CODED = ("tap-w", "coder-w", "sat", "coder-i", "tap-i")
UNCODED = ("tap-w", "sat", "tap-i")


def test_a_drain_waits_for_what_boxes_hold(held: tuple[Network, Experiment]) -> None:
    """Both coders of a pair together hold a packet once. Those that are off hold none."""
    network, experiment = held
    coded, bare = (with_chain(experiment, *hops) for hops in (CODED, UNCODED))
    without = chain_drain_ns(network, bare, bare.chain)
    assert chain_drain_ns(network, coded, coded.chain) == without + 6_100_000_000
    assert plan_swap(network, coded, UNTAGGED, bare).drain_ns(0) == without + 6_100_000_000
    off = replace(coded, boxes=tuple(replace(each, settings=(*each.settings, ("mode", "off"))) for each in coded.boxes))
    assert chain_drain_ns(network, off, off.chain) == without


def test_pings_wait_for_what_boxes_hold_there_and_back(held: tuple[Network, Experiment]) -> None:
    network, experiment = held
    jobs = {job.name: job.config or {} for job in make_plan(network, with_chain(experiment, *CODED)).jobs}
    plain = {job.name: job.config or {} for job in make_plan(network, with_chain(experiment, *UNCODED)).jobs}
    assert jobs["check-w1"]["timeout_ns"] == plain["check-w1"]["timeout_ns"] + 12_200_000_000
    assert jobs["ping"]["timeout_ns"] > 12_200_000_000


def with_settings(experiment: Experiment, box: str, **changed: Any) -> Experiment:
    """The experiment with other settings of a box."""
    boxes = tuple(
        replace(each, settings=tuple({**dict(each.settings), **changed}.items())) if each.box == box else each
        for each in experiment.boxes
    )
    return replace(experiment, boxes=boxes)


def test_a_box_whose_program_begins_again_is_left_out_meanwhile(held: tuple[Network, Experiment]) -> None:
    """With its pair, though no chain changes; and in the dry run's words."""
    network, experiment = held
    old = with_chain(experiment, *CODED)
    swap = plan_swap(network, old, UNTAGGED, with_settings(old, "coder-w", small=100))
    assert [part.after.chain.hops for part in swap.parts] == [UNCODED, CODED]
    assert [part.renewed for part in swap.parts] == [("coder-i", "coder-w"), ()]
    assert any(
        "no packet passes coder-w, coder-i until part 2" in line
        and "then the programs of coder-i, coder-w begin again" in line
        for line in swap_lines(swap)
    )


def test_connections_of_a_pep_that_begins_again_are_said_to_break(project: Path) -> None:
    network, experiment = load_experiment(project / "examples" / "pep-both.yaml")
    new = with_settings(experiment, "pep-w", island_window=10**6)
    swap = plan_swap(network, experiment, UNTAGGED, new)
    assert swap.moved == ("pep-w",)
    assert [part.renewed for part in swap.parts] == [("pep-w",), ()]
    slower = replace(new, latency=())
    assert {part.renewed for part in plan_swap(network, experiment, UNTAGGED, slower).parts} == {("pep-w",), ()}


@pytest.mark.parametrize(
    "changed",
    [
        {"world_initial_window": 30, "ecn": True},
        {"silence": 60 * 10**9, "pending_max": 3000, "handshake": 10**9, "flush": 0, "accept": "early"},
    ],
)
def test_settings_that_a_machine_or_a_program_takes_change_while_packets_pass(
    project: Path, changed: dict[str, Any]
) -> None:
    """Routes and sysctls, limits of a PEP: its program does not begin again, so that it stays in the chain."""
    network, experiment = load_experiment(project / "examples" / "pep-both.yaml")
    new = with_settings(experiment, "pep-w", **changed)
    assert plan_swap(network, experiment, UNTAGGED, new).stages == ()
    (part,) = plan_swap(network, experiment, UNTAGGED, replace(new, latency=())).parts
    assert (part.subject, part.renewed) == (Subject.LATENCY, ())


def test_a_box_of_the_user_declares_how_long_it_holds_packets(lab: tuple[Network, Experiment]) -> None:
    network, experiment = lab
    split = with_chain(experiment, *SPLIT)
    before = chain_drain_ns(network, split, split.chain)
    own = replace(network.box("pep-w"), kind=EXTERNAL, forwarding=Forwarding.ROUTED, residence_max=Duration(2 * 10**8))
    network = replace(network, boxes=tuple(own if box.name == "pep-w" else box for box in network.boxes))
    assert chain_drain_ns(network, split, split.chain) == before + 200_000_000
