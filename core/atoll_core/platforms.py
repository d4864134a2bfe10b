# SPDX-License-Identifier: Apache-2.0
"""The platforms of a lab, by the names that ``--on``, manifests and the API use."""

from dataclasses import dataclass
from pathlib import Path

MININET = "mininet"
"""On this machine, emulated in real time."""

VIRTUAL = "virtual"
"""On this machine, emulated in virtual time."""

HARDWARE = "hardware"
"""In a rack: on the machines and switches of an inventory."""

CAPTURES = "captures"
"""No lab: the place of runs that were imported from captures."""

PLATFORMS = (VIRTUAL, MININET, HARDWARE)


@dataclass(frozen=True, slots=True)
class LabTarget:
    """The lab that a command or a daemon works on.

    ``inventory``: the file that describes the machines of a lab of real ones; each inventory is a lab of its own.
    """

    platform: str = MININET
    inventory: Path | None = None

    def __str__(self) -> str:
        return "this machine's lab" if self.inventory is None else f"the lab on the machines of {self.inventory}"
