# SPDX-License-Identifier: Apache-2.0
"""Make the scheduled changes of a run at their times, and record them as events (docs/contracts.md)."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from atoll_controller.planner.change_schedule import Scheduled
from atoll_core.errors import AtollError, LabError, PlanError
from atoll_core.experiment.experiment import Experiment, version_differences
from atoll_core.plan.plan import Backend
from atoll_testbed.run.run_clock import RunClock
from atoll_testbed.testbed import Testbed

Record = Callable[..., None]
"""``record(type, t_ns, **fields)``: appends an event to the run's."""


async def run_changes(
    testbed: Testbed,
    experiment: Experiment,
    backend: Backend,
    schedule: Sequence[Scheduled],
    begin_ns: int,
    clock: RunClock,
    record: Record,
) -> None:
    """Make every change at its time; ``begin_ns``: start of the load by the run's clock.

    If a change fails, the version before it stays active, and later changes, which were planned from its result, are
    not attempted. Events record this. Raises RunError if an event cannot be written.
    """
    versions = experiment.versions
    for each, before in zip(schedule, versions, strict=False):
        due_ns = begin_ns + each.version.at.ns
        await clock.sleep_until(due_ns)
        what = list(version_differences(before, each.version))
        record("change", time.time_ns(), change=each.number, state="begin", planned_ns=due_ns, what=what)
        try:
            await testbed.apply(each.experiment, backend, tell=_with_change(each.number, record))
        except (LabError, PlanError) as error:
            record("change", time.time_ns(), change=each.number, state="failed", message=_in_one_line(error))
            return
        record("change", time.time_ns(), change=each.number, state="end", drain_ns=each.least.ns)


def _with_change(number: int, record: Record) -> Callable[[dict[str, Any]], None]:
    """A function that records events of a change's swap as the run's, with the change's number."""

    def take(event: dict[str, Any]) -> None:
        fields = {key: part for key, part in event.items() if key not in ("type", "t_ns")}
        record(str(event["type"]), int(event["t_ns"]), change=number, **fields)

    return take


def _in_one_line(error: AtollError) -> str:
    return "; ".join(str(error).splitlines())
