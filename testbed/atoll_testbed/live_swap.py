# SPDX-License-Identifier: Apache-2.0
"""A swap on a whole testbed: the swap of flow entries, and the programs and connections of boxes.

Programs of the new version start before its entries are installed. Programs that only the old version needs stop after
its entries are removed. A swap that is rolled back leaves the programs of the old version unchanged (docs/swaps.md).
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Any

from atoll_controller.fabric.swap_executor import (
    Hooks,
    ProbeRunner,
    StageReport,
    Step,
    Swapping,
    SwitchFleet,
    TurnRunner,
)
from atoll_controller.fabric.swap_plan import StageKind, Swap
from atoll_core.errors import AtollError, LabError
from atoll_core.plan.plan import Plan
from atoll_testbed.box_connections import BoxConnections, ConnectionPolicy
from atoll_testbed.box_services import Services

Tell = Callable[[dict[str, Any]], None]


class LiveSwap:
    """A swap from the applied plan to a new one. Start and await it with :meth:`carry_out`.

    ``steps``: its stages, with the entries before and after each (``swap_executor.steps_of``). ``machines``: applies
    the settings of a plan to the machines. ``on_cutover``: called when packets are forwarded by the new version.
    ``tell``: takes the events of docs/contracts.md, "Swaps"; it must not fail.
    """

    def __init__(
        self,
        swap: Swap,
        steps: Sequence[Step],
        *,
        switches: SwitchFleet,
        machines: Callable[[Plan], Awaitable[None]],
        services: Services,
        boxes: BoxConnections,
        connections: ConnectionPolicy,
        probe: ProbeRunner,
        taken: TurnRunner,
        drained: ProbeRunner,
        on_cutover: Callable[[], None],
        tell: Tell,
    ) -> None:
        self._swap = swap
        self._old, self._new = steps[0].before, steps[-1].after
        self._machines = machines
        self._services = services
        self._boxes = boxes
        self._connections = connections
        self._on_cutover = on_cutover
        self._tell = tell
        self._waited_ns = 0  # for connections
        hooks = Hooks(probe, taken, drained, self._before_turn, self._turned, self._report)
        self._swapping = Swapping(switches, steps, hooks)
        self._task = asyncio.create_task(self._run())

    @property
    def over(self) -> bool:
        """Whether switches and boxes are at exactly the old or exactly the new plan."""
        return self._task.done()

    async def carry_out(self, failed: "asyncio.Future[str]") -> None:
        """Wait until the new plan has replaced the old one. Raises LabError if the swap was rolled back.

        Also raises LabError if a disconnected switch delays the end, or if the testbed has ``failed``; the swap then
        continues as soon as it can. If cancelled, the swap is rolled back, unless the cutover is done.
        """
        waits = {self._task, self._swapping.held_up, failed}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._swapping.abort("the swap was cancelled")
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            raise
        if self._task.done():
            return self._task.result()
        if failed.done():
            raise LabError(failed.result())
        raise LabError(self.held_up())

    def held_up(self) -> str:
        """The reason why the swap has not ended yet."""
        failure = self._swapping.failure
        if failure is not None:
            state = f"the swap failed ({failure}) and is rolled back"
        else:
            state = "the swap continues" if self._swapping.turned else "the swap is in progress"
        if not self._swapping.held_up.done():
            return state
        return f"{state} as soon as possible: {self._swapping.held_up.result()}"

    async def ended(self) -> None:
        """Wait for the end of the swap, successful or not."""
        await asyncio.wait([self._task])

    async def leave(self) -> None:
        """Stop the swap where it is: the testbed is going down."""
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.exception()  # retrieved: it was reported already, or the testbed's end matters more

    async def _run(self) -> None:
        began_ns = time.monotonic_ns()
        stages = [f"{stage.subject} {stage.kind}" for stage in self._swap.stages]
        self._event({"state": "begin", "stages": stages, "moved": list(self._swap.moved)})
        try:
            await self._machines(self._new)
            await self._services.add(self._new)
            await self._swapping.run()
        except Exception as error:
            if self._swapping.turned:
                raise
            with contextlib.suppress(AtollError):
                await self._machines(self._old)
            with contextlib.suppress(AtollError):
                await self._services.reconcile(self._old, restart_traces=False)
            self._event({"state": "undone", "reason": str(error), "duration_ns": time.monotonic_ns() - began_ns})
            if isinstance(error, LabError):
                raise LabError(f"swap rolled back; the previous configuration is active: {error}") from error
            raise
        duration_ns = time.monotonic_ns() - began_ns
        drain_ns = sum(stage.wait_ns for stage in self._swap.stages if stage.kind is StageKind.DRAIN)
        beyond_ns = duration_ns - drain_ns - self._waited_ns
        try:
            await self._services.reconcile(self._new, restart_traces=False)
        except LabError as error:
            raise LabError(f"chains and latencies are swapped, but not all boxes could be updated: {error}") from error
        self._event({"state": "end", "duration_ns": duration_ns, "drain_ns": drain_ns, "beyond_drain_ns": beyond_ns})

    async def _before_turn(self) -> None:
        if self._connections.wait is not None and self._swap.moved:
            began_ns = time.monotonic_ns()
            await self._boxes.wait(self._swap.moved, self._connections.wait)
            self._waited_ns = time.monotonic_ns() - began_ns

    async def _turned(self) -> None:
        self._on_cutover()
        self._event({"state": "turned"})
        try:
            await self._boxes.reset(self._swap.moved)
        except Exception as error:  # noqa: BLE001 - the swap is done; connections end by their time-outs
            self._event({"state": "connections", "how": "failed", "reason": str(error)})

    def _report(self, report: StageReport) -> None:
        self._event({"state": "stage", **asdict(report), "text": str(report)})

    def _event(self, event: dict[str, Any]) -> None:
        self._tell({"type": "swap", "t_ns": time.time_ns(), **event})
