# SPDX-License-Identifier: Apache-2.0
"""Rate, capacity, queue and delay of one direction of a link over time: its trace, and changes of the run."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

from atoll_core.experiment.experiment import LinkDirection
from atoll_core.units import Duration, Rate, Size


class LinkStep(NamedTuple):
    """Rate, queue and delay from an instant until the next step."""

    since_ns: int
    rate: Rate
    queue: Size
    blocked: bool  # all packets that the link sends are lost
    delay: Duration


@dataclass(frozen=True, slots=True)
class LinkOverTime:
    """Steps in order of time; the first one also applies before its instant, the last one until the end."""

    steps: tuple[LinkStep, ...]

    def capacity_bytes(self, from_ns: int, to_ns: int) -> float:
        """Return the most bytes that the link can send between two instants."""
        spans = self.spans(from_ns, to_ns)
        return sum(step.rate.bit_s * (end_ns - begin_ns) for begin_ns, end_ns, step in spans) / (8 * 10**9)

    def mean_rate(self, from_ns: int, to_ns: int) -> Rate:
        """Return the mean rate between two instants; of an empty time the rate at its beginning."""
        if from_ns >= to_ns:
            return self.at(from_ns).rate
        return Rate(round(8 * 10**9 * self.capacity_bytes(from_ns, to_ns) / (to_ns - from_ns)))

    def rate_range(self, from_ns: int, to_ns: int) -> tuple[Rate, Rate]:
        """Return the lowest and the highest rate between two instants."""
        rates = [step.rate for _, _, step in self.spans(from_ns, to_ns)] or [self.at(from_ns).rate]
        return min(rates), max(rates)

    def compressions(self) -> Iterator[tuple[int, int, float]]:
        """Yield begin, end and bytes of each time in which packets arrive more closely than they were sent.

        When the delay falls, later packets reach those in propagation: they arrive among them, or with the last one.
        ``bytes``: the most that does.
        """
        last_ns = 0  # when the last of those in propagation arrives
        for before, after in pairwise(self.steps):
            last_ns = max(last_ns, after.since_ns + before.delay.ns)
            if after.since_ns + after.delay.ns < last_ns:
                sent_bytes = self.capacity_bytes(after.since_ns, last_ns - after.delay.ns)
                yield after.since_ns + after.delay.ns, last_ns, sent_bytes

    def at(self, t_ns: int) -> LinkStep:
        """Return the step that applies at an instant."""
        return self.steps[self._index(t_ns)]

    def _index(self, t_ns: int) -> int:
        return max(0, bisect_right(self.steps, t_ns, key=lambda step: step.since_ns) - 1)

    def spans(self, from_ns: int, to_ns: int) -> Iterator[tuple[int, int, LinkStep]]:
        """Yield begin, end and step of each part of a time; nothing of an empty one."""
        steps = self.steps[self._index(from_ns) : self._index(to_ns) + 1]
        instants = [from_ns, *(step.since_ns for step in steps[1:]), to_ns]
        for (begin_ns, end_ns), step in zip(pairwise(instants), steps, strict=True):
            if begin_ns < end_ns:
                yield begin_ns, end_ns, step


def link_over_time(versions: Iterable[tuple[int, LinkDirection]], trace_ns: int = 0) -> LinkOverTime:
    """Return a direction over time from its versions and the instants (ns) since which they apply.

    ``trace_ns``: the instant at which a trace began. A direction that follows a trace has one version.
    """
    steps: list[LinkStep] = []
    for since_ns, link in versions:
        if link.trace:
            for row in link.trace.rows:
                delay = link.delay if row.delay is None else row.delay
                steps.append(LinkStep(trace_ns + row.t.ns, row.rate or link.rate, link.queue, row.blocked, delay))
        else:
            steps.append(LinkStep(since_ns, link.rate, link.queue, blocked=False, delay=link.delay))
    return LinkOverTime(tuple(next(equal_steps) for _, equal_steps in groupby(steps, key=lambda step: step[1:])))
