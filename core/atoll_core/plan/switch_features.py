# SPDX-License-Identifier: Apache-2.0
"""What a switch says of itself: make and version, and what each of its tables can hold; and who talks to it."""

from dataclasses import dataclass
from enum import StrEnum


class Runtime(StrEnum):
    """The framework that speaks OpenFlow to the switches, by the name its users know."""

    OS_KEN = "os-ken"
    RYU = "ryu"


@dataclass(frozen=True, slots=True)
class SwitchDescription:
    """The texts a switch describes itself by (OpenFlow 1.3.5, 7.3.5.1); empty where it has nothing to say."""

    manufacturer: str
    hardware: str
    software: str
    serial: str
    datapath: str


@dataclass(frozen=True, slots=True)
class TableFeatures:
    """What the tables ``first`` to ``last``, all alike, take (OpenFlow 1.3.5, 7.3.5.5), in the words of FlowEntry.

    ``matches``: fields of Match, and "untagged"; ``required``: those that no entry may leave out; ``actions``: classes
    of Action; each in the alphabet's order. What entries never use (MAC addresses, MPLS ...) is left out.
    ``max_entries`` 0: the switch does not say.
    """

    first: int
    last: int
    name: str
    max_entries: int
    matches: tuple[str, ...]
    required: tuple[str, ...]
    actions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SwitchFeatures:
    """All of a switch's answers about itself. ``tables`` is empty if it does not tell what its tables take."""

    description: SwitchDescription
    tables: tuple[TableFeatures, ...]


@dataclass(frozen=True, slots=True)
class UnmanagedState:
    """Groups and meters that a switch holds, by their numbers, ascending. Plans use neither."""

    groups: tuple[int, ...] = ()
    meters: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.groups or self.meters)
