# SPDX-License-Identifier: Apache-2.0
"""Clocks during a run: steps of a clock, and the drift between the machines' clocks."""

from collections.abc import Iterator
from typing import TypedDict

from atoll_analysis.tables.run_data import RunData
from atoll_analysis.verdict.findings import Finding, FindingCode

STEP_NOTICED_MS = 0.1
STEP_MS = 5.0
"""A step of CLOCK_REALTIME moves every stamp behind it: windows, RTTs and instants are wrong by as much."""
DRIFT_NOTICED_MS = 1.0
DRIFT_MS = 50.0
"""The most by which instants of different machines may differ: what the start of clients may (``start_skew``)."""


class Drift(TypedDict):
    """Drift of a machine's clock against that of the machine that ran the experiment, over the measurement."""

    drift_ms: float  # drift within the measurement; positive: the machine's clock is fast
    bound_ms: float  # largest error of this measurement


class ClockFigures(TypedDict):
    """Steps and drifts from the comparison before the measurement to its end."""

    step_ms: float  # largest step of CLOCK_REALTIME; positive: forward
    drifts: dict[str, Drift]  # drift of each machine that has a clock of its own


def clock_figures(data: RunData) -> ClockFigures | None:
    """Return the figures; None when the run has not recorded them."""
    event = next(iter(data.of_type("clocks")), None)
    if event is None:
        return None
    drifts = {
        name: Drift(drift_ms=found["drift_ns"] / 1e6, bound_ms=found["bound_ns"] / 1e6)
        for name, found in event["machines"].items()
    }
    return ClockFigures(step_ms=event["step_ns"] / 1e6, drifts=drifts)


def judge_clocks(clocks: ClockFigures | None) -> Iterator[Finding]:
    """Return findings for steps and drifts that affect figures."""
    if clocks is None:
        return
    step_ms = abs(clocks["step_ms"])
    if step_ms > STEP_NOTICED_MS:
        yield Finding(FindingCode.CLOCK_STEPPED, _stepped(clocks["step_ms"]), grave=step_ms > STEP_MS)
    for name, drift in clocks["drifts"].items():
        certain_ms = abs(drift["drift_ms"]) - drift["bound_ms"]
        if certain_ms > DRIFT_NOTICED_MS:
            yield Finding(FindingCode.CLOCK_DRIFTED, _drifted(name, drift), grave=certain_ms > DRIFT_MS)


def _stepped(step_ms: float) -> str:
    size = f"{step_ms / 1e3:+.3f} s" if abs(step_ms) >= 1000 else f"{step_ms:+.2f} ms"
    return f"the clock was set by {size} during the measurement, bound {STEP_MS:g} ms"


def _drifted(name: str, drift: Drift) -> str:
    by = f"{drift['drift_ms']:+.2f} ms (± {drift['bound_ms']:.2f} ms)"
    return f"the clock of {name} drifted by {by} during the measurement, bound {DRIFT_MS:g} ms: run chrony there"
