# SPDX-License-Identifier: Apache-2.0
"""Run the same work on many machines in parallel, with an outcome for each."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from atoll_core.errors import AtollError
from atoll_core.lab.inventory import InventoryMachine

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """The outcome on one machine: the result ``found``, or an error."""

    machine: str
    found: T | None
    error: str | None


async def on_each(
    machines: Sequence[InventoryMachine],
    work: Callable[[InventoryMachine], Awaitable[T]],
    tell: Callable[[Outcome[T]], None] = lambda _: None,
) -> list[Outcome[T]]:
    """Do ``work`` on all machines in parallel; returns outcomes in their order, and calls ``tell`` as they arrive.

    A machine that fails (AtollError) does not affect the others.
    """

    async def on(machine: InventoryMachine) -> Outcome[T]:
        try:
            outcome: Outcome[T] = Outcome(machine.name, await work(machine), None)
        except AtollError as error:
            outcome = Outcome(machine.name, None, str(error))
        tell(outcome)
        return outcome

    return list(await asyncio.gather(*(on(machine) for machine in machines)))
