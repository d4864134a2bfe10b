# SPDX-License-Identifier: Apache-2.0
"""Figures of a start on all machines: the time until the last one, and the spread."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Start:
    """One start. ``last_s``: the last program, after the command; ``spread_ms``: after the first program."""

    started: int  # machines on which the program did start
    last_s: float
    spread_ms: float


def start_of(command_ns: int, stamps: Mapping[str, int]) -> Start:
    """From the command and the stamps of the programs, all by one clock. There is at least one stamp."""
    first, last = min(stamps.values()), max(stamps.values())
    return Start(len(stamps), (last - command_ns) / 1e9, (last - first) / 1e6)
