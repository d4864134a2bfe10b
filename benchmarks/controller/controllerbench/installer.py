# SPDX-License-Identifier: Apache-2.0
"""The interface of the compared controllers and tools: install a plan, change it, verify the switch."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from controllerbench.entries import Pair
from controllerbench.switch import Bench


class Installer(ABC):
    """One controller or tool. ``start`` and ``stop`` are not measured; ``install`` and ``change`` are.

    Both return when the tool has verified, by the means of its users, that the switch has the plan. ``start``
    raises LabError if the tool is not installed here.
    """

    name: ClassVar[str]
    checks: ClassVar[str]  # how it verifies the switch

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def start(self) -> None:
        """Make ready; the switch is connected and empty afterwards."""
        self.bench.disconnect()

    def stop(self) -> None:
        """Stop the controller."""
        self.bench.disconnect()

    def empty(self) -> None:
        """Return to an empty plan, between measurements."""
        self.bench.clear()

    @abstractmethod
    def install(self, plan: Sequence[Pair]) -> None:
        """Bring the plan to an empty switch."""

    @abstractmethod
    def change(self, old: Sequence[Pair], new: Sequence[Pair]) -> None:
        """Bring a switch that holds one plan to another one."""
