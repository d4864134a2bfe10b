# SPDX-License-Identifier: Apache-2.0
"""Where entries are placed, why, what that costs, and the room that they and changes take."""

from dataclasses import replace
from pathlib import Path

import pytest

from atoll_controller.fabric.swap_plan import plan_swap
from atoll_controller.planner.change_schedule import plan_schedule
from atoll_controller.planner.placement import Placement, budget_lines, place_plan, placement_text, swap_budgets
from atoll_controller.planner.planner import make_plan
from atoll_core.description.loader import load_experiment
from atoll_core.errors import PlanError
from atoll_core.plan.flow_entry import Output, PopVlan, PushVlan
from atoll_dashboards.diagram.lab_diagram import graph
from atoll_switches.entry_placement import TableKind, packet_rates

WHOLE = ("tap-w", "pep-w", "coder-w", "sat", "coder-i", "pep-i", "tap-i")


def placed(path: Path, driver: str) -> Placement:
    """The placement of an experiment as if all switches were of one kind."""
    network, experiment = load_experiment(path)
    network = replace(network, switches=tuple(replace(switch, driver=driver) for switch in network.switches))
    plan = make_plan(network, experiment, hardware_only=False)
    schedule = plan_schedule(network, experiment, plan, hardware_only=False)
    return place_plan(network, experiment, plan, schedule)


@pytest.mark.parametrize("driver", ["procurve-v2", "procurve-v3"])
def test_the_demo_lies_in_hardware_from_v2_on(project: Path, driver: str) -> None:
    found = placed(project / "examples/geo.yaml", driver)
    assert {(each.table_kind, each.table) for each in found.entries} == {(TableKind.HARDWARE, 100)}
    assert all(each.carries_packets_s is None and not each.remedy for each in found.entries)
    assert all(budget.fits for budget in found.budgets)


def test_on_v1_tags_and_copies_fall_to_software_with_reason_cost_and_remedy(project: Path) -> None:
    """Exactly those that a plan for such switches is refused for."""
    found = placed(project / "examples/geo.yaml", "procurve-v1")
    software = found.in_software
    assert software
    for each in found.entries:
        outputs = sum(isinstance(action, Output) for action in each.entry.actions)
        tags = any(isinstance(action, PushVlan | PopVlan) for action in each.entry.actions)
        assert (each.table_kind is TableKind.SOFTWARE) == (tags or outputs > 1), each
    assert {each.table for each in software} == {200}
    assert {each.carries_packets_s for each in software} == {100}
    assert all(each.remedy and each.reason for each in software)
    copies = next(each for each in software if each.reason == "its hardware cannot send a frame out of several ports")
    assert "physical tap" in copies.remedy
    network, experiment = load_experiment(project / "examples/geo.yaml")
    old = replace(network, switches=tuple(replace(each, driver="procurve-v1") for each in network.switches))
    with pytest.raises(PlanError):
        make_plan(old, experiment)


def test_the_cost_is_what_the_link_lets_through(project: Path) -> None:
    """16 Mbit/s to the island are 1333 packets of 1500 bytes a second; half as many ACKs come back."""
    _, experiment = load_experiment(project / "examples/geo.yaml")
    assert packet_rates(experiment) == (1333, 666)
    found = placed(project / "examples/geo.yaml", "procurve-v1")
    assert {each.expects_packets_s for each in found.in_software} <= {1333, 666, 1999}
    text = placement_text(found)
    assert "which carry 100 packets/s together; the experiment sends up to 1333:" in text


def test_the_budget_counts_both_versions_of_a_change(project: Path) -> None:
    """A swap adds before it deletes: for some time a switch has more entries than before and after it."""
    found = placed(project / "examples/switching.yaml", "procurve-v2")
    most = max(found.budgets, key=lambda budget: budget.most - budget.entries)
    assert most.most > most.entries
    assert most.when.startswith("change ")
    assert f"at most {most.most} during {most.when}" in placement_text(found)


def test_open_vswitch_makes_no_difference_between_entries(project: Path) -> None:
    found = placed(project / "examples/geo.yaml", "ovs")
    assert {each.table_kind for each in found.entries} == {TableKind.DATAPATH}
    assert found.labels() == {}


def test_the_budget_of_an_apply_counts_every_stage_of_every_part(project: Path) -> None:
    """As the daemon tells it before a swap and in a dry run; Open vSwitch has room for all."""
    network, old = load_experiment(project / "examples/half-coded.yaml")
    new = replace(old, branches=(), chain=replace(old.chain, hops=WHOLE))
    for driver, lines in (("procurve-v2", len(network.switches)), ("ovs", 0)):
        network = replace(network, switches=tuple(replace(switch, driver=driver) for switch in network.switches))
        plan = make_plan(network, old)
        swap = plan_swap(network, old, plan.layout, new)
        assert len(swap.parts) == 2
        budgets = swap_budgets(network, plan.flows, swap)
        most = max(budgets, key=lambda budget: budget.most)
        assert most.switch == "sw-c"
        assert most.most > max(most.entries, sum(entry.switch == "sw-c" for entry in make_plan(network, new).flows))
        assert most.when.startswith("part ")
        assert len(list(budget_lines(budgets))) == lines


def test_a_drawing_tells_the_placement_of_each_hardware_switch(project: Path) -> None:
    """Its entries, its room, and what is in software; nothing of Open vSwitch."""
    path = project / "examples/geo.yaml"
    network, experiment = load_experiment(path)
    found = placed(path, "procurve-v1").notes()
    assert {*found} == {switch.name for switch in network.switches}
    assert found["sw-c"][0].endswith(" of 1500 entries")
    assert any(note.endswith("in software, for up to 1333 packets/s") for note in found["sw-c"])
    drawing = graph(network, experiment, found)
    assert all(note in drawing for notes in found.values() for note in notes)
    assert {notes[1] for notes in placed(path, "procurve-v2").notes().values()} == {"all in hardware"}
    assert placed(path, "ovs").notes() == {}
