# SPDX-License-Identifier: Apache-2.0
"""The controller on one switch: Open vSwitch, twins of hardware, or hardware (``make test-switch``).

What a test needs of the hardware is its mark ``needs``; without it the test asserts the refusal (conftest.py).
"""

import asyncio
import time
from dataclasses import replace

import pytest

from atoll_controller.fabric import reconciler
from atoll_controller.fabric.flow_installer import apply_flows
from atoll_controller.fabric.reconciler import Reconciler
from atoll_controller.planner.entry_diff import ChangeAction
from atoll_core.errors import LabError
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import Note
from atoll_core.lab.twin import TwinSettings
from atoll_core.plan.flow_entry import Action, FlowEntry, Match, Output, PopVlan, PushVlan, sort_key
from atoll_switches.capability_profile import behaviour, missing_features
from tests.support.switch_under_test import BURST, FOLLOWS_S, SwitchUnderTest, is_of_tests

pytestmark = pytest.mark.asyncio(loop_scope="module")

VLAN = 4000
TAG_BYTES = 4  # of an 802.1Q tag
_needs = pytest.mark.needs

PLANS = [
    pytest.param("sat", "", id="link"),
    pytest.param("pep, sat", "", id="proxy"),
    pytest.param("sat", "cabled", id="latency-by-ports"),
    pytest.param("sat", "tagged", id="latency-by-tag", marks=_needs("PushVlan", "PopVlan")),
    pytest.param("tap-w, sat", "", id="tap", marks=_needs("several-outputs")),
]


@pytest.mark.parametrize(("chain", "latency"), PLANS)
async def test_the_switch_holds_exactly_the_plan(switch: SwitchUnderTest, chain: str, latency: str) -> None:
    """A dry run changes nothing; the real one installs every entry; a second one finds nothing to do."""
    plan = switch.plan(chain, latency)
    assert all(map(is_of_tests, plan.flows)), "others would not be deleted after kill -9"
    foreseen = await switch.apply(plan, dry_run=True)
    assert await switch.held() == []
    assert await switch.apply(plan) == foreseen
    found = [entry for entry in await switch.held() if isinstance(entry, FlowEntry)]
    assert sorted(found, key=sort_key) == [replace(entry, why="") for entry in plan.flows]
    assert await switch.apply(plan) == ()


async def test_another_chain_is_reached_by_the_difference(switch: SwitchUnderTest) -> None:
    """There and back: what both share is left alone."""
    one, other = switch.plan(), switch.plan("pep, sat")
    await switch.apply(one)
    changes = await switch.apply(other)
    assert 0 < len(changes) < len(one.flows) + len(other.flows)
    assert await switch.apply(other) == ()
    assert len(await switch.apply(one)) == len(changes)


async def test_what_somebody_changed_is_put_right_by_one_change(switch: SwitchUnderTest) -> None:
    """An entry that is missing, one too many, and one with other actions, each with its reason."""
    plan = switch.plan()
    await switch.apply(plan)
    entry = plan.flows[0]
    stranger = switch.entry(switch.to(7), (Output(switch.ports[1]),))
    changed = replace(entry, actions=(Output(switch.ports[12]),))
    for delete, add, action, subject, reason in (
        ([entry], [], ChangeAction.ADD, entry, f"missing on {switch.target.name}"),
        ([], [stranger], ChangeAction.DELETE, stranger, "not in the plan"),
        ([], [changed], ChangeAction.MODIFY, entry, "actions differ: on the switch"),
    ):
        await switch.change(delete, add)
        (change,) = await switch.apply(plan)
        assert isinstance(change.entry, FlowEntry)
        assert (change.action, change.entry.identity) == (action, subject.identity)
        assert reason in change.reason
        assert await switch.apply(plan) == ()


async def test_what_the_profile_says_that_hardware_cannot_do_the_switch_refuses(switch: SwitchUnderTest) -> None:
    """Behind the plan's back: the error names the entry, and the table is as it was."""
    plan = switch.plan()
    await switch.apply(plan)
    before = sorted(map(str, await switch.held()))
    for entry in impossible(switch):
        with pytest.raises(LabError, match=f"{switch.target.name}: switch {switch.target.dpid} refused '{entry.why}' "):
            await switch.apply(replace(plan, flows=(*plan.flows, entry)))
        assert sorted(map(str, await switch.held())) == before, entry


def impossible(switch: SwitchUnderTest) -> list[FlowEntry]:
    """An entry for each feature that the hardware lacks; on Open vSwitch one that makes no sense."""
    port, out, to = switch.ports[0], (Output(switch.ports[1]),), switch.to(1)
    trials: list[tuple[Match, tuple[Action, ...]]] = [
        (replace(to, vlan=VLAN), out),
        (replace(to, ip_proto=17), out),
        (replace(to, ip_proto=17, l4_src=9), out),
        (replace(to, ip_proto=17, l4_dst=9), out),
        (Match(port, eth_type=0x88B5), out),  # IEEE 802, local experiments
        (to, (PushVlan(VLAN), *out)),
        (replace(to, vlan=VLAN), (PopVlan(), *out)),
        (to, (*out, Output(switch.ports[2]))),
    ]
    entries = [switch.entry(match, actions, f"trial {n}") for n, (match, actions) in enumerate(trials)]
    lacking = [entry for entry in entries if any(missing_features(switch.known, entry))]
    return lacking if switch.known.is_hardware else [switch.entry(to, (PopVlan(), *out), "nothing to pop")]


@pytest.mark.parametrize(
    "number", [pytest.param(1500, marks=_needs(entries=1500)), pytest.param(2000, marks=_needs(entries=2000))]
)
async def test_a_full_table_is_installed_and_verified(switch: SwitchUnderTest, number: int) -> None:
    """With the time to go, if it takes longer than a second."""
    plan = switch.plan_of(*switch.entries(number))
    lines: list[str] = []
    began_s = time.monotonic()
    await apply_flows(switch.controller, switch.network, plan, progress=lines.append)
    took_s = time.monotonic() - began_s
    assert len(await switch.held()) == number
    assert took_s < 3 or lines
    assert all(line.startswith(f"{switch.target.name}: ") and line.endswith(" to go") for line in lines), lines


@pytest.mark.parametrize(
    ("others", "tags"),
    [
        pytest.param(0, 0, id="one-port"),
        pytest.param(0, 1, id="tag", marks=_needs("PushVlan")),
        pytest.param(1, 0, id="two-ports", marks=_needs("several-outputs")),
    ],
)
async def test_an_entry_forwards_until_it_is_deleted(switch: SwitchUnderTest, others: int, tags: int) -> None:
    """Frames that are sent through the tables leave by the ports of the entry, with its tag, and then do not."""
    ports = switch.ports[1 : 2 + others]
    plain = switch.entry(switch.frames, tuple(map(Output, ports)))
    wanted = switch.plan_of(replace(plain, actions=(*(PushVlan(VLAN),) * tags, *plain.actions)))
    await switch.apply(switch.plan_of(plain))
    untagged = await switch.forwards(*ports)
    assert untagged is not None, f"no frame came out of ports {ports}; do they have a link?"
    if tags:
        await switch.apply(wanted)
        await asyncio.sleep(switch.known.lag_s)
        assert await switch.forwards(*ports) == tuple(octets + TAG_BYTES for octets in untagged)
    await switch.clear()
    assert await switch.stops(ports[0])


async def test_counters_of_entries_follow_those_of_ports(switch: SwitchUnderTest) -> None:
    """Within the time for which the profile says that they are frozen."""
    entry = switch.entry(switch.frames, (Output(switch.ports[1]),))
    before, _ = await switch.sent(switch.ports[1])
    await switch.apply(switch.plan_of(entry))
    assert await switch.forwards(switch.ports[1]) is not None
    frozen_s = behaviour(switch.target.driver, TwinSettings()).statistics.s if switch.known.is_hardware else 0.0
    deadline_s = time.monotonic() + frozen_s + FOLLOWS_S
    while True:
        left = (await switch.sent(switch.ports[1]))[0] - before
        (counted,) = await switch.controller.packets(switch.target.dpid, [entry], switch.table)
        if counted is not None and 0 <= left - counted < BURST:  # the port may have sent a frame of its own
            return
        assert time.monotonic() < deadline_s, f"port: {left}, entry: {counted}"
        await asyncio.sleep(0.5)


async def test_entries_outlive_the_controller(switch: SwitchUnderTest) -> None:
    """Neither its end nor its return changes one."""
    plan = switch.plan()
    await switch.apply(plan)
    await switch.controller.close()
    await switch.start_controller()
    assert await switch.apply(plan, dry_run=True) == ()


async def test_what_somebody_deletes_is_installed_again(
    switch: SwitchUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the process that keeps the switches at their plan, which tells what was missing."""
    monkeypatch.setattr(reconciler, "_COUNT_INTERVAL_S", 0.5)
    plan, notes, events = switch.plan(), asyncio.Queue[str](), EventBus()
    events.subscribe(lambda note: notes.put_nowait(note.message), Note)
    kept = Reconciler(switch.controller, switch.network, switch.start_controller, events)
    await kept.apply(plan)
    keeping = asyncio.create_task(kept.run())
    try:
        await switch.change(delete=[plan.flows[0]])
        async with asyncio.timeout(FOLLOWS_S):
            assert "1 flow entries repaired: add" in await notes.get()
    finally:
        keeping.cancel()
        switch.controller.on_event = None
    assert await switch.apply(plan, dry_run=True) == ()
