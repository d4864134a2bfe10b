# SPDX-License-Identifier: Apache-2.0
"""A swap carried out on live switches: stage by stage forward, or all the way back.

Up to the moment when the last shift has been made and proven, whatever goes wrong - a switch that refuses or goes
away, a probe that does not arrive, the controller's death, somebody's change of mind - leads back to exactly the old
plan; from then on to exactly the new one. Either way passes the same states of the tables, of which any packet under
way takes no harm: what cannot be reached now, because a switch or the controller is away, is waited for there.
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
"""Has hosts send a stage's probes; returns when all take the ways of the second plan, no longer those of the first."""

PATIENCE_S = 10.0
"""After which whoever waits for a swap is told that a switch, or the controller, stays away."""

_Identity = tuple[str, int, Match]


class SwitchFleet(Protocol):
    """Switches that are kept at a plan (``reconcile.Reconciler``)."""

    async def hold(self, plan: Plan, otherwise: Plan) -> None:
        """Bring all switches to a plan, read back, and keep them there. Raises LabError; ``otherwise`` is kept then."""
        ...

    async def require_room(self, plans: Sequence[Plan]) -> None:
        """Raise LabError naming the first switch whose table cannot hold one of the plans."""
        ...

    def lag_s(self, entries: Iterable[FlowEntry]) -> float:
        """How long a switch may still forward by one of these as it was before it was deleted."""
        ...

    async def stirred(self) -> None:
        """Wait until something that was away may be back."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """A stage of a swap, and what the switches hold before and after it."""

    stage: Stage
    before: Plan
    after: Plan

    @property
    def most(self) -> Plan:
        """All that the switches hold while it is made: what is new comes before anything goes."""
        both = {_identity(entry): entry for entry in (*self.before.flows, *self.after.flows)}
        return replace(self.after, flows=tuple(both.values()))


@dataclass(frozen=True, slots=True)
class StageReport:
    """A stage that is over; "undo": what had been done was taken back. ``began_ns``: CLOCK_REALTIME.

    ``waited_ns``: until entries that it adds, and that were deleted shortly before, were out of all data planes.
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
        told = ", ".join(parts)
        return f"{self.subject}: {self.stage} {self.duration_ns / 1e6:.0f} ms{f' ({told})' if told else ''}"


@dataclass(frozen=True, slots=True)
class Hooks:
    """What is to happen around a swap's stages.

    ``probe``: LabError unless a stage's frames arrive and are answered, by the way that the tables say. ``taken``:
    LabError unless the edge sends hosts' frames on by its new entries. ``drained``: waits until a stage's frames, sent
    behind the last packets of a version, have arrived. ``before_turn``: before the last shift; LabError undoes the
    swap. ``turned``: when the last shift has been made: the new version is what stands now. ``report``: told of each
    stage when it is over. ``sleep``: lets seconds pass. The last three must not fail.
    """

    probe: ProbeRunner
    taken: TurnRunner
    drained: ProbeRunner
    before_turn: Callable[[], Awaitable[None]]
    turned: Callable[[], Awaitable[None]]
    report: Callable[[StageReport], None]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


def steps_of(old: Plan, new: Plan, swap: Swap) -> tuple[Step, ...]:
    """The states between two plans that a swap passes."""
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
    """One swap, under way. Start :meth:`run` as a task: nobody but :meth:`abort` should stop it half-way.

    ``turned``: the new version carries the traffic. ``held_up``: set with the reason when a state that has to be
    reached could not be for ``PATIENCE_S``; it is tried on.
    """

    def __init__(self, switches: SwitchFleet, moves: Sequence[Step], hooks: Hooks) -> None:
        self.turned = False
        self.failure: Exception | None = None  # why the way leads back
        self.held_up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._switches = switches
        self._moves = moves
        self._hooks = hooks
        self._abort = asyncio.Event()
        shifts = [number for number, move in enumerate(moves) if move.stage.kind is StageKind.SHIFT]
        self._turn = shifts[-1] if shifts else len(moves) - 1
        self._reason = "the swap was cancelled"

    def abort(self, reason: str) -> None:
        """Go back, if the new version does not carry the traffic yet."""
        self._reason = reason
        self._abort.set()

    async def run(self) -> None:
        """Returns when the switches hold exactly the new plan. Raises LabError when they hold exactly the old one."""
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
        """A stage behind the turn: there is no other way than forward."""
        if move.after is not move.before:
            await self._reach(move.after)
        await self._drain(move.stage, move.stage.wait_ns)

    async def _back(self, number: int) -> None:
        """Through the states passed, in reverse; what has turned to the new version comes out of it before it goes.

        Proofs are waited for, but nothing depends on them: the old version may be one that carries nothing.
        """
        for index in range(number, -1, -1):
            move = self._moves[index]
            if wait_s := self._switches.lag_s(move.stage.delete):
                await self._hooks.sleep(wait_s)  # else a switch that lags would delete again what comes back
            if move.after is not move.before:
                await self._reach(move.before)
            if move.stage.kind is StageKind.DRAIN:
                with contextlib.suppress(Exception):
                    await self._hooks.probe(move.stage)  # what was collected is there again
            if move.stage.undo_wait_ns:
                with contextlib.suppress(Exception):
                    await self._hooks.taken(move.stage, move.after, move.before)
                await self._drain(self._moves[index - 1].stage, move.stage.undo_wait_ns)

    async def _drain(self, stage: Stage, wait_ns: int) -> None:
        """Let the time pass that packets may take, and see frames behind them arrive: machines may be late."""
        if not wait_ns:
            return
        drained = asyncio.create_task(self._drained(stage))
        try:
            await self._hooks.sleep(wait_ns / 1e9)
            await drained
        finally:
            drained.cancel()

    async def _drained(self, stage: Stage) -> None:
        # What has not come out by now does not come any more, and nothing may keep the swap from its end.
        with contextlib.suppress(Exception):
            await self._hooks.drained(stage)

    async def _reach(self, plan: Plan) -> None:
        """Bring the switches to a plan, however long it takes until all are there."""
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
