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
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from atoll_controller.fabric.reconciler import Reconciler
from atoll_controller.fabric.swap_plan import Stage, StageKind, Subject, Swap
from atoll_core.errors import LabError
from atoll_core.plan.plan import Plan

UNDO = "undo"
"""The stage of the report after a rollback."""

BLOCKED_AFTER_S = 10.0
"""The time after which a swap reports that a switch, or the controller, stays away."""


@dataclass(frozen=True, slots=True)
class SwapStep:
    """A stage of a swap, with the plans of the switches before and after it."""

    stage: Stage
    before: Plan
    after: Plan

    @property
    def peak(self) -> Plan:
        """The entries on the switches during the stage: entries are added before others are deleted."""
        entries = {entry.identity: entry for entry in (*self.before.flows, *self.after.flows)}
        return replace(self.after, flows=tuple(entries.values()))


@dataclass(frozen=True, slots=True)
class StageReport:
    """A finished stage of a ``part`` of the swap; ``UNDO``: all was rolled back. ``began_ns``: CLOCK_REALTIME.

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
    part: int = 0

    def __str__(self) -> str:
        counts = {"added": self.added, "deleted": self.deleted, "probes": self.probes}
        parts = [f"{number} {name}" for name, number in counts.items() if number]
        if self.waited_ns:
            parts.append(f"waited {self.waited_ns / 1e9:.1f} s until switches had removed deleted entries")
        details = ", ".join(parts)
        return f"{self.subject}: {self.stage} {self.duration_ns / 1e6:.0f} ms{f' ({details})' if details else ''}"


class SwapVerifier:
    """Does not verify the tables of the switches; subclasses do, on the data plane. Their methods raise LabError."""

    async def verify_stage(self, stage: Stage) -> None:
        """Return when a stage's probes have arrived and were answered on the paths of the tables."""

    async def wait_for_cutover(self, stage: Stage, before: Plan, after: Plan) -> None:
        """Return when the edge forwards hosts' frames by the entries of the plan ``after``, no longer ``before``."""

    async def wait_for_drain(self, stage: Stage) -> None:
        """Return when a stage's probes, sent behind the last packets of a version, have arrived."""


class SwapOwner(Protocol):
    """Takes part in a swap at its shifts, of which the last one is the cutover, and between its parts.

    Only ``before_part`` and ``before_shift`` may fail.
    """

    async def before_part(self, part: int) -> None:
        """Prepare the boxes that no packet passes between two parts. LabError rolls the swap back."""

    async def undo_part(self, part: int) -> None:
        """Undo :meth:`before_part`: the swap goes back to the part before."""

    async def before_shift(self, stage: Stage) -> None:
        """Prepare a shift. LabError rolls the swap back."""

    async def after_cutover(self) -> None:
        """The new version is active."""

    async def after_shift(self, stage: Stage) -> None:
        """Packets take the version of the shift's part; if that is the last one, after :meth:`after_cutover`."""

    async def wait_until_empty(self, stage: Stage) -> None:
        """Wait, for a limited time, until boxes hold no packet of the version that drains in this stage."""

    def stage_ended(self, report: StageReport) -> None:
        """A stage has ended."""


def steps_of(old: Plan, new: Plan, swap: Swap) -> tuple[SwapStep, ...]:
    """The steps of a swap between two plans."""
    entries = {entry.identity: entry for entry in old.flows}
    steps: list[SwapStep] = []
    before = old
    for stage in swap.stages:
        for entry in stage.delete:
            del entries[entry.identity]
        entries |= {entry.identity: entry for entry in stage.add}
        after = replace(new, flows=tuple(entries.values())) if stage.add or stage.delete else before
        steps.append(SwapStep(stage, before, new if stage is swap.stages[-1] else after))
        before = after
    return tuple(steps)


class RunningSwap:
    """One running swap. Start :meth:`run` as a task, and stop it only by :meth:`abort`.

    ``cut_over``: the new version carries the traffic. ``blocked``: set with the reason when a required state could not
    be reached for ``BLOCKED_AFTER_S``; the swap keeps trying.
    """

    def __init__(
        self,
        switches: Reconciler,
        steps: Sequence[SwapStep],
        verifier: SwapVerifier,
        owner: SwapOwner,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.cut_over = False
        self.failure: Exception | None = None  # the reason for the rollback
        self.blocked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._switches = switches
        self._steps = steps
        self._verifier = verifier
        self._owner = owner
        self._sleep = sleep
        self._abort = asyncio.Event()
        shifts = [number for number, step in enumerate(steps) if step.stage.kind is StageKind.SHIFT]
        self._cutover = shifts[-1] if shifts else len(steps) - 1
        self._reason = "the swap was cancelled"

    def abort(self, reason: str) -> None:
        """Roll back, unless the new version carries the traffic already."""
        self._reason = reason
        self._abort.set()

    async def run(self) -> None:
        """Return when the switches have exactly the new plan. Raises LabError when they have exactly the old one."""
        if not self._steps:
            return
        peak = await asyncio.to_thread(lambda: [step.peak for step in self._steps])
        await self._switches.require_room(peak)
        await self._switches.hold(self._steps[0].before, self._steps[0].before)
        part = 0
        for number, step in enumerate(self._steps):
            begin = time.time_ns(), time.monotonic_ns()
            wait_s = 0.0 if self.cut_over else self._switches.lag_s(step.stage.add)
            if self.cut_over:
                await self._finish(step)
            else:
                try:
                    if step.stage.part != part:
                        part = step.stage.part
                        await self._unless_aborted(self._owner.before_part(part))
                    await self._unless_aborted(self._execute(step, wait_s))
                except Exception as error:
                    self.failure = error
                    await self._roll_back(number)
                    self._owner.stage_ended(_report(step.stage, UNDO, begin))
                    raise
            stage = step.stage
            counts = len(stage.add), len(stage.delete), len(stage.probes)
            self._owner.stage_ended(_report(stage, stage.kind, begin, *counts, round(wait_s * 1e9)))
            if number == self._cutover:
                self.cut_over = True
                await self._owner.after_cutover()
            if stage.kind is StageKind.SHIFT:
                await self._owner.after_shift(stage)

    async def _execute(self, step: SwapStep, wait_s: float) -> None:
        if wait_s:
            await self._sleep(wait_s)
        if step.stage.kind is StageKind.SHIFT:
            await self._owner.before_shift(step.stage)
        if step.stage.kind is StageKind.PROBE:
            await self._verifier.verify_stage(step.stage)
        elif step.after is not step.before:
            await self._switches.hold(step.after, fallback=step.before)
        if step.stage.kind is StageKind.SHIFT:
            await self._verifier.wait_for_cutover(step.stage, step.before, step.after)
        await self._drain(step.stage, step.stage.wait_ns)

    async def _finish(self, step: SwapStep) -> None:
        """Execute a stage after the last shift, which is never rolled back."""
        if step.after is not step.before:
            await self._keep_applying(step.after)
        await self._drain(step.stage, step.stage.wait_ns)

    async def _roll_back(self, number: int) -> None:
        """Roll back through the passed states, in reverse; the new version drains before its entries are deleted.

        Failed proofs are ignored: the old version may be one that carries nothing.
        """
        for index in range(number, -1, -1):
            step = self._steps[index]
            if wait_s := self._switches.lag_s(step.stage.delete):
                await self._sleep(wait_s)  # else a lagging switch would delete the restored entries again
            if step.after is not step.before:
                await self._keep_applying(step.before)
            if step.stage.kind is StageKind.DRAIN:
                with contextlib.suppress(Exception):
                    await self._verifier.verify_stage(step.stage)  # the deleted entries are there again
            if step.stage.undo_wait_ns:
                with contextlib.suppress(Exception):
                    await self._verifier.wait_for_cutover(step.stage, step.after, step.before)
                await self._drain(self._steps[index - 1].stage, step.stage.undo_wait_ns)
            if index and step.stage.part != self._steps[index - 1].stage.part:
                await self._owner.undo_part(step.stage.part)

    async def _drain(self, stage: Stage, wait_ns: int) -> None:
        """Wait for the longest time of packets, and until frames sent behind them arrive: machines may be late."""
        if not wait_ns:
            return
        probes = asyncio.create_task(self._wait_for_drain_probes(stage))
        try:
            await self._sleep(wait_ns / 1e9)
            await probes
            await self._owner.wait_until_empty(stage)
        finally:
            probes.cancel()

    async def _wait_for_drain_probes(self, stage: Stage) -> None:
        # Packets that have not arrived by now are lost, and must not keep the swap from its end.
        with contextlib.suppress(Exception):
            await self._verifier.wait_for_drain(stage)

    async def _keep_applying(self, plan: Plan) -> None:
        """Bring the switches to a plan; wait for switches that are away."""
        since_s: float | None = None
        while True:
            try:
                await self._switches.hold(plan, fallback=plan)
            except LabError as error:
                since_s = time.monotonic() if since_s is None else since_s
                if time.monotonic() - since_s >= BLOCKED_AFTER_S and not self.blocked.done():
                    self.blocked.set_result(str(error))
                await self._switches.wait_for_recovery()
            else:
                return

    async def _unless_aborted(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        aborted = asyncio.create_task(self._abort.wait())
        try:
            await asyncio.wait({task, aborted}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
        finally:
            aborted.cancel()
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, LabError):
                    await task
        raise LabError(self._reason)


def _report(stage: Stage, name: str, begin: tuple[int, int], *counts: int) -> StageReport:
    duration_ns = time.monotonic_ns() - begin[1]
    return StageReport(stage.subject, name, begin[0], duration_ns, *counts, part=stage.part)
