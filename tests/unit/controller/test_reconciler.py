# SPDX-License-Identifier: Apache-2.0
"""What the reconciler does when the controller ends and when something happens that nobody has foreseen."""

import asyncio
from collections.abc import Collection
from types import SimpleNamespace

import pytest

from atoll_controller.fabric import reconciler
from atoll_controller.fabric.reconciler import Reconciler
from atoll_controller.openflow.controller_client import SwitchState
from atoll_controller.planner.planner import make_plan
from atoll_core.errors import LabError
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import Note, SwitchConnection
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Plan
from atoll_core.plan.switch_features import Runtime
from atoll_testbed.testbed import Testbed
from tests.support.labs import experiment
from tests.support.memory_switches import MemorySwitches
from tests.unit.controller.test_swap_executor import laboratory

LIMIT_S = 60.0


class Controllers(MemorySwitches):
    """A controller process in memory, which can end, with the switches that have come to it."""

    def __init__(self, network: Network, there: Collection[int]) -> None:
        super().__init__(network, lambda: None)
        self.switches = {dpid: SwitchState(dpid, up=True) for dpid in there}
        self._closed = asyncio.get_running_loop().create_future()
        self._switch_change = asyncio.Condition()
        self.runtime = "os-ken"

    def die(self) -> None:
        """The process ends."""
        self._closed.set_result("it ended with signal 9")

    async def count(self, dpid: int, table: int = 0) -> int:
        await self._reach(dpid)
        return len(self.tables[self._names[dpid]])

    async def close(self) -> None:
        """Nothing to end."""

    async def _reach(self, dpid: int) -> None:
        await super()._reach(dpid)
        if dpid not in self.switches or not self.switches[dpid].up:
            raise LabError(f"switch {dpid} is not connected")


class Lab:
    """Two switches kept at a plan; ``next`` is the controller that replaces one that has ended."""

    def __init__(self) -> None:
        self.network = laboratory()
        self.plan: Plan = make_plan(self.network, experiment(self.network, ("b0", "b1", "t0")))
        self.notes: list[str] = []
        self.seen: list[SwitchConnection] = []
        self.controller = Controllers(self.network, (1, 2))
        self.next = self.controller
        events = EventBus()
        events.subscribe(lambda note: self.notes.append(note.message), Note)
        events.subscribe(self.seen.append, SwitchConnection)
        self.reconciler = Reconciler(self.controller, self.network, self.start, events)

    async def start(self) -> Controllers:
        return self.next

    async def answer(self, words: str) -> str:
        """The first note with these words."""
        async with asyncio.timeout(LIMIT_S):
            while not (found := [note for note in self.notes if words in note]):  # noqa: ASYNC110 - as a user would
                await asyncio.sleep(0.01)
        return found[0]


def tell(controller: Controllers, dpid: int, state: str) -> None:
    """Have the controller say that a switch has come or gone."""
    assert controller.on_event is not None
    controller.on_event({"type": "switch", "dpid": dpid, "state": state, "tables": 1, "ports": {}})


@pytest.mark.parametrize("known", [True, False], ids=["away before", "away since"])
async def test_a_controller_is_replaced_while_a_switch_is_away(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The switches that are there are repaired at once, the other one when it comes; the lab goes on."""
    monkeypatch.setattr(reconciler, "_RECONNECT_S", 0.1)
    lab = Lab()
    await lab.reconciler.apply(lab.plan)
    running = asyncio.create_task(lab.reconciler.run())
    await asyncio.sleep(0)
    if known:
        tell(lab.controller, 2, "down")
    lab.next = Controllers(lab.network, (1,))
    lab.next.tables = lab.controller.tables
    missing = {name: table.popitem()[1] for name, table in lab.next.tables.items()}
    lab.controller.die()
    note = await lab.answer("controller restarted")
    assert note == f"controller restarted; not connected: sw-2; 1 flow entries repaired: add '{missing['sw-1'].why}'"
    await asyncio.wait_for(lab.reconciler.wait_until_settled(), LIMIT_S)
    assert SwitchConnection("sw-2", "down") in lab.seen
    lab.next.switches[2] = SwitchState(2, up=True)
    tell(lab.next, 2, "up")
    assert (await lab.answer("sw-2 connected again")).endswith(f"1 flow entries repaired: add '{missing['sw-2'].why}'")
    assert set(lab.next.entries) == set(lab.plan.flows)
    assert not running.done()
    running.cancel()


@pytest.mark.parametrize("where", ["count", "features", "repair"])
async def test_an_unforeseen_error_fails_the_testbed(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever part of the watching it ends: a lab that nobody watches must not look as if it were kept."""
    monkeypatch.setattr(reconciler, "_COUNT_INTERVAL_S", 0.01)
    lab = Lab()
    place = SimpleNamespace(network=lab.network, failed=asyncio.get_running_loop().create_future(), name="memory")
    testbed = Testbed(place, lab.controller, Runtime.OS_KEN)  # type: ignore[arg-type]
    await testbed._switches.apply(lab.plan)

    async def unforeseen(*_: object) -> None:
        raise KeyError("nobody has thought of this")

    if where == "repair":
        monkeypatch.setattr(lab.controller, "has_exactly", unforeseen)
        monkeypatch.setattr(lab.controller, "read", unforeseen)
        monkeypatch.setattr(reconciler, "_COUNT_INTERVAL_S", 100.0)
        tell(lab.controller, 2, "down")
        tell(lab.controller, 2, "up")
    else:
        monkeypatch.setattr(lab.controller, where, unforeseen)
    reason = await asyncio.wait_for(asyncio.shield(testbed.failed), LIMIT_S)
    assert reason == "internal error: the lab is no longer monitored: KeyError: 'nobody has thought of this'"
