# SPDX-License-Identifier: Apache-2.0
"""The clocks of a run: instants by CLOCK_MONOTONIC, which nobody can set, in the numbers of CLOCK_REALTIME.

Captures, events and jobs stamp by CLOCK_REALTIME. The offset of both clocks is taken once, when the run agrees on the
instant of its start; that it is another one later means that somebody has set the clock (clock_settime(2)); slewing,
as NTP does it, moves both clocks alike.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from atoll_hosts.clock_offset import ClockOffset

_READINGS = 5


class RunClock:
    """The time of a run from the agreement on its start on."""

    def __init__(self, machines: Mapping[str, ClockOffset]) -> None:
        """``machines``: how far the clocks of other machines are off from this one's."""
        self._offset_ns = _realtime_offset_ns()
        self._machines = machines
        self._step_ns = 0

    def now_ns(self) -> int:
        """Now, as CLOCK_REALTIME would show it had nobody set it."""
        return time.monotonic_ns() + self._offset_ns

    async def sleep_until(self, t_ns: int) -> None:
        """Return at once if the instant is past."""
        await asyncio.sleep(max(0, t_ns - self.now_ns()) / 1e9)

    def look(self) -> None:
        """See whether the clock has been set; the furthest that it was off is kept."""
        step_ns = _realtime_offset_ns() - self._offset_ns
        self._step_ns = max(self._step_ns, step_ns, key=abs)

    def told(self, machines: Mapping[str, ClockOffset]) -> dict[str, Any]:
        """The fields of event ``clocks`` (docs/contracts.md). ``machines``: their clocks' offsets now."""
        self.look()
        end_ns = _realtime_offset_ns()
        step_ns = end_ns - self._offset_ns
        return {
            "begin_offset_ns": self._offset_ns,
            "end_offset_ns": end_ns,
            "step_ns": self._step_ns,
            "machines": {
                name: {
                    "drift_ns": clock.offset_ns + step_ns - begin.offset_ns,  # our own step is none of theirs
                    "bound_ns": begin.bound_ns + clock.bound_ns,
                }
                for name, clock in machines.items()
                if (begin := self._machines.get(name)) is not None
            },
        }


def _realtime_offset_ns() -> int:
    """CLOCK_REALTIME less CLOCK_MONOTONIC, by the quickest of some readings."""
    readings = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(_READINGS)]
    before_ns, real_ns, after_ns = min(readings, key=lambda reading: reading[2] - reading[0])
    return real_ns - (before_ns + after_ns) // 2
