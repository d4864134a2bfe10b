# SPDX-License-Identifier: Apache-2.0
"""Switches in memory, behind the controller's interface: every flow-mod is looked at, and any of them may go wrong."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from atoll_controller.openflow.controller_client import Controller, OnProgress
from atoll_core.errors import LabError
from atoll_core.lab.network import Network
from atoll_core.plan.flow_entry import FlowEntry, Match, UnmanagedEntry
from atoll_core.plan.switch_features import SwitchDescription, SwitchFeatures, TableFeatures, UnmanagedState
from atoll_switches.capability_profile import profile

_Identity = tuple[int, Match]

OVS = profile("ovs")


@dataclass
class Fault:
    """What goes wrong at a flow-mod: it is refused or ignored, its switch or the controller goes away, or any call."""

    kind: str  # refused, ignored, switch, controller, call
    at: int  # flow-mods from 0
    away: int = 7  # requests that fail until what went away is back
    call: Callable[[], None] | None = None


class MemorySwitches(Controller):
    """The switches of a network. ``look`` is called after every flow-mod; ``log`` has them, True for what came.

    ``room``: how many entries each table takes, 0 for any number. ``late``: switches that acknowledge and tell entries
    which they do not forward by before ``follow``.
    """

    def __init__(self, network: Network, look: Callable[[], None], late: Collection[str] = (), room: int = 0) -> None:
        self._room = room
        self.tables: dict[str, dict[_Identity, FlowEntry]] = {switch.name: {} for switch in network.switches}
        self._hardware: dict[str, dict[_Identity, FlowEntry]] = {name: {} for name in self.tables}
        self._late = late
        self._waiting: list[tuple[FlowEntry, bool]] = []
        self.sent = 0
        self.log: list[tuple[bool, FlowEntry]] = []
        self.on_event = None
        self._closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._names = {switch.dpid: switch.name for switch in network.switches}
        self._look = look
        self._fault: Fault | None = None
        self._away: tuple[str | None, int] = None, 0  # which switch (None: all), for how many more requests

    def arm(self, fault: Fault | None) -> None:
        """Let this go wrong; flow-mods are counted from now on."""
        self._fault, self.sent = fault, 0

    @property
    def entries(self) -> tuple[FlowEntry, ...]:
        """What all of them hold, as they tell it."""
        return tuple(entry for table in self.tables.values() for entry in table.values())

    @property
    def forwarding(self) -> tuple[FlowEntry, ...]:
        """What all of them forward by."""
        return tuple(entry for table in self._hardware.values() for entry in table.values())

    def follow(self) -> None:
        """Bring what the late ones forward by to what they hold, one flow-mod after the other."""
        while self._waiting:
            entry, come = self._waiting.pop(0)
            self._put(self._hardware, entry, come=come)
            self._look()

    async def features(self, dpid: int) -> SwitchFeatures:
        await self._reach(dpid)
        takes = TableFeatures(0, 0, "", self._room, tuple(sorted(OVS.matches)), (), tuple(sorted(OVS.actions)))
        return SwitchFeatures(SwitchDescription("", "", "", "", ""), (takes,) if self._room else ())

    async def leftovers(self, dpid: int) -> UnmanagedState:
        await self._reach(dpid)
        return UnmanagedState((), ())

    async def read(self, dpid: int, switch_name: str, table: int = 0) -> tuple[FlowEntry | UnmanagedEntry, ...]:
        await self._reach(dpid)
        return tuple(replace(entry, why="") for entry in self.tables[switch_name].values())

    async def has_exactly(self, dpid: int, entries: Iterable[FlowEntry], table: int = 0) -> bool:
        await self._reach(dpid)
        return {_essence(entry) for entry in entries} == set(map(_essence, self.tables[self._names[dpid]].values()))

    async def change(
        self,
        dpid: int,
        delete: Iterable[FlowEntry | UnmanagedEntry],
        add: Iterable[FlowEntry],
        table: int = 0,
        progress: OnProgress | None = None,
    ) -> None:
        await self._reach(dpid)
        refused: FlowEntry | None = None
        changes = [(entry, False) for entry in delete if isinstance(entry, FlowEntry)]
        for entry, come in [*changes, *((entry, True) for entry in add)]:
            fault, self.sent = self._fault, self.sent + 1
            hit = fault is not None and fault.at == self.sent - 1
            if fault is not None and hit:
                if fault.kind in ("switch", "controller"):
                    self._away = (self._names[dpid] if fault.kind == "switch" else None), fault.away
                    await self._reach(dpid)
                elif fault.kind == "refused":
                    refused = entry
                elif fault.call is not None:
                    fault.call()
            if come and self._is_full(entry):
                refused = entry
            elif not hit or (fault is not None and fault.kind == "call"):
                self._carry_out(entry, come=come)
            self.log.append((come, entry))
            await asyncio.sleep(0)
        if refused is not None:
            raise LabError(f"switch {dpid} refused {refused}")

    def _is_full(self, entry: FlowEntry) -> bool:
        held = self.tables[entry.switch]
        return 0 < self._room <= len(held) and (entry.priority, entry.match) not in held

    def _carry_out(self, entry: FlowEntry, *, come: bool) -> None:
        self._put(self.tables, entry, come=come)
        if entry.switch in self._late:
            self._waiting.append((entry, come))
        else:
            self._put(self._hardware, entry, come=come)
        self._look()

    def _put(self, tables: dict[str, dict[_Identity, FlowEntry]], entry: FlowEntry, *, come: bool) -> None:
        if come:
            tables[entry.switch][entry.priority, entry.match] = entry
        else:
            tables[entry.switch].pop((entry.priority, entry.match), None)

    async def _reach(self, dpid: int) -> None:
        await asyncio.sleep(0)
        name, left = self._away
        if left and name in (None, self._names[dpid]):
            self._away = name, left - 1
            raise LabError("the controller is gone" if name is None else f"switch {dpid} is not connected")


def _essence(entry: FlowEntry) -> FlowEntry:
    return replace(entry, why="")
