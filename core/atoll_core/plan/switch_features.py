# SPDX-License-Identifier: Apache-2.0
"""A switch's description of itself: model and version, and the features of its tables."""

from dataclasses import dataclass
from enum import StrEnum


class Runtime(StrEnum):
    """The framework that speaks OpenFlow to the switches, by the name its users know."""

    OS_KEN = "os-ken"
    RYU = "ryu"


@dataclass(frozen=True, slots=True)
class SwitchDescription:
    """The texts with which a switch describes itself (OpenFlow 1.3.5, 7.3.5.1); empty where it has none."""

    manufacturer: str
    hardware: str
    software: str
    serial: str
    datapath: str


@dataclass(frozen=True, slots=True)
class TableFeatures:
    """The features of the equal tables ``first`` to ``last`` (OpenFlow 1.3.5, 7.3.5.5), in terms of FlowEntry.

    ``matches``: fields of Match, and "untagged"; ``required``: fields that every entry must match; ``actions``: classes
    of Action; each in alphabetical order. Features that no entry uses (MAC addresses, MPLS ...) are left out.
    ``max_entries`` 0: not reported.
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
    """Description and table features. ``tables`` is empty if the switch does not report them."""

    description: SwitchDescription
    tables: tuple[TableFeatures, ...]


@dataclass(frozen=True, slots=True)
class UnmanagedState:
    """Groups and meters on a switch, by their numbers, ascending. Plans use neither."""

    groups: tuple[int, ...] = ()
    meters: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.groups or self.meters)
