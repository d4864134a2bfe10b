# SPDX-License-Identifier: Apache-2.0
"""The clock offset of another machine, measured through its agent (Cristian's algorithm)."""

import time
from dataclasses import dataclass

from atoll_hosts.agent import Agent

_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """A clock less this machine's, exact to ``bound_ns``. ``rtt_ns``: of the request."""

    offset_ns: int
    bound_ns: int
    rtt_ns: int

    @property
    def known_ns(self) -> int:
        """The offset if it exceeds the bound of the measurement, else 0."""
        return self.offset_ns if abs(self.offset_ns) > self.bound_ns else 0

    def __str__(self) -> str:
        return f"{self.offset_ns / 1e6:+.2f} ms (+/- {self.bound_ns / 1e6:.2f} ms)"


async def clock_offset(agent: Agent) -> ClockOffset:
    """Measure the offset: the agent reads its clock at some time between request and answer; the shortest round counts.

    Raises LabError if the agent ends.
    """
    best: ClockOffset | None = None
    for _ in range(_ROUNDS):
        begin_ns = time.monotonic_ns()
        asked_ns = time.time_ns()
        there_ns: int = (await agent.request("clock"))["t_ns"]
        rtt_ns = time.monotonic_ns() - begin_ns
        found = ClockOffset(there_ns - asked_ns - rtt_ns // 2, (rtt_ns + 1) // 2, rtt_ns)
        if best is None or found.rtt_ns < best.rtt_ns:
            best = found
    return best or ClockOffset(0, 0, 0)
