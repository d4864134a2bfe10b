# SPDX-License-Identifier: Apache-2.0
"""The clock and the start time of a run: times of CLOCK_MONOTONIC, which cannot be set, as those of CLOCK_REALTIME.

Captures, events and jobs use CLOCK_REALTIME. The offset between both clocks is measured once, when the start time is
chosen. A different offset later means that the clock was set (clock_settime(2)); slewing, as by NTP, changes both
clocks alike. The load starts far enough in the future that every program has started and waits for it.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from atoll_hosts.machine import ClockOffset

_READINGS = 5

_MIN_LEAD_NS = 1_000_000_000
_LEAD_PER_PROGRAM_NS = 30_000_000
"""An agent starts programs one after another; three times what one takes on a busy two-core machine."""


def start_lead_ns(programs: int) -> int:
    """The time from the start of this number of programs to the start of the load."""
    return max(_MIN_LEAD_NS, programs * _LEAD_PER_PROGRAM_NS)


def start_event(at_ns: int, clocks: Mapping[str, ClockOffset]) -> dict[str, Any]:
    """The fields of event ``start`` (docs/contracts.md): the time by this machine's clock, and clock offsets."""
    offsets = {name: {"offset_ns": clock.known_ns, "bound_ns": clock.bound_ns} for name, clock in clocks.items()}
    return {"at_ns": at_ns, "clocks": offsets}


class RunClock:
    """The clock of a run, from the choice of its start time on."""

    def __init__(self, machines: Mapping[str, ClockOffset]) -> None:
        """``machines``: clock offsets of other machines."""
        self._offset_ns = _realtime_offset_ns()
        self._machines = machines
        self._step_ns = 0

    def now_ns(self) -> int:
        """The time that CLOCK_REALTIME would show if it had not been set."""
        return time.monotonic_ns() + self._offset_ns

    async def sleep_until(self, t_ns: int) -> None:
        """Sleep until a time; return at once if it is past."""
        await asyncio.sleep(max(0, t_ns - self.now_ns()) / 1e9)

    def check_step(self) -> None:
        """Check whether the clock has been set, and keep the largest step."""
        step_ns = _realtime_offset_ns() - self._offset_ns
        self._step_ns = max(self._step_ns, step_ns, key=abs)

    def clocks_event(self, machines: Mapping[str, ClockOffset]) -> dict[str, Any]:
        """The fields of event ``clocks`` (docs/contracts.md). ``machines``: their clocks' offsets now."""
        self.check_step()
        end_ns = _realtime_offset_ns()
        step_ns = end_ns - self._offset_ns
        return {
            "begin_offset_ns": self._offset_ns,
            "end_offset_ns": end_ns,
            "step_ns": self._step_ns,
            "machines": {
                name: {
                    "drift_ns": clock.offset_ns + step_ns - begin.offset_ns,  # without this machine's own step
                    "bound_ns": begin.bound_ns + clock.bound_ns,
                }
                for name, clock in machines.items()
                if (begin := self._machines.get(name)) is not None
            },
        }


def _realtime_offset_ns() -> int:
    """CLOCK_REALTIME less CLOCK_MONOTONIC, by the fastest of some readings."""
    readings = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(_READINGS)]
    before_ns, real_ns, after_ns = min(readings, key=lambda reading: reading[2] - reading[0])
    return real_ns - (before_ns + after_ns) // 2
