# SPDX-License-Identifier: Apache-2.0
"""Scheduled changes of a run as recorded in its events: when each version was active, a link's rate over time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from atoll_analysis.tables.directions import TO_ISLAND, Direction, direction_of
from atoll_core.experiment.experiment import Experiment
from atoll_core.experiment.link_over_time import LinkOverTime, link_over_time
from atoll_core.experiment.setting_texts import version_differences

RecordedEvent = Mapping[str, Any]

NEVER_NS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ScheduledChange:
    """A scheduled change. ``turned_ns``: when packets had turned to its version; None: they never did.

    Instants are CLOCK_REALTIME; None: not reached. ``settled_ns``: when it had succeeded or failed.
    """

    number: int
    what: tuple[str, ...]
    planned_ns: int | None
    began_ns: int | None
    turned_ns: int | None
    ended_ns: int | None
    settled_ns: int
    drain_ns: int
    failure: str | None


def scheduled_changes(experiment: Experiment, events: Sequence[RecordedEvent]) -> tuple[ScheduledChange, ...]:
    """Every scheduled change, also those that were not attempted."""
    return tuple(
        _change(number, tuple(version_differences(before, after)), [e for e in events if e.get("change") == number])
        for number, (before, after) in enumerate(pairwise(experiment.versions), start=1)
    )


def steering_periods(
    experiment: Experiment, scheduled: Sequence[ScheduledChange]
) -> tuple[tuple[int, Experiment], ...]:
    """Return the instants (ns) at which versions became active, each with the experiment in it; the first instant is 0.

    A change of load and links alone begins no period.
    """
    first, *later = experiment.states
    periods = [(0, first)]
    for change, state in zip(scheduled, later, strict=True):
        if change.turned_ns is not None and state.steering != periods[-1][1].steering:
            periods.append((change.turned_ns, state))
    return tuple(periods)


def direction_over_time(
    experiment: Experiment,
    events: Sequence[RecordedEvent],
    origin_ns: int,
    box: str,
    direction: Direction = TO_ISLAND,
) -> LinkOverTime:
    """Return a direction of a link over CLOCK_REALTIME, by the changes that succeeded and its trace.

    ``origin_ns``: the start of the load.
    """
    index = [link.box for link in experiment.links].index(box)
    first, *later = experiment.states
    succeeded = [
        (change.began_ns, state)
        for change, state in zip(scheduled_changes(experiment, events), later, strict=True)
        if change.began_ns is not None and change.ended_ns is not None
    ]
    trace_ns = next((int(event["t_ns"]) for event in events if event.get("type") == "trace_start"), origin_ns)
    return link_over_time(
        [
            (since_ns, direction_of(state.links[index], direction))
            for since_ns, state in ((origin_ns, first), *succeeded)
        ],
        trace_ns,
    )


def _change(number: int, what: tuple[str, ...], events: list[RecordedEvent]) -> ScheduledChange:
    states = {str(event.get("state")): event for event in events if event.get("type") == "change"}
    began, ended, failed = (states.get(state) for state in ("begin", "end", "failed"))
    swaps = [event for event in events if event.get("type") == "swap"]
    shifts = [int(event["t_ns"]) for event in swaps if event.get("state") == "stage" and event.get("stage") == "shift"]
    is_undone = any(event.get("state") == "undone" for event in swaps)
    became_active = (failed is None or shifts) and not is_undone and (shifts or ended)
    return ScheduledChange(
        number=number,
        what=what,
        planned_ns=int(began["planned_ns"]) if began else None,
        began_ns=int(began["t_ns"]) if began else None,
        turned_ns=(shifts[-1] if shifts else _ns(ended)) if became_active else None,
        ended_ns=_ns(ended),
        settled_ns=_ns(ended or failed) or NEVER_NS,
        drain_ns=int(ended.get("drain_ns", 0)) if ended else 0,
        failure=str(failed.get("message")) if failed else None,
    )


def _ns(event: RecordedEvent | None) -> int | None:
    return int(event["t_ns"]) if event else None
