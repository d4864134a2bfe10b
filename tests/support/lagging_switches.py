# SPDX-License-Identifier: Apache-2.0
"""Switches whose data plane follows their barriers late, as hardware's does: a controller that holds flow-mods back.

It acknowledges a change at once and tells the tables as if it had been made; the switch gets it ``LAGS_S`` later, in
order.
"""

import asyncio
import contextlib
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from atoll_controller.openflow.controller_client import Controller, OnProgress
from atoll_core.errors import LabError
from atoll_core.plan.flow_entry import FlowEntry, Match, UnmanagedEntry

LAGS_S: defaultdict[int, float] = defaultdict(float)
"""By datapath id, of changes from now on."""


@dataclass(frozen=True)
class _Change:
    due_s: float
    delete: tuple[FlowEntry | UnmanagedEntry, ...]
    add: tuple[FlowEntry, ...]
    table: int


class LaggingController(Controller):
    """A controller as any other, but for that."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__(process)
        self._waiting: defaultdict[int, deque[_Change]] = defaultdict(deque)
        self._told: dict[int, dict[tuple[int, Match], FlowEntry]] = {}
        self._following: dict[int, asyncio.Task[None]] = {}

    async def change(
        self,
        dpid: int,
        delete: Iterable[FlowEntry | UnmanagedEntry],
        add: Iterable[FlowEntry],
        table: int = 0,
        progress: OnProgress | None = None,
    ) -> None:
        """Acknowledged at once, made when the lag has passed."""
        change = _Change(self._due_s(dpid), tuple(delete), tuple(add), table)
        if not self._waiting[dpid]:
            if not LAGS_S[dpid]:
                return await super().change(dpid, change.delete, change.add, table)
            held = await super().read(dpid, change.add[0].switch if change.add else change.delete[0].switch, table)
            self._told[dpid] = {(each.priority, each.match): each for each in held if isinstance(each, FlowEntry)}
        for entry in change.delete:
            if isinstance(entry, FlowEntry):
                self._told[dpid].pop((entry.priority, entry.match), None)
        self._told[dpid] |= {(each.priority, each.match): replace(each, why="") for each in change.add}
        self._waiting[dpid].append(change)
        if len(self._waiting[dpid]) == 1:
            self._following[dpid] = asyncio.create_task(self._follow(dpid))
        return None

    async def read(self, dpid: int, switch_name: str, table: int = 0) -> tuple[FlowEntry | UnmanagedEntry, ...]:
        """As if all had been made."""
        if self._waiting[dpid]:
            return tuple(self._told[dpid].values())
        return await super().read(dpid, switch_name, table)

    async def has_exactly(self, dpid: int, entries: Iterable[FlowEntry], table: int = 0) -> bool:
        """As if all had been made."""
        if self._waiting[dpid]:
            return {replace(each, why="") for each in entries} == set(self._told[dpid].values())
        return await super().has_exactly(dpid, entries, table)

    async def count(self, dpid: int, table: int = 0) -> int:
        """As if all had been made."""
        return len(self._told[dpid]) if self._waiting[dpid] else await super().count(dpid, table)

    async def followed(self) -> None:
        """Wait until all has been made."""
        await asyncio.gather(*self._following.values())

    def _due_s(self, dpid: int) -> float:
        due_s = asyncio.get_running_loop().time() + LAGS_S[dpid]
        return max(due_s, self._waiting[dpid][-1].due_s) if self._waiting[dpid] else due_s

    async def _follow(self, dpid: int) -> None:
        waiting = self._waiting[dpid]
        while waiting:
            await asyncio.sleep(waiting[0].due_s - asyncio.get_running_loop().time())
            with contextlib.suppress(LabError):  # the controller is gone, and with it the trial
                await super().change(dpid, waiting[0].delete, waiting[0].add, waiting[0].table)
            waiting.popleft()
