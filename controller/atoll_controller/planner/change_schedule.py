# SPDX-License-Identifier: Apache-2.0
"""The changes that an experiment schedules, planned before anything runs: each version, and each swap to it. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

from atoll_apps.steering import steer
from atoll_controller.fabric.swap_plan import Swap, plan_swap
from atoll_controller.planner.running_changes import Request, link_requests
from atoll_core.errors import DescriptionError, Diagnostic, PlanError
from atoll_core.experiment.experiment import Experiment, SteeringVersion
from atoll_core.lab.network import Network
from atoll_core.plan.flow_entry import FlowEntry
from atoll_core.plan.plan import Backend, Plan
from atoll_core.plan.tc_settings import TIMER_SLACK
from atoll_core.units import Duration
from atoll_switches.capability_profile import refuse_unsupported


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A change of an experiment, and how it is carried out. ``number`` counts from 1."""

    number: int
    version: SteeringVersion
    experiment: Experiment  # as it is steered from then on
    swap: Swap  # without stages if chains and latencies stay
    links: tuple[tuple[str, Request], ...] = field(default=(), hash=False)  # boxes, and requests to their jobs

    @property
    def drain(self) -> Duration:
        """Its least duration: until the old version has drained."""
        return Duration(sum(stage.wait_ns for stage in self.swap.stages))


def plan_schedule(
    network: Network,
    experiment: Experiment,
    plan: Plan,
    backend: Backend = Backend.ENGINE,
    slack: Duration = TIMER_SLACK,
    *,
    hardware_only: bool = True,
) -> tuple[Scheduled, ...]:
    """Every scheduled change in order of time; each swap starts from the layout that the one before it leaves.

    ``plan``: that of the experiment, with which it begins. ``backend``, ``slack``, ``hardware_only``: as of the plan.
    Raises DescriptionError naming the line of the first change whose version does not fit a switch, whose versions
    cannot be distinguished, or whose links the backend cannot change, and of changes too close to each other or to the
    end.
    """
    current, layout, entries = _with_steering(experiment, experiment.versions[0]), plan.layout, plan.flows
    schedule: list[Scheduled] = []
    for number, (previous, version) in enumerate(pairwise(experiment.versions), start=1):
        upcoming = _with_steering(experiment, version)
        try:
            links = tuple(link_requests(network, experiment, previous, version, backend, slack))
            swap = plan_swap(network, current, layout, upcoming)
            for stage_entries in entries_by_stage(entries, swap) if hardware_only else ():
                refuse_unsupported(network, stage_entries)
        except PlanError as error:
            messages = [f"change {number} (at {version.at}): {line}" for line in str(error).splitlines()]
            mistakes = [Diagnostic(experiment.file, version.line, message) for message in messages]
            raise DescriptionError(mistakes) from None
        schedule.append(Scheduled(number, version, upcoming, swap, links))
        current, layout = upcoming, swap.layout
        entries = steer(network, upcoming, layout).entries
    _require_time(experiment, schedule)
    return tuple(schedule)


def _with_steering(experiment: Experiment, version: SteeringVersion) -> Experiment:
    """The whole run's experiment with chains and latencies of a version: no program of the run begins again."""
    return replace(experiment, chain=version.chain, branches=version.branches, latency=version.latency)


def _require_time(experiment: Experiment, schedule: list[Scheduled]) -> None:
    """DescriptionError when a change comes, or the run ends, before the change before it can be over."""
    ends = [*(change.version.at for change in schedule[1:]), experiment.duration]
    mistakes = [
        Diagnostic(
            experiment.file,
            change.version.line,
            f"change {change.number} (at {change.version.at}): the previous version needs {change.drain} to drain, so "
            f"{end} is too early for {'the next change' if end is not ends[-1] else 'the end'}",
        )
        for change, end in zip(schedule, ends, strict=False)  # without changes there is only the end
        if change.version.at.ns + change.drain.ns >= end.ns
    ]
    if mistakes:
        raise DescriptionError(mistakes)


def entries_by_stage(entries: tuple[FlowEntry, ...], swap: Swap) -> Iterator[tuple[FlowEntry, ...]]:
    """The entries on the switches after each stage: for some time those of both versions."""
    installed = {entry.identity: entry for entry in entries}
    for stage in swap.stages:
        for entry in stage.add:
            installed[entry.identity] = entry
        yield tuple(installed.values())
        for entry in stage.delete:
            del installed[entry.identity]
