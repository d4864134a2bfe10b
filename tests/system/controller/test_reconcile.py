# SPDX-License-Identifier: Apache-2.0
"""Switches are kept at the plan whatever happens to them, their channels or the controller: on real switches."""

import asyncio
import os
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
import pytest_asyncio

from atoll_apps.control import control_entries
from atoll_controller.fabric import reconciler
from atoll_controller.fabric.reconciler import Reconciler
from atoll_controller.openflow.controller_client import Controller
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import Note
from atoll_core.lab.network import Control, Network
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.plan import Plan
from tests.support.bridges import CONNECT_S, DPIDS, NOBODY, Switches
from tests.support.runtime import start_controller

pytestmark = pytest.mark.lab

LIMIT_S = 60.0
# One entry of the demo's plan, as somebody would name it by hand.
W3 = "priority=1000,in_port=3,ip,vlan_tci=0x0000/0x1fff,nw_src=10.10.0.3,nw_dst=10.20.0.0/16"


class Kept:
    """The demo's switches, kept at its plan, and what was told meanwhile."""

    def __init__(self, switches: Switches, network: Network) -> None:
        self.notes: list[str] = []
        self.switches = switches
        self.port = 0  # any, at first; the same again for a controller's successor
        self._network = network
        self._task: asyncio.Task[str] | None = None
        self.reconciler: Reconciler

    async def start(self, plan: Plan | None) -> None:
        """Install the plan and keep it from now on; without a plan, only keep what a lab has before its first one."""
        events = EventBus()
        events.subscribe(lambda note: self.notes.append(note.message), Note)
        self.reconciler = Reconciler(await self._controller(), self._network, self._controller, events)
        if plan is not None:
            await self.reconciler.apply(plan)
        self._task = asyncio.create_task(self.reconciler.run())

    async def _controller(self) -> Controller:
        controller = await start_controller(self.switches.enter, f"127.0.0.1:{self.port}")
        if not self.port:
            self.port = controller.port
            self.switches.connect(self.port)
        await controller.wait_for(DPIDS, CONNECT_S)
        return controller

    async def stop(self) -> None:
        """Let the switches alone again."""
        if self._task is not None:
            self._task.cancel()
        await self.reconciler.controller.close()

    async def answer(self, words: str) -> str:
        """The first note that has these words, once there is one."""
        async with asyncio.timeout(LIMIT_S):
            while not (found := [note for note in self.notes if words in note]):  # noqa: ASYNC110 - as a user would
                await asyncio.sleep(0.02)
        return found[0]

    def ages(self, bridge: str) -> dict[str, float]:
        """Seconds since each entry of a bridge was installed or changed, by its match."""
        lines = self.switches.ofctl("dump-flows", bridge).splitlines()
        found = (re.search(r"duration=([0-9.]+)s.* (priority=\S+)", line) for line in lines)
        return {each[2]: float(each[1]) for each in found if each is not None}


def kill(controller: Controller) -> None:
    """End the process of a controller, as the kernel does when memory is short."""
    entered = controller._process.pid
    os.kill(int(Path(f"/proc/{entered}/task/{entered}/children").read_text()), signal.SIGKILL)


@pytest_asyncio.fixture
async def kept(switches: Switches, demo: tuple[Network, Plan], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Kept]:
    """The demo's plan on the switches, looked at more often than usual."""
    monkeypatch.setattr(reconciler, "_COUNT_INTERVAL_S", 0.1)
    switches.clear()
    network, plan = demo
    keeping = Kept(switches, network)
    await keeping.start(plan)
    yield keeping
    await keeping.stop()


@pytest.mark.parametrize(
    ("words", "by_hand", "answer"),
    [
        (
            ("del-flows", "br1", "--strict", W3),
            "has 7 entries where the plan has 8",
            "1 flow entries repaired: add 'w3 -> island: class rtt-50 of delay'",
        ),
        (
            ("add-flow", "br1", "priority=5,actions=NORMAL"),
            "has 9 entries where the plan has 8",
            "1 flow entries repaired: delete 'any frame: port NORMAL'",
        ),
        (
            ("mod-flows", "br1", "--strict", f"{W3},actions=drop"),
            "compared with the plan",
            "1 flow entries repaired: modify 'w3 -> island: class rtt-50 of delay'",
        ),
    ],
)
async def test_what_is_changed_by_hand_is_put_right(
    kept: Kept, words: tuple[str, ...], by_hand: str, answer: str
) -> None:
    """By a change of that entry alone: the others are not installed anew, so traffic by them goes on."""
    verb, bridge, *arguments = words
    await asyncio.sleep(0.5)  # then an entry that is installed anew is younger than it was
    before = kept.ages(bridge)
    kept.switches.ofctl(verb, bridge, *arguments)
    note = await kept.answer("repaired")
    assert note == f"sw-w1 {by_hand}; {answer}"
    after = kept.ages(bridge)
    assert after.keys() == before.keys()
    assert sum(after[match] < before[match] for match in before) == (0 if verb == "add-flow" else 1)


async def test_a_switch_that_reboots_gets_its_entries_back(kept: Kept, demo: tuple[Network, Plan]) -> None:
    """Its connection breaks and its table is empty when it comes back; the reason is told, and how long it was away."""
    wanted = sum(entry.switch == "sw-c" for entry in demo[1].flows)
    kept.switches.connect(NOBODY, "br3")
    await kept.answer("sw-c lost its control channel; it keeps forwarding")
    kept.switches.ofctl("del-flows", "br3")
    kept.switches.connect(kept.port, "br3")
    note = await kept.answer("sw-c connected again after")
    assert f"; {wanted} flow entries repaired: add '" in note
    assert len(kept.ages("br3")) == wanted


async def test_in_band_control_comes_back_before_the_first_plan(switches: Switches, demo: tuple[Network, Plan]) -> None:
    """Hosts are reached by it: after a reboot of a switch, and after the controller has died; other entries stay."""
    control = Control(IPv4Network("192.168.10.0/24"), PortRef("sw-w1", 40), arp=True)
    hosts = (
        replace(each, control=IPv4Address("192.168.10.31")) if each.name == "i1" else each for each in demo[0].hosts
    )
    network = replace(demo[0], control=control, hosts=tuple(hosts))
    wanted = Counter(entry.switch for entry in control_entries(network))
    assert wanted["sw-c"] > 0
    switches.clear()
    kept = Kept(switches, network)
    await kept.start(None)
    try:
        switches.connect(NOBODY, "br3")
        await kept.answer("sw-c lost its control channel")
        switches.ofctl("add-flow", "br3", "priority=5,actions=drop")
        switches.connect(kept.port, "br3")
        note = await kept.answer("sw-c connected again after")
        assert f"; {wanted['sw-c']} flow entries repaired: add '" in note
        assert len(kept.ages("br3")) == wanted["sw-c"] + 1
        kill(kept.reconciler.controller)
        note = await kept.answer("controller restarted")
        others = wanted.total() - wanted["sw-c"]
        assert note.startswith(f"controller restarted; {others} flow entries repaired: add '")
        assert len(kept.ages("br4")) == wanted["sw-i"]
    finally:
        await kept.stop()


async def test_a_channel_that_broke_for_a_moment_changes_nothing(kept: Kept) -> None:
    """The table was kept (fail-secure), so nothing is installed anew."""
    await asyncio.sleep(0.3)
    before = kept.ages("br3")
    kept.switches.connect(NOBODY, "br3")
    await kept.answer("sw-c lost")
    assert kept.ages("br3").keys() == before.keys()
    kept.switches.connect(kept.port, "br3")
    assert (await kept.answer("sw-c connected again")).endswith("; no differences")
    after = kept.ages("br3")
    assert all(after[match] >= before[match] for match in before)


async def test_a_flapping_channel_is_left_alone_until_it_holds(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said once; the table is put right as soon as the channel has held for a while."""
    monkeypatch.setattr(reconciler, "_STABLE_S", 0.5)
    monkeypatch.setattr(reconciler, "_COUNT_INTERVAL_S", 100.0)
    for number in range(5):
        kept.switches.connect(NOBODY, "br3")
        async with asyncio.timeout(LIMIT_S):
            while kept.reconciler.controller.switches[3].up:  # noqa: ASYNC110 - it is set by the client's reader
                await asyncio.sleep(0.02)
        if number == 4:
            kept.switches.ofctl("del-flows", "br3", "in_port=3")
        kept.switches.connect(kept.port, "br3")
        await kept.reconciler.controller.wait_for([3], CONNECT_S)
    await kept.answer("; 1 flow entries repaired: add")
    assert sum("flaps" in note for note in kept.notes) == 1
    assert sum("lost its control channel" in note for note in kept.notes) == 3


async def test_a_controller_that_is_killed_is_replaced(kept: Kept) -> None:
    """What was removed while there was none is put back, and nothing else is touched."""
    await asyncio.sleep(0.3)
    before = kept.ages("br1")
    kill(kept.reconciler.controller)
    await kept.answer("the controller died")
    kept.switches.ofctl("del-flows", "br1", "--strict", W3)
    note = await kept.answer("controller restarted")
    assert note == "controller restarted; 1 flow entries repaired: add 'w3 -> island: class rtt-50 of delay'"
    await asyncio.wait_for(kept.reconciler.wait_until_settled(), LIMIT_S)
    after = kept.ages("br1")
    assert sum(after[match] < before[match] for match in before) == 1


async def test_a_switch_that_cannot_speak_1_3_is_told_what_to_do(kept: Kept) -> None:
    """One clear line, said once."""
    database = f"--db=unix:{kept.switches.environment['OVS_RUNDIR']}/db.sock"
    kept.switches.run("ovs-vsctl", database, "set", "bridge", "br4", "protocols=OpenFlow10")
    try:
        note = await kept.answer("only OpenFlow 1.0")
        assert note.startswith("a switch: a switch at 127.0.0.1 speaks only OpenFlow 1.0, but 1.3 is needed; ")
        assert "protocols=OpenFlow13" in note
    finally:
        kept.switches.run("ovs-vsctl", database, "set", "bridge", "br4", "protocols=OpenFlow13")
        await kept.reconciler.controller.wait_for([4], CONNECT_S)
    assert sum("OpenFlow 1.0" in note for note in kept.notes) == 1
