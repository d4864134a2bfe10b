# SPDX-License-Identifier: Apache-2.0
"""Make the scheduled changes of a run at their times, and record them as events (docs/contracts.md)."""

from collections.abc import Sequence

from atoll_controller.planner.change_schedule import Scheduled
from atoll_core.errors import AtollError, LabError, PlanError
from atoll_core.events.events import SwapEvent
from atoll_core.experiment.experiment import Experiment
from atoll_core.experiment.setting_texts import version_differences
from atoll_core.plan.plan import Backend
from atoll_testbed.run.run_clock import RunClock
from atoll_testbed.run.run_recorder import RunRecorder
from atoll_testbed.testbed import Testbed


async def run_changes(
    testbed: Testbed,
    experiment: Experiment,
    backend: Backend,
    schedule: Sequence[Scheduled],
    begin_ns: int,
    clock: RunClock,
    recording: RunRecorder,
) -> None:
    """Make every change at its time; ``begin_ns``: start of the load by the run's clock.

    Changes of the load are in the configurations of its jobs, which make them by themselves.
    If a change fails, the version before it stays active, and later changes, which were planned from its result, are
    not attempted. Events record this. Raises RunError if an event cannot be written.
    """
    versions = experiment.versions
    for each, before in zip(schedule, versions, strict=False):
        due_ns = begin_ns + each.version.at.ns
        await clock.sleep_until(due_ns)
        what = list(version_differences(before, each.version))
        recording.event("change", change=each.number, state="begin", planned_ns=due_ns, what=what)

        def record_swap(event: SwapEvent, number: int = each.number) -> None:
            recording.event("swap", event.t_ns, state=event.state, change=number, **event.details)

        try:
            for link in each.links:
                await testbed.set_link(link.box, link.request)
            if each.swap.stages:
                with testbed.events.subscribe(record_swap, SwapEvent):
                    await testbed.apply(each.experiment, backend)
        except (LabError, PlanError) as error:
            recording.event("change", change=each.number, state="failed", message=_in_one_line(error))
            return
        recording.event("change", change=each.number, state="end", drain_ns=each.least.ns)


def _in_one_line(error: AtollError) -> str:
    return "; ".join(str(error).splitlines())
