# SPDX-License-Identifier: Apache-2.0
"""``benchmarks/traffic/run --fairness``: fairness among the channels of one process, and four thousand channels."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchkit.json_results import read_earlier, write_results
from tests.guests.channels_guest import Finding, Trial
from tests.support.channel_trials import in_real_time, in_virtual_time, room_for_all
from tests.support.loopback_channels import on_loopback
from tests.support.traffic_job import jain

_LIMIT_S = 1500
_FLOW_S = 0.25  # two round trips
_NAIVE_TURNS = 3  # of a flow: to ask, to read, to see the end


@dataclass(frozen=True)
class Outcome:
    """The figures of a trial, as in the table."""

    channels: int
    seconds: int | None  # of the clock that counts there; None: as long as it took
    flows: int
    least: int
    most: int
    starved: int
    jain: float
    served: list[float]
    utilisation: float | None
    lost: float | None
    core: float | None  # share of one that the client took; of real time only
    failed: int
    wall_s: float
    longest_wait_s: float | None = None  # of a ready channel for its service; None: measured before that was


@dataclass(frozen=True)
class Case:
    """A trial under a name."""

    group: str
    name: str
    trial: Trial

    @property
    def key(self) -> str:
        """Its name among all."""
        return f"{self.group}: {self.name}"

    @property
    def clock(self) -> str:
        """Whose time it takes."""
        return "virtual" if self.trial.link == "tc" else "real"


LOOPBACK, SHARES, SUSTAINED = "loopback", "shares", "sustained"
GROUPS = (LOOPBACK, SHARES, SUSTAINED)
CLOCKS = ("real", "virtual")


def cases(*, quick: bool) -> list[Case]:
    """The trials over the MEO link. Those on loopback are pairs, and have no trial."""
    cases: list[Case] = []
    for channels, seconds, naive_s in [(20, 54, 20), (200, 54, 20), (2000, 136, 10)]:
        room = room_for_all(channels)
        turn_us = round(1e6 * _FLOW_S / channels / _NAIVE_TURNS)
        cases += [
            Case(SHARES, f"{channels}, atoll-host", Trial(channels, seconds, queue_bytes=room)),
            Case(SHARES, f"{channels}, naive", Trial(channels, naive_s, queue_bytes=room, naive_work_us=0)),
            Case(
                SHARES,
                f"{channels}, naive, half the time it needs",
                Trial(channels, naive_s, queue_bytes=room, naive_work_us=2 * turn_us),
            ),
        ]
    for name, queue_bytes, think_ms in [
        ("2 MB, think time 1.06 s", 2_000_000, 1060),
        ("42.4 MB, a flow of each", room_for_all(4000), 0),
        ("5 MB, one BDP", 5_000_000, 0),
        ("2 MB", 2_000_000, 0),
    ]:
        for link, seconds in [("engine", 30), ("tc", 20)]:
            trial = Trial(4000, seconds, link=link, queue_bytes=queue_bytes, think_ms=think_ms)
            case = Case(SUSTAINED, name, trial)
            cases.append(replace(case, name=f"{name}, {case.clock}"))
    return [case for case in cases if case.trial.channels == 20] if quick else cases


def measure(groups: Sequence[str], clocks: Sequence[str], file: Path | None, *, quick: bool) -> dict[str, Outcome]:
    """Make the trials of these groups by these clocks, and print each. Other results in the file are kept."""
    earlier = read_earlier(file, "fairness") if file is not None else {}
    known = {name: Outcome(**outcome) for name, outcome in earlier.get("fairness", {}).items()}

    def note(key: str, outcome: Outcome) -> None:
        known[key] = outcome
        wait_ms = "" if outcome.longest_wait_s is None else f"{outcome.longest_wait_s * 1e3:.1f} ms"
        print(
            f"{key}: Jain's index {outcome.jain:.5f}, {outcome.least} to {outcome.most} flows, longest wait {wait_ms}",
            flush=True,
        )
        if file is not None:
            write_results(file, {"fairness": {name: asdict(each) for name, each in known.items()}})

    with tempfile.TemporaryDirectory() as scratch:
        wanted = LOOPBACK in groups and "real" in clocks
        for channels in ((20,) if quick else (20, 200, 2000)) if wanted else ():
            began = time.monotonic()
            naive, ours = on_loopback(channels, Path(scratch))
            wall_s = time.monotonic() - began
            note(f"{LOOPBACK}: {channels}, atoll-host", _of_flows(ours.flows, ours.longest_wait_s, wall_s))
            note(f"{LOOPBACK}: {channels}, naive", _of_flows(naive.flows, naive.longest_wait_s, wall_s))
        for number, case in enumerate(cases(quick=quick)):
            if case.group in groups and case.clock in clocks:
                began = time.monotonic()
                if case.clock == "virtual":
                    finding = in_virtual_time(case.trial, Path(scratch, str(number)), _LIMIT_S)
                else:
                    finding = in_real_time(case.trial, _LIMIT_S)
                note(case.key, _of_finding(case.trial, finding, time.monotonic() - began))
    return known


def _of_flows(flows: list[int], longest_wait_s: float, wall_s: float) -> Outcome:
    return Outcome(
        channels=len(flows),
        seconds=None,
        flows=sum(flows),
        least=min(flows),
        most=max(flows),
        starved=flows.count(0),
        jain=jain(flows),
        served=[],
        utilisation=None,
        lost=None,
        core=None,
        failed=0,
        wall_s=wall_s,
        longest_wait_s=longest_wait_s,
    )


def _of_finding(trial: Trial, finding: Finding, wall_s: float) -> Outcome:
    plain = asdict(_of_flows(finding.flows, finding.longest_wait_s, wall_s))
    plain |= {
        "seconds": trial.seconds,
        "served": finding.served,
        "utilisation": finding.utilisation,
        "lost": finding.lost,
        "core": finding.client_cpu_s / trial.seconds if trial.link == "engine" else None,
        "failed": finding.failed,
    }
    return Outcome(**plain)
