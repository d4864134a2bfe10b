# SPDX-License-Identifier: Apache-2.0
"""Execute a swap on live switches: stage by stage forward, or completely rolled back.

Until the last shift is made and proven, any failure (a switch that refuses or disconnects, a lost probe, the end of the
controller, a cancellation) leads back to exactly the old plan. After it the swap always leads to exactly the new plan.
Both directions pass the same states of the tables, none of which misdirects packets in flight. If a switch or the
controller is away, the swap waits for it.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from atoll_controller.fabric.swap_plan import Stage, StageKind, Subject, Swap
from atoll_core.errors import LabError
from atoll_core.plan.flow_entry import FlowEntry, Match
from atoll_core.plan.plan import Plan

ProbeRunner = Callable[[Stage], Awaitable[None]]
"""Sends a stage's probes and returns when all have arrived; LabError names those that have not."""

TurnRunner = Callable[[Stage, Plan, Plan], Awaitable[None]]
"""Lets hosts send a stage's probes; returns when all take the paths of the second plan instead of the first."""

PATIENCE_S = 10.0
"""The time after which a swap reports that a switch, or the controller, stays away."""

_Identity = tuple[str, int, Match]


class SwitchFleet(Protocol):
    """Switches that are kept at a plan (``reconciler.Reconciler``)."""

    async def hold(self, plan: Plan, otherwise: Plan) -> None:
        """Bring all switches to a plan, read back, and keep them there. Raises LabError; ``otherwise`` is kept then."""
        ...

    async def require_room(self, plans: Sequence[Plan]) -> None:
        """Raise LabError with the first switch whose table is too small for one of the plans."""
        ...

    def lag_s(self, entries: Iterable[FlowEntry]) -> float:
        """The time for which a switch may still forward by a deleted version of these entries."""
        ...

    async def stirred(self) -> None:
        """Wait until a switch or the controller may be back."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """A stage of a swap, with the plans of the switches before and after it."""

    stage: Stage
    before: Plan
    after: Plan

    @property
    def most(self) -> Plan:
        """The entries on the switches during the stage: entries are added before others are deleted."""
        both = {_identity(entry): entry for entry in (*self.before.flows, *self.after.flows)}
        return replace(self.after, flows=tuple(both.values()))


@dataclass(frozen=True, slots=True)
class StageReport:
    """A finished stage; "undo": the swap was rolled back. ``began_ns``: CLOCK_REALTIME.

    ``waited_ns``: the time until data planes had removed entries that were deleted shortly before and are added again.
    """

    subject: Subject
    stage: str
    began_ns: int
    duration_ns: int
    added: int = 0
    deleted: int = 0
    probes: int = 0
    waited_ns: int = 0

    def __str__(self) -> str:
        what = {"added": self.added, "deleted": self.deleted, "probes": self.probes}
        parts = [f"{number} {word}" for word, number in what.items() if number]
        if self.waited_ns:
            parts.append(f"waited {self.waited_ns / 1e9:.1f} s for switches that still had deleted entries")
        details = ", ".join(parts)
        return f"{self.subject}: {self.stage} {self.duration_ns / 1e6:.0f} ms{f' ({details})' if details else ''}"


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of a swap.

    ``probe``: LabError unless a stage's frames arrive and are answered, on the path of the tables. ``taken``: LabError
    unless the edge forwards hosts' frames by its new entries. ``drained``: waits until a stage's frames, sent behind
    the last packets of a version, have arrived. ``before_turn``: before the last shift; LabError rolls the swap back.
    ``turned``: after the last shift: the new version is active. ``report``: takes the report of each finished stage.
    ``sleep``: waits for seconds. The last three must not fail.
    """

    probe: ProbeRunner
    taken: TurnRunner
    drained: ProbeRunner
    before_turn: Callable[[], Awaitable[None]]
    turned: Callable[[], Awaitable[None]]
    report: Callable[[StageReport], None]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


def steps_of(old: Plan, new: Plan, swap: Swap) -> tuple[Step, ...]:
    """The steps of a swap between two plans."""
    held = {_identity(entry): entry for entry in old.flows}
    found: list[Step] = []
    before = old
    for number, stage in enumerate(swap.stages, start=1):
        gone = {_identity(entry) for entry in stage.delete}
        held = {key: entry for key, entry in held.items() if key not in gone}
        held |= {_identity(entry): entry for entry in stage.add}
        last = number == len(swap.stages)
        changes = bool(stage.add or stage.delete)
        after = new if last else replace(new, flows=tuple(held.values())) if changes else before
        found.append(Step(stage, before, after))
        before = after
    return tuple(found)


class Swapping:
    """One running swap. Start :meth:`run` as a task, and stop it only by :meth:`abort`.

    ``turned``: the new version carries the traffic. ``held_up``: set with the reason when a required state could not be
    reached for ``PATIENCE_S``; the swap keeps trying.
    """

    def __init__(self, switches: SwitchFleet, moves: Sequence[Step], hooks: Hooks) -> None:
        self.turned = False
        self.failure: Exception | None = None  # the reason for the rollback
        self.held_up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._switches = switches
        self._moves = moves
        self._hooks = hooks
        self._abort = asyncio.Event()
        shifts = [number for number, move in enumerate(moves) if move.stage.kind is StageKind.SHIFT]
        self._turn = shifts[-1] if shifts else len(moves) - 1
        self._reason = "the swap was cancelled"

    def abort(self, reason: str) -> None:
        """Roll back, unless the new version carries the traffic already."""
        self._reason = reason
        self._abort.set()

    async def run(self) -> None:
        """Return when the switches have exactly the new plan. Raises LabError when they have exactly the old one."""
        if not self._moves:
            return
        most = await asyncio.to_thread(lambda: [move.most for move in self._moves])
        await self._switches.require_room(most)
        await self._switches.hold(self._moves[0].before, self._moves[0].before)
        for number, move in enumerate(self._moves):
            began_ns = time.time_ns(), time.monotonic_ns()
            wait_s = 0.0 if self.turned else self._switches.lag_s(move.stage.add)
            if self.turned:
                await self._finish(move)
            else:
                try:
                    await self._unless_aborted(self._attempt(number, move, wait_s))
                except Exception as error:
                    self.failure = error
                    await self._back(number)
                    self._hooks.report(_report(move.stage.subject, "undo", began_ns))
                    raise
            stage = move.stage
            counts = len(stage.add), len(stage.delete), len(stage.probes)
            self._hooks.report(_report(stage.subject, stage.kind, began_ns, *counts, round(wait_s * 1e9)))
            if number == self._turn:
                self.turned = True
                await self._hooks.turned()

    async def _attempt(self, number: int, move: Step, wait_s: float) -> None:
        if wait_s:
            await self._hooks.sleep(wait_s)
        if number == self._turn:
            await self._hooks.before_turn()
        if move.stage.kind is StageKind.PROBE:
            await self._hooks.probe(move.stage)
        elif move.after is not move.before:
            await self._switches.hold(move.after, otherwise=move.before)
        if move.stage.kind is StageKind.SHIFT:
            await self._hooks.taken(move.stage, move.before, move.after)
        await self._drain(move.stage, move.stage.wait_ns)

    async def _finish(self, move: Step) -> None:
        """Execute a stage after the last shift, which is never rolled back."""
        if move.after is not move.before:
            await self._reach(move.after)
        await self._drain(move.stage, move.stage.wait_ns)

    async def _back(self, number: int) -> None:
        """Roll back through the passed states, in reverse; the new version drains before its entries are deleted.

        Failed proofs are ignored: the old version may be one that carries nothing.
        """
        for index in range(number, -1, -1):
            move = self._moves[index]
            if wait_s := self._switches.lag_s(move.stage.delete):
                await self._hooks.sleep(wait_s)  # else a lagging switch would delete the restored entries again
            if move.after is not move.before:
                await self._reach(move.before)
            if move.stage.kind is StageKind.DRAIN:
                with contextlib.suppress(Exception):
                    await self._hooks.probe(move.stage)  # the deleted entries are there again
            if move.stage.undo_wait_ns:
                with contextlib.suppress(Exception):
                    await self._hooks.taken(move.stage, move.after, move.before)
                await self._drain(self._moves[index - 1].stage, move.stage.undo_wait_ns)

    async def _drain(self, stage: Stage, wait_ns: int) -> None:
        """Wait for the longest time of packets, and until frames sent behind them arrive: machines may be late."""
        if not wait_ns:
            return
        drained = asyncio.create_task(self._drained(stage))
        try:
            await self._hooks.sleep(wait_ns / 1e9)
            await drained
        finally:
            drained.cancel()

    async def _drained(self, stage: Stage) -> None:
        # Packets that have not arrived by now are lost, and must not keep the swap from its end.
        with contextlib.suppress(Exception):
            await self._hooks.drained(stage)

    async def _reach(self, plan: Plan) -> None:
        """Bring the switches to a plan; wait for switches that are away."""
        since: float | None = None
        while True:
            try:
                await self._switches.hold(plan, otherwise=plan)
            except LabError as error:
                since = time.monotonic() if since is None else since
                if time.monotonic() - since >= PATIENCE_S and not self.held_up.done():
                    self.held_up.set_result(str(error))
                await self._switches.stirred()
            else:
                return

    async def _unless_aborted(self, work: Coroutine[Any, Any, None]) -> None:
        doing = asyncio.create_task(work)
        aborted = asyncio.create_task(self._abort.wait())
        try:
            await asyncio.wait({doing, aborted}, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                return doing.result()
        finally:
            aborted.cancel()
            if not doing.done():
                doing.cancel()
                with contextlib.suppress(asyncio.CancelledError, LabError):
                    await doing
        raise LabError(self._reason)


def _identity(entry: FlowEntry) -> _Identity:
    return entry.switch, entry.priority, entry.match


def _report(subject: Subject, stage: str, began_ns: tuple[int, int], *counts: int) -> StageReport:
    return StageReport(subject, stage, began_ns[0], time.monotonic_ns() - began_ns[1], *counts)
