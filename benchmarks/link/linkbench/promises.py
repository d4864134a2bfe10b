# SPDX-License-Identifier: Apache-2.0
"""The bounds promised for the engine's figures, and checks of their medians."""

from collections.abc import Iterable
from dataclasses import dataclass

from linkbench.collect import DAY, Result
from linkbench.scenarios import ENGINE
from linkbench.throughput import FASTEST, GIGABIT


@dataclass(frozen=True, slots=True)
class Promise:
    """A bound on a figure of a scenario: of one case, or of each."""

    scenario: str
    figure: str
    most: float | None = None
    least: float | None = None
    cases: tuple[str, ...] = ()

    def kept(self, median: float) -> bool:
        """Whether a figure is within the bounds."""
        return (self.most is None or median <= self.most) and (self.least is None or median >= self.least)

    @property
    def bound(self) -> str:
        """As tables show it."""
        return f"<= {self.most:g}" if self.least is None else f">= {self.least:g}"


PROMISES = (
    Promise("throughput", "lost_packets", most=0, cases=(GIGABIT, FASTEST)),
    Promise("throughput", "box_overloaded", most=0, cases=(GIGABIT, FASTEST)),
    Promise("throughput", "forward_kpps", least=300, cases=(FASTEST,)),
    Promise("delay", "mean_us", most=50),
    Promise("delay", "p99_us", most=300),
    Promise("rate", "error_percent", most=0.1),
    Promise("rate", "scheduled_windows_over_rate", most=0),
    Promise("rate", "window_beyond_packets", most=0),
    Promise("joint", "udp_beyond_ms", most=0),
    Promise("joint", "tcp_beyond_ms", most=0),
    Promise("classes", "worst_class_mean_us", most=50),
    Promise("classes", "worst_class_p99_us", most=300),
    Promise(DAY, "wall_s", most=120),
    Promise(DAY, "drift_ns", most=0),
)


@dataclass(frozen=True, slots=True)
class PromiseCheck:
    """A promise held against a result."""

    promise: Promise
    case: str
    median: float
    kept: bool


def verdicts(results: Iterable[Result]) -> list[PromiseCheck]:
    """The promises about measured figures, in their order."""
    ours = [result for result in results if result.box == ENGINE]
    checked: list[PromiseCheck] = []
    for promise in PROMISES:
        for result in ours:
            median = result.median(promise.figure)
            of_it = result.scenario == promise.scenario and (not promise.cases or result.case in promise.cases)
            if of_it and median is not None:
                checked.append(PromiseCheck(promise, result.case, median, promise.kept(median)))
    return checked
