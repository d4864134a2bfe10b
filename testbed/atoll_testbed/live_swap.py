# SPDX-License-Identifier: Apache-2.0
"""A swap on a whole testbed: the swap of flow entries, and the programs and connections of boxes.

Programs of the new version start before its entries are installed. Programs that only the old version needs stop after
its entries are removed. A swap that is rolled back leaves the programs of the old version unchanged (docs/swaps.md).
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from atoll_controller.fabric.reconciler import Reconciler
from atoll_controller.fabric.swap_detours import boxes_of
from atoll_controller.fabric.swap_executor import UNDO, RunningSwap, StageReport, SwapStep, SwapVerifier
from atoll_controller.fabric.swap_plan import Stage, StageKind, Swap
from atoll_controller.planner.plan_text import parts_json
from atoll_core.errors import AtollError, LabError
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import Note, SwapEvent
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Plan
from atoll_testbed.box_connections import BoxConnections
from atoll_testbed.machine_reconciler import MachineReconciler
from atoll_testbed.verification.swap_verification import verify_cutover, verify_drained, verify_entries

if TYPE_CHECKING:
    from atoll_testbed.testbed import Testbed

_EMPTY_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class ProbeVerifier(SwapVerifier):
    """Verifies the stages of a swap by probes."""

    lab: "Testbed"
    swap: Swap

    async def verify_stage(self, stage: Stage) -> None:
        """See :class:`SwapVerifier`."""
        await verify_entries(self.lab, stage.probes, self.swap.parts[stage.part].after)

    async def wait_for_cutover(self, stage: Stage, before: Plan, after: Plan) -> None:
        """See :class:`SwapVerifier`."""
        await verify_cutover(self.lab, stage.probes, before, after, self.swap.versions)

    async def wait_for_drain(self, stage: Stage) -> None:
        """See :class:`SwapVerifier`."""
        part = self.swap.parts[stage.part]
        await verify_drained(self.lab, stage.probes, part.before if stage.kind is StageKind.DRAIN else part.after)


class LiveSwap:
    """A swap from the applied plan to a new one. Start and await it with :meth:`carry_out`.

    ``steps``: its stages, with the entries before and after each (``swap_executor.steps_of``). ``events``: takes the
    events of docs/contracts.md, "Swaps". ``on_cutover``: called when packets are forwarded by the new version.
    """

    def __init__(
        self,
        swap: Swap,
        steps: Sequence[SwapStep],
        *,
        switches: Reconciler,
        machines: MachineReconciler,
        connections: BoxConnections,
        verifier: SwapVerifier,
        network: Network,
        events: EventBus,
        on_cutover: Callable[[], None],
    ) -> None:
        self._swap = swap
        self._old, self._new = steps[0].before, steps[-1].after
        self._machines = machines
        self._network = network
        self._connections = connections
        self._events = events
        self._on_cutover = on_cutover
        self._waited_ns = 0  # for connections
        self._running_swap = RunningSwap(switches, steps, verifier, self)
        self._task = asyncio.create_task(self._run())

    @property
    def is_over(self) -> bool:
        """Whether switches and boxes are at exactly the old or exactly the new plan."""
        return self._task.done()

    async def carry_out(self, failed: "asyncio.Future[str]") -> None:
        """Wait until the new plan has replaced the old one. Raises LabError if the swap was rolled back.

        Also raises LabError if a disconnected switch delays the end, or if the testbed has ``failed``; the swap then
        continues as soon as it can. If cancelled, the swap is rolled back, unless the cutover is done.
        """
        waits = {self._task, self._running_swap.blocked, failed}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._running_swap.abort("the swap was cancelled")
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            raise
        if self._task.done():
            return self._task.result()
        if failed.done():
            raise LabError(failed.result())
        raise LabError(self.pending_text())

    def pending_text(self) -> str:
        """The reason why the swap has not ended yet."""
        failure = self._running_swap.failure
        if failure is not None:
            state = f"the swap failed ({failure}) and is rolled back"
        else:
            state = "the swap continues" if self._running_swap.cut_over else "the swap is in progress"
        if not self._running_swap.blocked.done():
            return state
        return f"{state} as soon as possible: {self._running_swap.blocked.result()}"

    async def wait_for_end(self) -> None:
        """Wait for the end of the swap, successful or not."""
        await asyncio.wait([self._task])

    async def abandon(self) -> None:
        """Stop the swap where it is: the testbed is going down."""
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.exception()  # retrieved: it was reported already, or the testbed's end matters more

    async def _run(self) -> None:
        start_ns = time.monotonic_ns()
        stages = [f"{stage.subject} {stage.kind}" for stage in self._swap.stages]
        self._event("begin", stages=stages, moved=list(self._swap.moved), parts=parts_json(self._swap))
        try:
            await self.before_part(0)
            await self._running_swap.run()
        except Exception as error:
            if self._running_swap.cut_over:
                raise
            with contextlib.suppress(AtollError):
                await self._machines.restore(self._old)
            with contextlib.suppress(AtollError):
                await self._connections.reopen()
            self._event("undone", reason=str(error), duration_ns=time.monotonic_ns() - start_ns)
            if isinstance(error, LabError):
                raise LabError(f"swap rolled back; the previous configuration is active: {error}") from error
            raise
        duration_ns = time.monotonic_ns() - start_ns
        drain_ns = sum(map(self._swap.drain_ns, range(len(self._swap.parts))))
        beyond_ns = duration_ns - drain_ns - self._waited_ns
        try:
            await self._machines.reconcile(self._new)
        except LabError as error:
            raise LabError(
                f"chains and latencies were changed, but some boxes could not be updated: {error}"
            ) from error
        self._event("end", duration_ns=duration_ns, drain_ns=drain_ns, beyond_drain_ns=beyond_ns)

    # The swap's owner (swap_executor.SwapOwner)

    async def before_part(self, part: int) -> None:
        """Bring the boxes that no packet passes before this part to the new plan, and start its missing programs."""
        await self._machines.advance(self._new, boxes_of(self._swap.parts[part].before))

    async def undo_part(self, part: int) -> None:
        """Bring them back to the old plan."""
        with contextlib.suppress(AtollError):  # tried again when the switches are back
            await self._machines.advance(self._old, boxes_of(self._swap.parts[part].before))

    async def before_shift(self, stage: Stage) -> None:
        """Wait for the end of connections that the shift breaks, if the policy says so."""
        start_ns = time.monotonic_ns()
        boxes = boxes_of(self._swap.parts[stage.part].before)
        if await self._connections.wait([box for box in stage.moved if box in boxes]):
            self._waited_ns += time.monotonic_ns() - start_ns

    async def after_cutover(self) -> None:
        """Report the new version as active."""
        self._on_cutover()
        self._event("turned")

    async def after_shift(self, stage: Stage) -> None:
        """Reset the connections of boxes that traffic has left."""
        try:
            await self._connections.reset(stage.moved)
        except Exception as error:  # noqa: BLE001 - the swap is done; connections end by their time-outs
            self._event("connections", how="failed", reason=str(error))

    async def wait_until_empty(self, stage: Stage) -> None:
        """Wait until boxes that packets have left hold none, by their counters."""
        part = self._swap.parts[stage.part]
        drained, current = (part.before, part.after) if stage.kind is StageKind.DRAIN else (part.after, part.before)
        boxes = drained.as_used(self._network).boxes
        names = boxes_of(drained) - boxes_of(current)
        levels_by_box = {box.name: box.kind.holding for box in boxes if box.name in names and box.kind.holding}
        if occupied := await self._machines.wait_until_empty(levels_by_box, _EMPTY_LIMIT_S):
            limit = f"{_EMPTY_LIMIT_S:g} s after its longest residence"
            self._events.publish(Note(f"swap: {', '.join(occupied)} may still hold packets, {limit}; they are lost"))

    def stage_ended(self, report: StageReport) -> None:
        """Report a stage."""
        self._event("stage", **asdict(report), text=self._title(report) + str(report))

    def _title(self, report: StageReport) -> str:
        """Which of several parts a stage belongs to."""
        total = len(self._swap.parts)
        return "" if total == 1 or report.stage == UNDO else f"part {report.part + 1} of {total}, "

    def _event(self, state: str, **details: Any) -> None:
        self._events.publish(SwapEvent(time.time_ns(), state, details))
