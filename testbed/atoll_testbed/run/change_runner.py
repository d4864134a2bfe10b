# SPDX-License-Identifier: Apache-2.0
"""The scheduled changes of a run, carried out at their instants and written down (docs/contracts.md, its events)."""

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


async def carry_out(
    testbed: Testbed,
    experiment: Experiment,
    backend: Backend,
    schedule: Sequence[Scheduled],
    begin_ns: int,
    clock: RunClock,
    record: Record,
) -> None:
    """Make every change at its instant; ``begin_ns``: when the load begins, by the run's clock.

    After one that failed the version before it stands, and those behind it, which were planned from where it would
    have led, are not attempted: the events say so. Raises RunError when an event cannot be written.
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
    """What takes the events of a change's swap: they are the run's, with the change's number."""

    def take(event: dict[str, Any]) -> None:
        fields = {key: told for key, told in event.items() if key not in ("type", "t_ns")}
        record(str(event["type"]), int(event["t_ns"]), change=number, **fields)

    return take


def _in_one_line(error: AtollError) -> str:
    return "; ".join(str(error).splitlines())
