# SPDX-License-Identifier: Apache-2.0
"""Reduce the states of a link at every step to the rows of a trace: those at which it changes."""

from collections.abc import Iterable, Iterator

from atoll_core.description.link_trace import MAX_ROWS
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import LinkTrace, TraceRow
from atoll_core.units import Duration


def make_trace(states: Iterable[TraceRow], delay_step: Duration) -> LinkTrace:
    """The trace of the states that differ from the one written before: in delay by more than ``delay_step``, or else.

    Raises PlanError when that makes more rows than a trace may have, or when the link is blocked at first.
    """
    rows = tuple(_changed_states(states, delay_step))
    if rows[0].blocked:
        raise PlanError(
            "the link is blocked at the beginning of the trace, but paths are tested then; choose another --seed or "
            "--start"
        )
    if len(rows) > MAX_ROWS:
        raise PlanError(
            f"the trace would have {len(rows)} rows, but at most {MAX_ROWS} are possible; "
            "choose a shorter --duration or a longer --step"
        )
    return LinkTrace("", rows)


def _changed_states(states: Iterable[TraceRow], delay_step: Duration) -> Iterator[TraceRow]:
    last: TraceRow | None = None
    for state in states:
        if last is None or _differ(last, state, delay_step):
            last = state
            yield state


def _differ(last: TraceRow, state: TraceRow, delay_step: Duration) -> bool:
    if (last.rate, last.loss, last.blocked) != (state.rate, state.loss, state.blocked):
        return True
    return abs((state.delay or Duration(0)).ns - (last.delay or Duration(0)).ns) > delay_step.ns
