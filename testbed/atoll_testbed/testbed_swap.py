# SPDX-License-Identifier: Apache-2.0
"""A swap on a whole testbed: the boxes' programs and their connections around what happens on the switches.

What the new version needs runs before its entries are installed, what only the old one needed ends when its entries are
gone; a swap that is undone leaves the programs of the old version as they were. docs/swaps.md tells users.
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
    """A swap from what stands to a new plan. Start and await it with :meth:`carry_out`.

    ``moves``: its stages, and what the switches hold before and after each (``swapping.moves_of``).
    ``machines``: brings the machines to the settings of a plan. ``turned``: called when the new version is what stands.
    ``tell``: takes the events of docs/contracts.md, "Swaps"; it must not fail.
    """

    def __init__(
        self,
        swap: Swap,
        moves: Sequence[Step],
        *,
        switches: SwitchFleet,
        machines: Callable[[Plan], Awaitable[None]],
        services: Services,
        boxes: BoxConnections,
        connections: ConnectionPolicy,
        probe: ProbeRunner,
        taken: TurnRunner,
        drained: ProbeRunner,
        turned: Callable[[], None],
        tell: Tell,
    ) -> None:
        self._swap = swap
        self._old, self._new = moves[0].before, moves[-1].after
        self._machines = machines
        self._services = services
        self._boxes = boxes
        self._connections = connections
        self._on_turn = turned
        self._tell = tell
        self._waited_ns = 0  # for connections
        hooks = Hooks(probe, taken, drained, self._before_turn, self._turned, self._report)
        self._swapping = Swapping(switches, moves, hooks)
        self._task = asyncio.create_task(self._run())

    @property
    def over(self) -> bool:
        """Whether switches and boxes are at exactly the old or exactly the new plan."""
        return self._task.done()

    async def carry_out(self, failed: "asyncio.Future[str]") -> None:
        """Return when the new plan stands and the old one is gone. Raises LabError when the old one stands again.

        LabError, too, when a switch that stays away keeps it from ending, or the testbed has ``failed``: it goes on as
        soon as it can. Cancelled, it goes back first, unless packets have turned.
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
        """Why it is not over yet."""
        failure = self._swapping.failure
        if failure is not None:
            way = f"the swap failed ({failure}) and goes back"
        else:
            way = "the swap goes on" if self._swapping.turned else "the swap is under way"
        if not self._swapping.held_up.done():
            return way
        return f"{way} as soon as it can: {self._swapping.held_up.result()}"

    async def ended(self) -> None:
        """Wait until it is over, well or not."""
        await asyncio.wait([self._task])

    async def leave(self) -> None:
        """Stop where it is: the testbed goes down."""
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.exception()  # retrieved: it was told already, or the testbed's end is what matters

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
                await self._services.settle(self._old, anew=False)
            self._event({"state": "undone", "reason": str(error), "duration_ns": time.monotonic_ns() - began_ns})
            if isinstance(error, LabError):
                raise LabError(f"swap rolled back; the previous configuration is active: {error}") from error
            raise
        duration_ns = time.monotonic_ns() - began_ns
        drain_ns = sum(stage.wait_ns for stage in self._swap.stages if stage.kind is StageKind.DRAIN)
        beyond_ns = duration_ns - drain_ns - self._waited_ns
        try:
            await self._services.settle(self._new, anew=False)
        except LabError as error:
            raise LabError(
                f"chains and latencies are swapped, but not all boxes are as they should be: {error}"
            ) from error
        self._event({"state": "end", "duration_ns": duration_ns, "drain_ns": drain_ns, "beyond_drain_ns": beyond_ns})

    async def _before_turn(self) -> None:
        if self._connections.wait is not None and self._swap.moved:
            began_ns = time.monotonic_ns()
            await self._boxes.wait(self._swap.moved, self._connections.wait)
            self._waited_ns = time.monotonic_ns() - began_ns

    async def _turned(self) -> None:
        self._on_turn()
        self._event({"state": "turned"})
        try:
            await self._boxes.reset(self._swap.moved)
        except Exception as error:  # noqa: BLE001 - the swap is done all the same; connections end by their time-outs
            self._event({"state": "connections", "how": "failed", "reason": str(error)})

    def _report(self, report: StageReport) -> None:
        self._event({"state": "stage", **asdict(report), "text": str(report)})

    def _event(self, event: dict[str, Any]) -> None:
        self._tell({"type": "swap", "t_ns": time.time_ns(), **event})
