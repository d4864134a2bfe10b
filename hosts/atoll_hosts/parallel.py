# SPDX-License-Identifier: Apache-2.0
"""Doing one thing on many machines at once: all of them, each with its own outcome."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from atoll_core.errors import AtollError
from atoll_core.lab.inventory import InventoryMachine

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What came of it on one machine: ``found``, or why not."""

    machine: str
    found: T | None
    error: str | None


async def on_each(
    machines: Sequence[InventoryMachine],
    work: Callable[[InventoryMachine], Awaitable[T]],
    tell: Callable[[Outcome[T]], None] = lambda _: None,
) -> list[Outcome[T]]:
    """Do ``work`` on all machines side by side; outcomes in their order, told as they come.

    A machine that fails (AtollError) does not keep the others.
    """

    async def on(machine: InventoryMachine) -> Outcome[T]:
        try:
            outcome: Outcome[T] = Outcome(machine.name, await work(machine), None)
        except AtollError as error:
            outcome = Outcome(machine.name, None, str(error))
        tell(outcome)
        return outcome

    return list(await asyncio.gather(*(on(machine) for machine in machines)))
