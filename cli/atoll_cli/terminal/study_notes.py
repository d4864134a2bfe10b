# SPDX-License-Identifier: Apache-2.0
"""Below the medians of a study: means with a control variate, and how its runs were chosen, trimmed and replaced."""

from collections.abc import Iterator, Mapping

from rich.table import Table

from atoll_controller.planner.virtual_cost import rough
from atoll_core.plural import counted, listed, significant
from atoll_core.units import Size
from atoll_studies.results import ConfigurationFigure, Results
from atoll_studies.statistics import LEAST_CONTROLLED, Controlled, Estimate
from atoll_studies.stopping import Decision, Reason
from atoll_studies.warm_up import TRIMMED

_DIGITS = 4


def estimate_texts(estimate: Estimate, sign: str = "") -> tuple[str, str, str]:
    """Value, interval and level; the last two empty if there is no interval."""
    if not estimate.level:
        return _number(estimate.value, sign), "", ""
    between = f"{_number(estimate.low, sign)} to {_number(estimate.high, sign)}"
    return _number(estimate.value, sign), between, f"{100 * estimate.level:.1f} %"


def _number(value: float, sign: str = "") -> str:
    text = significant(value, _DIGITS) if value else "0"
    return f"+{text}" if sign and value > 0 else text


def control_tables(results: Results) -> Iterator[Table]:
    """Means of the shown figures without and with the control variate: a table for each figure that has one."""
    for figure in results.shown:
        rows = [(each, each.controlled) for each in results.figures if each.figure == figure and each.controlled]
        if not rows:
            continue
        unit = rows[0][0].unit
        title = f"mean {figure}, {unit}" if unit else f"mean {figure}"
        table = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="bold")
        for factor in results.factors:
            table.add_column(factor, overflow="fold")
        for heading in ("runs", "mean", "interval", "with control", "interval", "correlation"):
            table.add_column(heading, justify="right", no_wrap=True)
        for each, controlled in rows:
            mean, between, _ = estimate_texts(each.mean)
            table.add_row(
                *results.configurations[each.configuration].values(),
                *(str(each.mean.runs), mean, between, *_controlled(each, controlled)),
                f"{controlled.correlation:+.2f}",
            )
        yield table


def _controlled(each: ConfigurationFigure, controlled: Controlled) -> tuple[str, str]:
    """The controlled mean and its interval, or why there is none."""
    if controlled.estimate is not None:
        value, between, _ = estimate_texts(controlled.estimate)
        return value, between
    if each.mean.runs < LEAST_CONTROLLED:
        return f"not used: fewer than {LEAST_CONTROLLED} runs", ""
    if abs(controlled.correlation) < controlled.least_correlation:
        return f"not used: correlation below {controlled.least_correlation:.2f}", ""
    return "not used: no finite interval", ""


def design_sentences(results: Results) -> Iterator[str]:
    """Sentences on warm-up, stopping, the largest flow that a run has time for, and replaced runs."""
    if results.warm_up.seconds:
        yield (
            f"{listed(TRIMMED)}: without the first {results.warm_up.seconds:g} s of each run "
            f"(warm_up: {results.warm_up.rule}); other figures are of the whole measurement"
        )
    for number in results.warm_up.unsettled:
        yield (
            f"warm_up: goodput of {results.label(number)} does not settle in the first half of a run; "
            "nothing is left out for it, longer runs may settle"
        )
    yield from _stop_sentences(results)
    for bound in dict.fromkeys(results.flow_bounds.values()):
        yield (
            f"largest flow that a run can receive: {rough(Size(bound.largest_bytes))}; "
            f"{_percent(bound.share_of_flows)} of flows are larger, with {_percent(bound.share_of_bytes)} of all bytes"
        )
    for each in results.figures:
        if (found := each.sensitivity) is not None and each.figure in results.shown:
            yield (
                f"{each.figure} of {results.label(each.configuration)}: {counted(found.replaced, 'run')} not valid "
                f"at the first attempt; median {_number(each.median.value)}, "
                f"without these points {_optional(found.without)}, "
                f"of all first attempts {_optional(found.first_attempts)}"
            )


def _stop_sentences(results: Results) -> Iterator[str]:
    if results.stop is None:
        return
    wanted = f"{100 * results.stop.half_width:g} %"
    by_reason: Mapping[Reason, list[tuple[int, Decision]]] = {
        reason: [item for item in results.stops.items() if item[1].reason is reason] for reason in Reason
    }
    if reached := by_reason[Reason.REACHED]:
        runs = sorted(each.repetitions for _, each in reached)
        number = f"{runs[0]}" if runs[0] == runs[-1] else f"{runs[0]} to {runs[-1]}"
        yield (
            f"stop: {results.stop.figure} has a half width of at most {wanted} in {len(reached)} of "
            f"{counted(len(results.stops), 'combination')}, after {number} repetitions"
        )
    for reason in (Reason.MOST, Reason.OPEN):
        for number, each in by_reason[reason]:
            width = "no interval" if each.half_width is None else f"half width {100 * each.half_width:.1f} %"
            yield f"stop: {results.label(number)}: {reason.value} ({each.repetitions}), {width}, wanted {wanted}"
    yield (
        f"the interval of {results.stop.figure}'s median holds at all looks together, and its runs were chosen by it; "
        "intervals of other figures are of a fixed number of runs"
    )


def _percent(share: float) -> str:
    return f"{significant(100 * share, 2)} %" if share else "none"


def _optional(value: float | None) -> str:
    return "-" if value is None else _number(value)
