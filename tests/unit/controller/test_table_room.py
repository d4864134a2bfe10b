# SPDX-License-Identifier: Apache-2.0
"""Tables that are nearly full: what is changed needs room for the new entries beside the old ones, or deletes first."""

from collections import Counter
from dataclasses import replace

import pytest

from atoll_controller.fabric.reconciler import Reconciler
from atoll_controller.fabric.swap_executor import SwapStep, steps_of
from atoll_controller.fabric.swap_plan import plan_swap
from atoll_controller.planner.entry_diff import diff
from atoll_controller.planner.planner import make_plan
from atoll_core.errors import LabError
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import Note
from atoll_core.plan.plan import Plan
from atoll_core.plan.tag_layout import UNTAGGED
from tests.support.labs import experiment
from tests.support.memory_switches import MemorySwitches
from tests.unit.controller.test_swap_executor import laboratory

LAB = laboratory()
BEFORE = experiment(LAB, ("t0", "b0", "b1"), [("w1", "rtt-10")])
AFTER = experiment(LAB, ("b2", "t0", "b1", "b0"), [("w1", "rtt-20")])
OLD, NEW = make_plan(LAB, BEFORE), make_plan(LAB, AFTER)


def largest(plan: Plan) -> int:
    """The most entries that a switch has of a plan."""
    return max(Counter(entry.switch for entry in plan.flows).values())


def together(one: Plan, other: Plan) -> int:
    """The most entries that a switch has while all of one comes before what only the other has goes."""
    return largest(SwapStep(plan_swap(LAB, BEFORE, UNTAGGED, AFTER).stages[0], one, other).peak)


async def kept(room: int, notes: list[str]) -> tuple[Reconciler, MemorySwitches]:
    """Switches of that size which hold the old plan."""

    async def again() -> MemorySwitches:
        return switches

    switches = MemorySwitches(LAB, lambda: None, room=room)
    events = EventBus()
    events.subscribe(lambda note: notes.append(note.message), Note)
    reconciler = Reconciler(switches, LAB, again, events)
    await reconciler.apply(OLD)
    notes.clear()
    return reconciler, switches


async def test_where_both_do_not_fit_an_apply_at_once_deletes_first_and_says_so() -> None:
    """A switch with room for either plan takes the other one."""
    room = max(largest(OLD), largest(NEW))
    assert room < together(OLD, NEW)
    notes: list[str] = []
    reconciler, switches = await kept(room, notes)
    await reconciler.apply(NEW)
    assert diff(NEW.flows, switches.entries) == ()
    assert len(notes) == 1
    assert f"its table has room for {room} entries, too few for " in notes[0]
    assert notes[0].endswith(
        "the old entries are deleted first, and packets are lost until the new entries are installed"
    )


async def test_where_both_fit_new_entries_come_first_and_nothing_is_said() -> None:
    """Not one entry more than that is needed."""
    notes: list[str] = []
    reconciler, switches = await kept(together(OLD, NEW), notes)
    switches.log.clear()
    await reconciler.apply(NEW)
    come = [come for come, _ in switches.log]
    assert come == sorted(come, reverse=True)
    assert notes == []


async def test_a_plan_that_does_not_fit_is_refused_before_anything_is_touched() -> None:
    """With the numbers."""
    big = replace(NEW, flows=(*NEW.flows, *(replace(entry, priority=entry.priority + 1) for entry in NEW.flows)))
    reconciler, switches = await kept(largest(big) - 1, [])
    switches.log.clear()
    with pytest.raises(
        LabError, match=rf"the plan has {largest(big)} entries, but table 0 .* room for {largest(big) - 1};"
    ):
        await reconciler.apply(big)
    assert switches.log == []


async def test_what_could_not_be_applied_for_want_of_room_comes_back_where_it_was() -> None:
    """A failure behind the deletions: the way back deletes first, too."""
    room = max(largest(OLD), largest(NEW))
    reconciler, switches = await kept(room, [])

    async def unproven() -> None:
        raise LabError("nothing comes through")

    with pytest.raises(LabError, match="nothing comes through"):
        await reconciler.apply(NEW, verify=unproven)
    assert diff(OLD.flows, switches.entries) == ()


async def test_a_swap_needs_room_for_what_comes_before_anything_goes() -> None:
    """Of each of its stages; it says what helps."""
    swap = plan_swap(LAB, BEFORE, UNTAGGED, AFTER)
    moves = steps_of(OLD, make_plan(LAB, AFTER, layout=swap.layout), swap)
    needed = max(largest(move.peak) for move in moves)
    reconciler, _ = await kept(needed, [])
    await reconciler.require_room([move.peak for move in moves])
    reconciler, _ = await kept(needed - 1, [])
    with pytest.raises(LabError, match=f"has {needed} entries, .* use `atoll apply EXPERIMENT --immediate`"):
        await reconciler.require_room([move.peak for move in moves])
