# SPDX-License-Identifier: Apache-2.0
"""The ways to bring a plan to the switch: what each is asked, and what it does to make sure."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from controllerbench.entries import Pair
from controllerbench.switch import Bench


class Installer(ABC):
    """One controller or tool. ``start`` and ``stop`` are not measured; ``install`` and ``change`` are.

    Both return when the way itself is sure that the switch holds the plan, by the means its users have. ``start``
    raises LabError when the way cannot be had here.
    """

    name: ClassVar[str]
    checks: ClassVar[str]  # how it makes sure

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def start(self) -> None:
        """Make ready; the switch is connected and empty afterwards."""
        self.bench.disconnect()

    def stop(self) -> None:
        """End what was started."""
        self.bench.disconnect()

    def empty(self) -> None:
        """Back to an empty plan, between measurements."""
        self.bench.clear()

    @abstractmethod
    def install(self, plan: Sequence[Pair]) -> None:
        """Bring the plan to an empty switch."""

    @abstractmethod
    def change(self, old: Sequence[Pair], new: Sequence[Pair]) -> None:
        """Bring a switch that holds one plan to another one."""
