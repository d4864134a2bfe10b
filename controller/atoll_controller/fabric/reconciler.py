# SPDX-License-Identifier: Apache-2.0
"""Keeping the switches at the plan: whatever happens to them or to the controller is noticed, told and repaired.

    what happens                                   how it is noticed               what is done
    the controller process dies                    its end                         a new one; the tables compared of
                                                                                   the switches that come back to it
    a switch reboots, its channel breaks           its connection                  its table compared once it is back
    entries deleted or added behind our back       their number, every 5 s         that switch's table compared
    entries changed behind our back                every table read, every 30 s    that switch's table compared

A repair is the smallest change that leads back to the plan: entries that are as they should be are not touched, nor the
traffic they carry. Meanwhile switches forward by what they hold (fail-secure). While a swap is under way
(``swapping``) the plan is that of the stage it has come to.
"""

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from atoll_controller.fabric.flow_installer import Verify, apply_flows, require_room, table_of
from atoll_controller.fabric.recent_deletions import Deletions
from atoll_controller.fabric.unmanaged_state import clear_unmanaged_state
from atoll_controller.openflow.client import Controller
from atoll_controller.planner.diff import ChangeAction, FlowChange
from atoll_core.errors import LabError
from atoll_core.lab.network import Network, Switch
from atoll_core.plan.flow_entry import FlowEntry, UnmanagedEntry
from atoll_core.plan.plan import Plan

# A controller that cannot stay up is a fault to report, not to hide by restarting for ever.
_RESTARTS = 3
_RESTART_WINDOW_S = 60.0

_COUNT_EVERY_S = 5.0
_READ_EVERY = 6  # counts: 30 s

# A channel that breaks this often is left alone until it has held for a while: each repair would be cut off half-way.
_FLAPS = 3
_FLAP_WINDOW_S = 60.0
_CALM_S = 5.0

_CHANGES_TOLD = 3

_BACK_WITHIN_S = 20.0  # a switch that was there when the controller died, with the longest back-off of Open vSwitch

_AGAIN_S = 1.0  # after which a state that could not be reached is tried again, though nothing seems to have come back

Note = Callable[[str], None]
OnSwitch = Callable[[str, bool], None]


@dataclass(slots=True)
class _Channel:
    """What is remembered of one switch's connection."""

    up: bool = True
    lost_s: float = 0.0  # when it was lost last
    losses: deque[float] = field(default_factory=deque[float])
    repair: asyncio.Task[None] | None = None


class Reconciler:
    """The switches of a lab and the plan they are kept at. ``run`` keeps them; ``apply`` gives them another plan.

    ``start``: makes a controller that switches can connect to. ``note``: takes a line about what was done, and why.
    ``on_switch``: called for each switch that goes or comes, with its name and whether it is there.
    """

    def __init__(
        self,
        controller: Controller,
        network: Network,
        start: Callable[[], Awaitable[Controller]],
        note: Note,
        on_switch: OnSwitch | None = None,
    ) -> None:
        self.controller = controller
        self.plan: Plan | None = None
        self._network = network
        self._start = start
        self._note = note
        self._on_switch = on_switch
        self._deletions = Deletions(network)
        self._changing = asyncio.Lock()
        self._channels = {switch.dpid: _Channel() for switch in network.switches}
        self._restarts: deque[float] = deque()
        self._settled = asyncio.Event()
        self._settled.set()
        self._stir = asyncio.Event()
        self._broken: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        controller.on_event = self._take

    async def apply(self, plan: Plan, *, dry_run: bool = False, verify: Verify | None = None) -> tuple[FlowChange, ...]:
        """Bring the switches to a plan at once and keep them there; as ``apply_flows``."""
        async with self._changing:
            if dry_run:
                return await apply_flows(self.controller, self._network, plan, dry_run, former=self.plan)
            changes = await self._bring(plan, verify=verify, former=self.plan)
            for line in await clear_unmanaged_state(self.controller, self._network):
                self._note(line)
            self.plan = plan
        return changes

    async def hold(self, plan: Plan, otherwise: Plan) -> None:
        """Bring all switches to a plan and keep them there. Raises LabError: they are kept at ``otherwise`` then."""
        async with self._changing:
            self.plan = plan
            try:
                await self._bring(plan)
            except BaseException:
                self.plan = otherwise
                raise

    async def _bring(self, plan: Plan, **how: Any) -> tuple[FlowChange, ...]:
        """``apply_flows``, of which it is remembered what was deleted."""
        deleted: Iterable[FlowEntry | UnmanagedEntry] = plan.flows  # if it fails: what has come goes again
        try:
            changes = await apply_flows(self.controller, self._network, plan, note=self._note, **how)
            deleted = [change.entry for change in changes if change.action is ChangeAction.DELETE]
            return changes
        finally:
            self._deletions.remember(deleted)

    def lag_s(self, entries: Iterable[FlowEntry]) -> float:
        """How long a switch may still forward by one of these as it was before it was deleted."""
        return self._deletions.wait_s(entries)

    async def require_room(self, plans: Sequence[Plan]) -> None:
        """Raise LabError naming the first switch whose table cannot hold one of the plans."""
        for plan in plans:
            what = "with the old version beside the new one, the plan"
            remedy = "if packets may be lost, use `atoll apply EXPERIMENT --immediate`"
            await require_room(self.controller, self._network.switches, plan.flows, what, remedy)

    async def stirred(self) -> None:
        """Wait until a switch or the controller has come back, but not for long."""
        self._stir.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_AGAIN_S):
                await self._stir.wait()

    async def settled(self) -> None:
        """Wait until the controller, if it was being restarted, has repaired the switches."""
        await self._settled.wait()

    async def run(self) -> str:
        """Keep the switches at the plan; returns, with the reason, when that is not possible any more.

        Raises any unexpected error of one of its parts: the switches are not kept at the plan any more then.
        """
        parts = [asyncio.create_task(self._replace_controllers()), asyncio.create_task(self._look_now_and_then())]
        try:
            ended, _ = await asyncio.wait([*parts, self._broken], return_when=asyncio.FIRST_COMPLETED)
            return ended.pop().result()
        finally:
            for part in parts:
                part.cancel()
            for channel in self._channels.values():
                if channel.repair is not None:
                    channel.repair.cancel()

    async def _replace_controllers(self) -> str:
        """Start a controller whenever one has ended; returns the reason for not doing so any more."""
        while True:
            await self.controller.closed
            self._settled.clear()
            now = time.monotonic()
            self._restarts.append(now)
            if _within(self._restarts, now, _RESTART_WINDOW_S) > _RESTARTS:
                return f"the controller ended {len(self._restarts)} times within {_RESTART_WINDOW_S:g} s"
            self._note("the controller died: starting it again; the switches keep forwarding")
            try:
                self.controller = await self._start()
            except LabError as error:
                return f"the controller could not be restarted: {error}"
            await self._return()
            self._settled.set()
            self._stir.set()

    async def _return(self) -> None:
        """Wait for the switches that the last controller had, and repair those that come; others when they come."""
        controller = self.controller
        with contextlib.suppress(LabError):  # some stay away, or it has ended, too
            await controller.wait_for((dpid for dpid, channel in self._channels.items() if channel.up), _BACK_WITHIN_S)
        present = {dpid for dpid, state in controller.switches.items() if state.up}
        controller.on_event = self._take
        for dpid, channel in self._channels.items():
            if (dpid in present) != channel.up:
                self._take({"type": "switch", "dpid": dpid, "state": "up" if dpid in present else "down"})
                channel.lost_s = min(channel.lost_s, self._restarts[-1])
        names = [switch.name for switch in self._network.switches if switch.dpid in present]
        away = [switch.name for switch in self._network.switches if switch.dpid not in present]
        without = f" without {', '.join(away)}" if away else ""
        try:
            async with self._changing:
                changes: tuple[FlowChange, ...] = ()
                if self.plan is not None:
                    changes = await self._bring(self.plan, only=names)
        except LabError as error:
            self._note(f"controller restarted{without}, but the switches could not be repaired: {error}")
            return
        self._note(f"controller restarted{without}; {_told(changes)}")

    # Switches that go and come

    def _take(self, event: dict[str, Any]) -> None:
        """An event of the controller."""
        if event["type"] == "error":
            self._note(f"{self._name(event['dpid'])}: {event['message']}")
        channel = self._channels.get(event.get("dpid") or 0)
        if event["type"] != "switch" or channel is None:
            return
        now = time.monotonic()
        name = self._name(event["dpid"])
        if self._on_switch is not None:
            self._on_switch(name, event["state"] == "up")
        if channel.repair is not None:
            channel.repair.cancel()
            channel.repair = None
        if event["state"] == "down":
            channel.up = False
            channel.lost_s = now
            channel.losses.append(now)
            losses = _within(channel.losses, now, _FLAP_WINDOW_S)
            if losses <= _FLAPS:
                self._note(f"{name} lost its control channel; it goes on forwarding by what it holds")
            elif losses == _FLAPS + 1:
                self._note(f"{name}: its control channel flaps; it is looked at when it has held for {_CALM_S:g} s")
            return
        self._stir.set()
        away_s = 0.0 if channel.up else now - channel.lost_s
        channel.up = True
        wait_s = _CALM_S if _within(channel.losses, now, _FLAP_WINDOW_S) > _FLAPS else 0.0
        channel.repair = asyncio.create_task(self._repair_returned(event["dpid"], away_s, wait_s))
        channel.repair.add_done_callback(self._repaired)

    async def _repair_returned(self, dpid: int, away_s: float, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        switch = next(switch for switch in self._network.switches if switch.dpid == dpid)
        await self._repair(switch, f"connected again after {away_s:.1f} s", tell_nothing=True)

    def _repaired(self, repair: "asyncio.Task[None]") -> None:
        error = None if repair.cancelled() else repair.exception()
        if error is not None and not self._broken.done():
            self._broken.set_exception(error)

    def _name(self, dpid: int | None) -> str:
        for switch in self._network.switches:
            if switch.dpid == dpid:
                return switch.name
        return "a switch" if dpid is None else f"a switch of datapath id {dpid}, which lab.yaml does not have"

    # What happens behind our back

    async def _look_now_and_then(self) -> str:
        looks = 0
        while True:
            await asyncio.sleep(_COUNT_EVERY_S)
            looks += 1
            for switch in self._network.switches:
                if self.plan is None or not self._channels[switch.dpid].up or self._changing.locked():
                    continue
                if not self._settled.is_set():  # the switches are coming back to a new controller
                    continue
                with contextlib.suppress(LabError):  # it, or the controller, is just going: that is noticed elsewhere
                    if looks % _READ_EVERY == 0:
                        await self._repair(switch, "compared with the plan", tell_nothing=False)
                    elif reason := await self._wrong_number(switch, self.plan):
                        await self._repair(switch, reason, tell_nothing=False)

    async def _wrong_number(self, switch: Switch, plan: Plan) -> str | None:
        held = await self.controller.count(switch.dpid, await table_of(self.controller, switch))
        wanted = Counter(entry.switch for entry in plan.flows)[switch.name]
        return None if held == wanted else f"holds {held} entries where the plan has {wanted}"

    async def _repair(self, switch: Switch, reason: str, *, tell_nothing: bool) -> None:
        try:
            async with self._changing:
                if self.plan is None:
                    return
                changes = await self._bring(self.plan, only={switch.name})
        except LabError as error:
            self._note(f"{switch.name} {reason}, but could not be repaired: {error}")
            return
        if changes or tell_nothing:
            self._note(f"{switch.name} {reason}; {_told(changes)}")


def _within(moments: deque[float], now: float, window_s: float) -> int:
    """How many moments lie within the window before now; older ones are forgotten."""
    while moments and now - moments[0] >= window_s:
        moments.popleft()
    return len(moments)


def _told(changes: tuple[FlowChange, ...]) -> str:
    if not changes:
        return "nothing was amiss"
    first = ", ".join(f"{change.action} '{change.entry.why or change.entry}'" for change in changes[:_CHANGES_TOLD])
    more = f" and {len(changes) - _CHANGES_TOLD} more" if len(changes) > _CHANGES_TOLD else ""
    return f"{len(changes)} flow entries repaired: {first}{more}"
