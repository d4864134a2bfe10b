# SPDX-License-Identifier: Apache-2.0
"""Keep the switches at the plan: detect, report and repair deviations.

    event                                   detected by                     reaction
    the controller process ends             its end                         start a new one; compare the tables of the
                                                                            switches that reconnect
    a switch reboots, its channel breaks    its connection                  compare its table once it is back
    entries deleted or added by others      their number, every 5 s         compare that switch's table
    entries changed by others               every table read, every 30 s    compare that switch's table

A repair is the smallest change that leads back to the plan: correct entries and their traffic are not touched.
Meanwhile switches forward by their tables (fail-secure). During a swap the plan is that of its present stage. Before
the first plan, switches that come back get the entries of in-band control, as hosts are reached by them.
"""

import asyncio
import contextlib
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from atoll_controller.fabric.flow_installer import Verify, apply_flows, install_control, require_room, table_of
from atoll_controller.openflow.controller_client import Controller
from atoll_controller.planner.entry_diff import ChangeAction, FlowChange
from atoll_core.errors import LabError
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import Note, Progress, SwitchConnection
from atoll_core.lab.network import Network, Switch
from atoll_core.plan.flow_entry import FlowEntry, Match, UnmanagedEntry
from atoll_core.plan.plan import Plan
from atoll_core.plan.switch_features import UnmanagedState
from atoll_core.plural import first_of
from atoll_switches.capability_profile import profile


class Deletions:
    """Deleted entries by which a switch may still forward. ``clock``: in seconds.

    A data plane may be seconds behind the barriers of its switch (``Profile.lag_s``). An entry that is added again
    within that time cannot be proven: probes pass by the old one, and packets are lost between the two (docs/swaps.md).
    """

    def __init__(self, network: Network, clock: Callable[[], float] = time.monotonic) -> None:
        self._lags_s = {switch.name: profile(switch.driver).lag_s for switch in network.switches}
        self._clock = clock
        self._removed_s: dict[tuple[str, Match], float] = {}  # when the data plane has certainly removed the entry

    def record(self, entries: Iterable[FlowEntry | UnmanagedEntry]) -> None:
        """Note entries that were deleted; drop entries forward no probe and are ignored."""
        now = self._clock()
        self._removed_s = {key: removed_s for key, removed_s in self._removed_s.items() if removed_s > now}
        for entry in entries:
            if isinstance(entry, FlowEntry) and entry.actions and self._lags_s[entry.switch]:
                self._removed_s[entry.switch, entry.match] = now + self._lags_s[entry.switch]

    def wait_s(self, entries: Iterable[FlowEntry]) -> float:
        """The time until no switch forwards by a deleted version of these entries."""
        removed_s = (self._removed_s.get((entry.switch, entry.match), 0.0) for entry in entries)
        return max(0.0, max(removed_s, default=0.0) - self._clock())


# A controller that cannot stay up is a fault to report, not to hide by restarting forever.
_MAX_RESTARTS = 3
_RESTART_WINDOW_S = 60.0

_COUNT_INTERVAL_S = 5.0
_COUNTS_PER_READ = 6  # counts: 30 s

# A channel that breaks this often is left alone until it has been stable for a while: repairs would be interrupted.
_MAX_FLAPS = 3
_FLAP_WINDOW_S = 60.0
_STABLE_S = 5.0

_MAX_NAMED = 3

_RECONNECT_S = 20.0  # a switch that was there when the controller died, with the longest back-off of Open vSwitch

_RETRY_S = 1.0  # after which a state that could not be reached is tried again, without any event


@dataclass(slots=True)
class _Channel:
    """The state of one switch's connection."""

    up: bool = True
    lost_s: float = 0.0  # when it was lost last
    losses: deque[float] = field(default_factory=deque[float])
    repair: asyncio.Task[None] | None = None


class Reconciler:
    """The switches of a lab and the plan they are kept at. ``run`` keeps them; ``apply`` gives them another plan.

    ``start``: starts a controller. ``events``: takes a note about each action, with its reason, and each switch that
    connects or disconnects.
    """

    def __init__(
        self, controller: Controller, network: Network, start: Callable[[], Awaitable[Controller]], events: EventBus
    ) -> None:
        self.controller = controller
        self.plan: Plan | None = None
        self._network = network
        self._start = start
        self._events = events
        self._deletions = Deletions(network)
        self._change_lock = asyncio.Lock()
        self._channels = {switch.dpid: _Channel() for switch in network.switches}
        self._restarts: deque[float] = deque()
        self._settled = asyncio.Event()
        self._settled.set()
        self._recovered = asyncio.Event()
        self._failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        controller.on_event = self._on_event

    async def apply(self, plan: Plan, *, dry_run: bool = False, verify: Verify | None = None) -> tuple[FlowChange, ...]:
        """Bring the switches to a plan at once and keep them there; as ``apply_flows``."""
        async with self._change_lock:
            if dry_run:
                return await apply_flows(self.controller, self._network, plan, dry_run, former=self.plan)
            changes = await self._apply(plan, verify=verify, former=self.plan)
            for line in await clear_unmanaged_state(self.controller, self._network):
                self._note(line)
            self.plan = plan
        return changes

    async def hold(self, plan: Plan, fallback: Plan) -> None:
        """Bring all switches to a plan and keep them there. Raises LabError: they are kept at ``fallback`` then."""
        async with self._change_lock:
            self.plan = plan
            try:
                await self._apply(plan)
            except BaseException:
                self.plan = fallback
                raise

    async def _apply(self, plan: Plan, **options: Any) -> tuple[FlowChange, ...]:
        """``apply_flows``, and note the deleted entries."""
        deleted: Iterable[FlowEntry | UnmanagedEntry] = plan.flows  # if it fails, new entries are deleted again
        try:
            options |= {"note": self._note, "progress": self._publish_progress}
            changes = await apply_flows(self.controller, self._network, plan, **options)
            deleted = [change.entry for change in changes if change.action is ChangeAction.DELETE]
            return changes
        finally:
            self._deletions.record(deleted)

    async def _restore(self, names: Collection[str]) -> tuple[FlowChange, ...]:
        """Bring these switches to the plan; without one, to the entries of in-band control. Raises LabError."""
        if self.plan is not None:
            return await self._apply(self.plan, only=names)
        if self._network.in_band_hosts:
            return await install_control(self.controller, self._network, names)
        return ()

    def _publish_progress(self, line: str) -> None:
        self._events.publish(Progress(line))

    def lag_s(self, entries: Iterable[FlowEntry]) -> float:
        """The time for which a switch may still forward by a deleted version of these entries."""
        return self._deletions.wait_s(entries)

    async def require_room(self, plans: Sequence[Plan]) -> None:
        """Raise LabError with the first switch whose table is too small for one of the plans."""
        for plan in plans:
            subject = "with the old and the new version together, the plan"
            remedy = "if packets may be lost, use `atoll apply EXPERIMENT --immediate`"
            await require_room(self.controller, self._network.switches, plan.flows, subject, remedy)

    async def wait_for_recovery(self) -> None:
        """Wait until a switch or the controller is back, for a limited time."""
        self._recovered.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RETRY_S):
                await self._recovered.wait()

    async def wait_until_settled(self) -> None:
        """Wait until the controller, if it was being restarted, has repaired the switches."""
        await self._settled.wait()

    async def run(self) -> str:
        """Keep the switches at the plan; return the reason when that is not possible any more.

        Raises any unexpected error of one of its tasks; the switches are not kept at the plan after that.
        """
        tasks = [asyncio.create_task(self._replace_controllers()), asyncio.create_task(self._check_regularly())]
        try:
            ended, _ = await asyncio.wait([*tasks, self._failure], return_when=asyncio.FIRST_COMPLETED)
            return ended.pop().result()
        finally:
            for task in tasks:
                task.cancel()
            for channel in self._channels.values():
                if channel.repair is not None:
                    channel.repair.cancel()

    async def _replace_controllers(self) -> str:
        """Start a controller whenever one has ended; return the reason when it gives up."""
        while True:
            await self.controller.closed
            self._settled.clear()
            now = time.monotonic()
            self._restarts.append(now)
            if _count_recent(self._restarts, now, _RESTART_WINDOW_S) > _MAX_RESTARTS:
                return f"the controller ended {len(self._restarts)} times within {_RESTART_WINDOW_S:g} s"
            self._note("the controller died: restarting it; the switches keep forwarding")
            try:
                self.controller = await self._start()
            except LabError as error:
                return f"the controller could not be restarted: {error}"
            await self._await_switches()
            self._settled.set()
            self._recovered.set()

    async def _await_switches(self) -> None:
        """Wait for the switches of the last controller, and repair those that reconnect; others are repaired later."""
        controller = self.controller
        with contextlib.suppress(LabError):  # some stay away, or it has ended, too
            await controller.wait_for((dpid for dpid, channel in self._channels.items() if channel.up), _RECONNECT_S)
        connected = {dpid for dpid, state in controller.switches.items() if state.up}
        controller.on_event = self._on_event
        for dpid, channel in self._channels.items():
            if (dpid in connected) != channel.up:
                self._on_event({"type": "switch", "dpid": dpid, "state": "up" if dpid in connected else "down"})
                channel.lost_s = min(channel.lost_s, self._restarts[-1])
        names = [switch.name for switch in self._network.switches if switch.dpid in connected]
        missing = [switch.name for switch in self._network.switches if switch.dpid not in connected]
        missing_text = f"; not connected: {', '.join(missing)}" if missing else ""
        try:
            async with self._change_lock:
                changes = await self._restore(names)
        except LabError as error:
            self._note(f"controller restarted{missing_text}; repair of the other switches failed: {error}")
            return
        self._note(f"controller restarted{missing_text}; {_repairs_text(changes)}")

    def _note(self, text: str) -> None:
        """Publish a note. One that cannot be recorded, as on a full disk, goes to the log; it stops no repairs."""
        for error in self._events.publish(Note(text)):
            sys.stderr.write(f"daemon: {text} (not recorded: {error})\n")

    # Switches that disconnect and reconnect

    def _on_event(self, event: dict[str, Any]) -> None:
        """An event of the controller."""
        if event["type"] == "error":
            self._note(f"{self._name(event['dpid'])}: {event['message']}")
        channel = self._channels.get(event.get("dpid") or 0)
        if event["type"] != "switch" or channel is None:
            return
        now = time.monotonic()
        name = self._name(event["dpid"])
        self._events.publish(SwitchConnection(name, event["state"]))
        if channel.repair is not None:
            channel.repair.cancel()
            channel.repair = None
        if event["state"] == "down":
            channel.up = False
            channel.lost_s = now
            channel.losses.append(now)
            losses = _count_recent(channel.losses, now, _FLAP_WINDOW_S)
            if losses <= _MAX_FLAPS:
                self._note(f"{name} lost its control channel; it keeps forwarding with its present flow entries")
            elif losses == _MAX_FLAPS + 1:
                self._note(
                    f"{name}: its control channel flaps; its table is checked after {_STABLE_S:g} s without "
                    "disconnection"
                )
            return
        self._recovered.set()
        downtime_s = 0.0 if channel.up else now - channel.lost_s
        channel.up = True
        wait_s = _STABLE_S if _count_recent(channel.losses, now, _FLAP_WINDOW_S) > _MAX_FLAPS else 0.0
        channel.repair = asyncio.create_task(self._repair_reconnected(event["dpid"], downtime_s, wait_s))
        channel.repair.add_done_callback(self._on_repair_end)

    async def _repair_reconnected(self, dpid: int, downtime_s: float, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        switch = next(switch for switch in self._network.switches if switch.dpid == dpid)
        await self._repair(switch, f"connected again after {downtime_s:.1f} s", always_note=True)

    def _on_repair_end(self, repair: "asyncio.Task[None]") -> None:
        error = None if repair.cancelled() else repair.exception()
        if error is not None and not self._failure.done():
            self._failure.set_exception(error)

    def _name(self, dpid: int | None) -> str:
        for switch in self._network.switches:
            if switch.dpid == dpid:
                return switch.name
        return "a switch" if dpid is None else f"an unknown switch connected: datapath id {dpid} is not in lab.yaml"

    # Changes by others

    async def _check_regularly(self) -> str:
        checks = 0
        while True:
            await asyncio.sleep(_COUNT_INTERVAL_S)
            checks += 1
            for switch in self._network.switches:
                if self.plan is None or not self._channels[switch.dpid].up or self._change_lock.locked():
                    continue
                if not self._settled.is_set():  # switches reconnect to a new controller
                    continue
                with contextlib.suppress(LabError):  # a switch or the controller that ends is detected elsewhere
                    if checks % _COUNTS_PER_READ == 0:
                        await self._repair(switch, "compared with the plan", always_note=False)
                    elif reason := await self._count_mismatch(switch, self.plan):
                        await self._repair(switch, reason, always_note=False)

    async def _count_mismatch(self, switch: Switch, plan: Plan) -> str | None:
        installed = await self.controller.count(switch.dpid, await table_of(self.controller, switch))
        planned = sum(entry.switch == switch.name for entry in plan.flows)
        return None if installed == planned else f"has {installed} entries where the plan has {planned}"

    async def _repair(self, switch: Switch, reason: str, *, always_note: bool) -> None:
        try:
            async with self._change_lock:
                if self.plan is None and not self._network.in_band_hosts:
                    return
                changes = await self._restore({switch.name})
        except LabError as error:
            self._note(f"{switch.name} {reason}; its repair failed: {error}")
            return
        if changes or always_note:
            self._note(f"{switch.name} {reason}; {_repairs_text(changes)}")


def _count_recent(instants: deque[float], now: float, window_s: float) -> int:
    """The number of moments within the window before now; removes older ones."""
    while instants and now - instants[0] >= window_s:
        instants.popleft()
    return len(instants)


def _repairs_text(changes: tuple[FlowChange, ...]) -> str:
    if not changes:
        return "no differences"
    repairs = [f"{change.action} '{change.entry.why or change.entry}'" for change in changes]
    return f"{len(changes)} flow entries repaired: {first_of(repairs, _MAX_NAMED)}"


async def clear_unmanaged_state(controller: Controller, network: Network) -> tuple[str, ...]:
    """Delete all groups and meters of the lab's switches. Returns a line for each switch with deletions or an error.

    Disconnected switches are skipped; they are cleared with the next plan.
    """

    async def clear(switch: Switch) -> str | None:
        try:
            leftovers = await controller.leftovers(switch.dpid)
            if leftovers:
                await controller.clear(switch.dpid, leftovers)
        except LabError as error:
            state = controller.switches.get(switch.dpid)
            return f"{switch.name}: {error}" if state is not None and state.up else None
        text = unmanaged_state_text(leftovers)
        return f"{switch.name}: deleted {text} (plans of atoll use none)" if leftovers else None

    lines = await asyncio.gather(*map(clear, network.switches))
    return tuple(line for line in lines if line is not None)


def unmanaged_state_text(state: UnmanagedState) -> str:
    """``groups 1, 7 and meter 3``."""
    parts = [(kind, numbers) for kind, numbers in (("group", state.groups), ("meter", state.meters)) if numbers]
    return " and ".join(f"{kind}{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}" for kind, numbers in parts)
