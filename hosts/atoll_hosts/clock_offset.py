# SPDX-License-Identifier: Apache-2.0
"""How far another machine's clock is off, measured over the agent's stream (Cristian's algorithm)."""

import time
from dataclasses import dataclass

from atoll_hosts.agent import Agent

_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """A clock less this machine's: the truth is within ``bound_ns`` of ``offset_ns``. ``rtt_ns``: of the stream."""

    offset_ns: int
    bound_ns: int
    rtt_ns: int

    @property
    def known_ns(self) -> int:
        """The offset, if the measurement shows that there is one; else 0."""
        return self.offset_ns if abs(self.offset_ns) > self.bound_ns else 0

    def __str__(self) -> str:
        return f"{self.offset_ns / 1e6:+.2f} ms (+/- {self.bound_ns / 1e6:.2f} ms)"


async def clock_offset(agent: Agent) -> ClockOffset:
    """The best of some rounds: the answer was read off the clock at some instant between asking and hearing it.

    Raises LabError when the agent ends meanwhile.
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
