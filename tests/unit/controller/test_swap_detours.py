# SPDX-License-Identifier: Apache-2.0
"""The versions that a swap passes where nothing distinguishes the old version from the new one, and what it says."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from atoll_controller.fabric.swap_plan import Subject, Swap, plan_swap
from atoll_controller.planner.plan_text import parts_json, swap_lines, wait_lines
from atoll_core.description.loader import load_experiment
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Interface, Network
from atoll_core.plan.tag_layout import UNTAGGED
from atoll_core.units import Duration

WHOLE = ("tap-w", "pep-w", "coder-w", "sat", "coder-i", "pep-i", "tap-i")

Planned = Callable[[str, tuple[str, ...], tuple[str, ...]], Swap]


@pytest.fixture
def planned(project: Path) -> Planned:
    """The swap between two chains in the lab of an example, without spare legs."""

    def plan(example: str, old: tuple[str, ...], new: tuple[str, ...]) -> Swap:
        network, experiment = load_experiment(project / "examples" / example)
        return plan_swap(bare(network), with_chain(experiment, old), UNTAGGED, with_chain(experiment, new))

    return plan


def bare(network: Network) -> Network:
    """The lab without spare legs, and with cables that carry the bytes that coders add wherever they are."""

    def long(leg: Interface) -> Interface:
        return replace(leg, mtu=1600)

    boxes = (replace(box, spare=None, world=long(box.world), island=long(box.island)) for box in network.boxes)
    return replace(network, boxes=tuple(boxes))


def with_chain(experiment: Experiment, hops: tuple[str, ...]) -> Experiment:
    """The experiment with another chain."""
    return replace(experiment, chain=replace(experiment.chain, hops=hops))


def chains(swap: Swap) -> list[tuple[str, ...]]:
    """What packets pass, version by version."""
    return [version.chain.hops for version in swap.versions]


def test_half_coded_follows_a_full_chain(project: Path) -> None:
    """The example that was refused: PEPs leave, and the coders come back for half of the island."""
    network, new = load_experiment(project / "examples" / "half-coded.yaml")
    swap = plan_swap(network, with_chain(replace(new, branches=()), WHOLE), UNTAGGED, new)
    assert len(swap.parts) == 2
    assert swap.parts[-1].after == new
    assert {*swap.parts[0].without} == {"coder-w", "coder-i"}
    assert [(each.name, each.hops) for each in swap.parts[0].after.chains] == [
        ("coded", ("tap-w", "sat", "tap-i")),
        ("main", ("tap-w", "sat", "tap-i")),
    ]
    assert all(part["what"] for part in parts_json(swap))


def test_one_side_of_a_box_that_stays_changes_after_the_other(planned: Planned) -> None:
    """No box that both versions pass is left out."""
    old, new = ("pep-w", "coder-w", "sat"), ("coder-w", "sat", "pep-i")
    swap = planned("geo.yaml", old, new)
    assert chains(swap) in [[old, middle, new] for middle in (("coder-w", "sat"), (*old, "pep-i"))]
    assert [part.without for part in swap.parts] == [(), ()]


def test_coders_enter_and_leave_together_and_their_moment_is_told(planned: Planned) -> None:
    """They change places. PEPs stay, so that their connections go on; so do the link and the taps."""
    old = ("tap-w", "pep-w", "coder-w", "sat", "coder-i", "pep-i", "tap-i")
    new = ("tap-w", "pep-w", "coder-i", "sat", "coder-w", "pep-i", "tap-i")
    swap = planned("coder-geo.yaml", old, new)
    assert chains(swap) == [old, ("tap-w", "pep-w", "sat", "pep-i", "tap-i"), new]
    assert [part.without for part in swap.parts] == [("coder-w", "coder-i"), ()]
    assert swap.moved == ()
    first, second, third = swap_lines(swap)
    assert first == "the swap has 2 parts, one after the other:"
    assert second.startswith("  1. chain [tap-w, pep-w, sat, pep-i, tap-i] instead of [")
    assert "; no packet passes coder-w, coder-i until part 2, " in second
    effects = "so that packets are not coded by coder-w, coder-i; then the programs of coder-i, coder-w begin again; "
    assert effects in second
    assert third.startswith("  2. chain [tap-w, pep-w, coder-i, sat, coder-w, pep-i, tap-i] instead of [")
    assert [part["uncoded"] for part in parts_json(swap)] == [["coder-w", "coder-i"], []]


def test_connections_break_in_the_part_that_moves_their_box(planned: Planned) -> None:
    """PEPs change places with each other: there is no version with both in between, so that one of them leaves."""
    old, new = ("pep-w", "sat", "pep-i"), ("pep-i", "sat", "pep-w")
    swap = planned("pep-both.yaml", old, new)
    assert len(swap.parts) > 1
    assert all(part.moved for part in swap.parts)
    assert {box for stage in swap.stages for box in stage.moved} == {*swap.moved}
    assert any("connections through pep-" in line for line in swap_lines(swap))


def test_a_dry_run_says_how_long_a_box_admits_no_new_connections(planned: Planned, project: Path) -> None:
    """Only boxes that traffic leaves: one that it comes to has no connections to wait for."""
    network = load_experiment(project / "examples" / "pep-both.yaml")[0]
    without, both = ("tap-w", "sat", "tap-i"), ("tap-w", "pep-w", "sat", "pep-i", "tap-i")
    assert list(wait_lines(network, planned("pep-both.yaml", without, both), Duration(30 * 10**9))) == []
    (line,) = wait_lines(network, planned("pep-both.yaml", both, without), Duration(30 * 10**9))
    assert line == (
        "pep-w, pep-i: no new connections for up to 30 s, until the others have ended; then the remaining ones are "
        "reset"
    )


def test_a_swap_that_needs_no_version_in_between_has_none(planned: Planned) -> None:
    """One part, of which only effects are told."""
    swap = planned("pep-both.yaml", ("tap-w", "sat", "tap-i"), ("tap-w", "pep-w", "sat", "pep-i", "tap-i"))
    assert len(swap.parts) == 1
    assert list(swap_lines(swap)) == ["connections through pep-w, pep-i break"]
    assert list(swap_lines(planned("geo.yaml", ("sat",), ("sat",)))) == []


def test_latencies_change_behind_the_chain_if_they_cannot_before(project: Path) -> None:
    """Hosts of both ends are on each switch: with the old chain, packets lack tags that other latencies need."""
    swap = scattered(project, ("sat", "r1", "tap-w", "tap-i"), ("r2", "sat", "tap-i"))
    assert [part.subject for part in swap.parts] == [Subject.CHAINS, Subject.LATENCY]
    assert [part.before.latency for part in swap.parts] == [BEFORE, BEFORE]
    first, second, third = swap_lines(swap)
    assert first == "the swap has 2 parts, one after the other:"
    assert second.startswith("  1. chain [r2, sat, tap-i] instead of [sat, r1, tap-w, tap-i]; at least ")
    assert third.startswith("  2. latency.w2 rtt-20 instead of rtt-80; at least ")


def test_latencies_change_in_a_version_in_between_if_they_can_only_there(project: Path) -> None:
    """The chain without routed boxes, which has the old latencies first, then the new ones."""
    swap = scattered(project, ("tap-w", "r1", "sat", "tap-i"), ("sat", "r2", "tap-i", "r1"))
    assert [part.subject for part in swap.parts] == [Subject.CHAINS, Subject.LATENCY, Subject.CHAINS]
    assert [part.without for part in swap.parts] == [("r1",), ("r1",), ()]
    assert [part["subject"] for part in parts_json(swap)] == ["chains", "latency", "chains"]
    assert swap.versions[-1].latency == AFTER


BEFORE, AFTER = (("w2", "rtt-80"),), (("w2", "rtt-20"),)


def scattered(project: Path, old: tuple[str, ...], new: tuple[str, ...]) -> Swap:
    """A swap of the chain and of a server's latency in a lab of hosts of both ends on each switch."""
    network, bare = load_experiment(project / "tests" / "data" / "swaps" / "scattered.yaml")
    before, after = replace(with_chain(bare, old), latency=BEFORE), replace(with_chain(bare, new), latency=AFTER)
    return plan_swap(network, before, UNTAGGED, after)
