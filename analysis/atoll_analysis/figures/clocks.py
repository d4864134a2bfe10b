# SPDX-License-Identifier: Apache-2.0
"""Clocks during a run: steps of a clock, drift between the machines' clocks, and the clients' starts by one clock."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import TypedDict

from atoll_analysis.run_directory.directory import read_json_lines
from atoll_analysis.tables.run_data import RunData, is_load
from atoll_analysis.verdict.findings import Finding, FindingCode, caveat

STEP_CAVEAT_MS = 0.1
STEP_INVALID_MS = 5.0
"""A step of CLOCK_REALTIME moves every stamp behind it: windows, RTTs and instants are wrong by as much."""
DRIFT_CAVEAT_MS = 1.0
DRIFT_INVALID_MS = 50.0
"""Instants of different machines may differ by as much as the starts of clients."""
START_SPREAD_MS = 50.0
"""The most that may lie between the first client's start and the last one's without a caveat."""


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
        name: Drift(drift_ms=clock["drift_ns"] / 1e6, bound_ms=clock["bound_ns"] / 1e6)
        for name, clock in event["machines"].items()
    }
    return ClockFigures(step_ms=event["step_ns"] / 1e6, drifts=drifts)


def judge_clocks(clocks: ClockFigures | None) -> Iterator[Finding]:
    """Return findings for steps and drifts that affect figures."""
    if clocks is None:
        return
    step_ms = abs(clocks["step_ms"])
    if step_ms > STEP_CAVEAT_MS:
        yield Finding(FindingCode.CLOCK_STEPPED, _stepped(clocks["step_ms"]), is_reason=step_ms > STEP_INVALID_MS)
    for name, drift in clocks["drifts"].items():
        least_drift_ms = abs(drift["drift_ms"]) - drift["bound_ms"]
        if least_drift_ms > DRIFT_CAVEAT_MS:
            yield Finding(FindingCode.CLOCK_DRIFTED, _drifted(name, drift), is_reason=least_drift_ms > DRIFT_INVALID_MS)


def _stepped(step_ms: float) -> str:
    size = f"{step_ms / 1e3:+.3f} s" if abs(step_ms) >= 1000 else f"{step_ms:+.2f} ms"
    return f"the clock was set by {size} during the measurement, bound {STEP_INVALID_MS:g} ms"


def _drifted(name: str, drift: Drift) -> str:
    drifted = f"drifted by {drift['drift_ms']:+.2f} ms (± {drift['bound_ms']:.2f} ms)"
    return f"the clock of {name} {drifted} during the measurement, bound {DRIFT_INVALID_MS:g} ms: run chrony there"


class StartFigures(TypedDict):
    """Start times of the clients' programs, by the clock of the machine that ran the experiment."""

    hosts: dict[str, float]  # ms between the agreed start and the start of each client; negative: it began early
    spread_ms: float  # time between the first and the last client
    late_p50_ms: float  # median of these
    late_max_ms: float  # maximum of these
    # largest error of these times by the comparison of clocks; None: all clients share one clock
    clock_bound_ms: float | None
    silent: list[str]  # clients that did not report when they began


def start_figures(data: RunData, logs: Path) -> StartFigures | None:
    """Return the figures; None when no client reported its start."""
    event = next(iter(data.of_type("start")), None)
    if event is None:
        return None
    clocks: dict[str, dict[str, int]] = event.get("clocks", {})
    began = dict(_start_times(data, logs))
    offsets_ms = {
        host: (t_ns - event["at_ns"] - clocks.get(host, {}).get("offset_ns", 0)) / 1e6
        for host, t_ns in began.items()
        if t_ns is not None
    }
    if not offsets_ms:
        return None
    bounds = [clocks[host]["bound_ns"] / 1e6 for host in offsets_ms if host in clocks]
    return StartFigures(
        hosts=offsets_ms,
        spread_ms=round(max(offsets_ms.values()) - min(offsets_ms.values()), 6),
        late_p50_ms=median(offsets_ms.values()),
        late_max_ms=max(offsets_ms.values()),
        clock_bound_ms=max(bounds, default=None),
        silent=[host for host, t_ns in began.items() if t_ns is None],
    )


def judge_start(start: StartFigures | None) -> Iterator[Finding]:
    """Return a finding if clients did not start together."""
    if start is not None and start["spread_ms"] > START_SPREAD_MS:
        offsets_ms = start["hosts"]
        first, last = min(offsets_ms, key=offsets_ms.__getitem__), max(offsets_ms, key=offsets_ms.__getitem__)
        yield caveat(
            FindingCode.START_SPREAD,
            f"clients began {start['spread_ms']:.1f} ms apart, bound {START_SPREAD_MS:g} ms: {first} first, {last} "
            f"last, {offsets_ms[last]:.1f} ms late; the load did not start at one instant",
        )


def unknown_start_notes(start: StartFigures | None) -> list[str]:
    """Return a note on clients whose start is unknown, if there are any."""
    hosts = ", ".join(start["silent"]) if start else ""
    return [f"{hosts} did not report when the load began there"] if hosts else []


def _start_times(data: RunData, logs: Path) -> Iterator[tuple[str, int | None]]:
    """Return the start time, by its own clock, of every client with channels."""
    for job in data.plan.jobs:
        if is_load(job):
            lines = read_json_lines(logs / f"{job.name}.out")
            yield job.host, next((int(line["t_ns"]) for line in lines if line.get("type") == "started"), None)
