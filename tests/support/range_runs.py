# SPDX-License-Identifier: Apache-2.0
"""Runs in virtual time of values at the ends of their ranges."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from atoll_controller.planner.change_schedule import plan_schedule
from atoll_controller.planner.planner import make_plan
from atoll_core.description.loader import load_experiment
from atoll_core.errors import DescriptionError, PlanError
from atoll_core.plan.plan import Backend
from tests.support.documented_ranges import Extreme, write_descriptions
from tests.support.sandbox import ATOLL

LIMIT_S = 900
"""After this long of the machine's time, a run is taken to hang."""
NOT_RUN = ("duration=168 h",)
"""A week of virtual time takes days of the machine's."""
OVERLOADS = (
    (("flows_per_s=1000000",), {"FLOWS_FAILED"}),
    (("captures.buffer=1 MiB", "udp.rate=10 Gbit/s"), {"CAPTURE_DROPPED"}),
    (("udp.rate=10 Gbit/s",), {"UDP_RATE", "BOX_OVERLOADED", "LOSS_DIFFERS"}),
)
"""Values that together are more than any machine can do, and the codes of findings that say so. A burst of UDP at that
rate is larger than a socket's buffer."""


def refusal(folder: Path, wanted: Sequence[Extreme], backend: Backend = Backend.ENGINE) -> str:
    """The reason why these values are refused; empty if a plan can be made."""
    try:
        described = load_experiment(write_descriptions(folder, wanted))
        plan_schedule(*described, make_plan(*described, backend), backend)
    except (DescriptionError, PlanError) as error:
        return str(error)
    return ""


def batches(folder: Path, wanted: Sequence[tuple[Extreme, ...]], size: int) -> list[list[Extreme]]:
    """The parts that are not refused, in groups of at most ``size`` of independent keys that make a plan together."""
    groups: list[list[tuple[Extreme, ...]]] = []
    for part in wanted:
        if not _independent(part) or refusal(folder, part):
            continue
        free = [group for group in groups if len(group) < size and _independent([*_flat(group), *part])]
        group = next((group for group in free if not refusal(folder, [*_flat(group), *part])), None)
        if group is None:
            groups.append([part])
        else:
            group.append(part)
    return [_flat(group) for group in groups]


def _flat(group: Sequence[tuple[Extreme, ...]]) -> list[Extreme]:
    return [each for part in group for each in part]


def _independent(values: Sequence[Extreme]) -> bool:
    """Whether no key is another one or a part of it."""
    return all(_apart(one, other) for number, one in enumerate(values) for other in values[:number])


def _apart(one: Extreme, other: Extreme) -> bool:
    shorter, longer = sorted((one.place, other.place), key=len)
    return longer[: len(shorter)] != shorter


def failures(folder: Path, wanted: Sequence[Extreme]) -> Iterator[str]:
    """A line for every value, or smallest group of values, with which a run fails."""
    folder.mkdir()
    why = failure(folder, wanted)
    if not why:
        return
    middle = len(wanted) // 2
    halves = [*failures(folder / "a", wanted[:middle]), *failures(folder / "b", wanted[middle:])] if middle else []
    yield from halves or [f"{', '.join(map(str, wanted))}: {why}"]


def failure(folder: Path, wanted: Sequence[Extreme]) -> str:
    """The reason why a run with these values, which are not refused, is not valid; empty if it is."""
    experiment = write_descriptions(folder, wanted)
    backend = Backend.ENGINE if refusal(folder, wanted, Backend.TC) else Backend.TC
    words = ["run", "--on", "virtual", "--json", "--backend", backend.value, experiment.name]
    try:
        done = subprocess.run([ATOLL, *words], cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"does not end within {LIMIT_S} s"
    if done.returncode not in (0, 3):
        return f"exit code {done.returncode}: {done.stderr[-500:]}"
    summary = json.loads(done.stdout)
    keys = [str(each) for each in wanted]
    overloads = (codes for ends, codes in OVERLOADS if all(any(key.endswith(end) for key in keys) for end in ends))
    expected = set[str]().union(*overloads)
    return "; ".join(
        text for text, code in zip(summary["reasons"], summary["reason_codes"], strict=True) if code not in expected
    )
