# SPDX-License-Identifier: Apache-2.0
"""The contents of every view of results: tables of texts and the sentences below them.

Terminal, Markdown and page differ in how they draw a :class:`Table`, and in nothing else. Runs go by their numbers,
configurations by letters.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby

from atoll_analysis.figures.regimes import Regime
from atoll_analysis.figures.run_figures import (
    FIGURES_BY_GROUP,
    RATE_UNIT,
    TRANSFER_FIGURES,
    general_figure,
    group_of_figure,
    unit_and_digits,
)
from atoll_analysis.verdict.findings import Verdict
from atoll_controller.planner.virtual_cost import rough_size
from atoll_core.plural import counted, listed, significant
from atoll_core.units import Size
from atoll_dashboards.report.number_format import NOT_MEASURED, decimals, figure, octets, percent
from atoll_studies.results.agreement import OUTSIDE, Comparison, comparisons
from atoll_studies.results.conclusions import ERROR, ComparedFigure, Conclusion, compared_figures, rests_on_others
from atoll_studies.results.effects import MainEffect, effects
from atoll_studies.results.queue_capacity import QueueAdvice, QueueLevel, queue_advice
from atoll_studies.results.queue_search import SearchResult, search_results
from atoll_studies.results.results import NO_REGIME, ConfigurationFigure, Results, StudyRun, letters
from atoll_studies.results.similarity import SEED, Rows, grouped
from atoll_studies.statistics.bisection import End
from atoll_studies.statistics.estimates import (
    LEAST_CONTROLLED,
    LEAST_SAMPLES,
    LEVEL,
    Controlled,
    Estimate,
    Limits,
    Paired,
    least_runs,
)
from atoll_studies.statistics.stopping import Stop
from atoll_studies.statistics.warm_up import TRIMMED_FIGURES
from atoll_studies.study_directory import FAILED

OVER_RUNS = "over runs"
"""Title of the table of figures."""

MOST_COLUMNS = 6  # of runs or configurations; more of them are rows
_LONGEST_LABEL = 36  # characters of levels in front of figures; longer ones have a table of their own
_LONGEST_SETTING = 40  # characters of a setting in a table; longer ones are listed, each text once
_MOST_CAVEATS = 3  # runs whose caveats are printed
UNKNOWN = "not known"
_RESIDUAL = "packets lost behind coders"
_MOST_PERCENT = 1000  # beyond it a share says no more than the two figures do


Sections = tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts. A line break in a cell may be drawn as a space."""

    title: str
    columns: tuple[str, ...]  # headings; empty: none
    sections: Sections  # a heading, which may be empty, and its rows
    text_columns: int  # the number of columns, the first ones, that are texts; the others are figures
    notes: tuple[str, ...] = ()  # sentences below it
    verdicts: tuple[str, ...] = field(default=())  # of each row of a table of runs

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The rows of all sections."""
        return [row for _, rows in self.sections for row in rows]


def tables(results: Results, *, each_run: bool = False) -> Iterator[Table]:
    """The tables of results in their order. ``each_run``: also the figures of every run, however many there are."""
    is_few = len(results.all_runs) <= MOST_COLUMNS
    if results.similarity:
        yield _listed_runs(results)
        if rows := tuple(_unlike(results)):
            yield _plain("not alike", rows)
    if results.is_sampled:
        if results.similarity or not _has_labels(results):
            yield _configurations(results)
        yield _figures(results, runs_are_hidden=bool(results.similarity) and not (is_few or each_run))
        if results.stop:
            yield _repetitions(results, results.stop)
        for view in (_groups, _conclusions, _published, _effects, _regimes, _control_variate, _sensitivity):
            if (table := view(results)).rows:
                yield table
    yield from map(_queue, queue_advice(results))
    yield from map(_search, search_results(results))
    if each_run or not results.is_sampled or (results.similarity and is_few):
        yield _runs(results)
    if results.similarity:
        yield _plain("alike", results.similarity.alike)


def headline(results: Results) -> str:
    """What the results are of, and whether something other than settings may cause differences."""
    runs = counted(len(results.all_runs), "run")
    similarity = results.similarity
    if similarity is None:
        return f"{results.name}: {counted(len(results.configurations), 'configuration')}, {runs}"
    if len(results.all_runs) == 1:
        return runs
    if any(name != SEED for name, _ in similarity.unlike):
        return f"{runs}; they differ in more than settings and seeds: see 'not alike'"
    differing = [*(["settings"] if similarity.settings else []), *(["seeds"] if len(results.seeds) > 1 else [])]
    text = f"alike but for their {' and '.join(differing)}" if differing else "identical in all recorded properties"
    return f"{runs}, {text}"


# Numbers


def number_text(name: str, number: float | None, sign: str = "") -> str:
    """A value of a figure without its unit, with as many digits as the figure has; a small rate has more."""
    text = figure(number, "", _digits(name, number))
    return f"{sign}{text}" if number and number > 0 else text


def _digits(name: str, number: float | None) -> int:
    unit, digits = unit_and_digits(name)
    return decimals(number, digits) if unit == RATE_UNIT else digits


def limits_text(name: str, limits: Limits | None, sign: str = "") -> str:
    """A value of a figure, or its limits: ``> 580``; without its unit."""
    return _limits_text(limits, lambda number: number_text(name, number, sign))


def _ratio_text(limits: Limits | None) -> str:
    return _limits_text(limits, lambda number: figure(number, "", 2))


def _limits_text(limits: Limits | None, text: Callable[[float | None], str]) -> str:
    if limits is None or limits.is_exact:
        return text(limits.least if limits else None)
    if limits.sign == "~":
        return f"{text(limits.least)} to {text(limits.most)}"
    return UNKNOWN if limits.finite is None else f"{limits.sign} {text(limits.finite)}"


def percent_text(name: str, first: float | None, second: float | None) -> str:
    """The difference of two values in per cent of the first one; of rounded values, as those are shown."""
    if first is None or second is None:
        return ""
    before, after = (round(value, _digits(name, value)) for value in (first, second))
    if before == after:
        return "=" if before else ""
    share = 100 * (after - before) / abs(before) if before else math.inf
    if abs(share) >= _MOST_PERCENT:
        return ""
    if abs(share) < 0.05:
        return f"{share:+.1g}%"
    return f"{share:+.{1 if abs(share) < 100 else 0}f}%"


def heading(name: str) -> str:
    """A figure with its unit."""
    unit, _ = unit_and_digits(name)
    return f"{name}, {unit}" if unit else name


def by_number(numbers: Iterable[int]) -> str:
    """Format ascending numbers of runs: ``#1 #3-5``."""
    parts: list[str] = []
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        span = [number for _, number in group]
        parts += [f"#{span[0]}-{span[-1]}"] if len(span) > 2 else [f"#{number}" for number in span]
    return " ".join(parts)


def configuration_name(results: Results, configuration: int) -> str:
    """A letter and the levels; the letter alone if levels are long."""
    letter = letters(configuration)
    return f"{letter}  {results.label(configuration)}" if _has_labels(results) else letter


def _has_labels(results: Results) -> bool:
    labels = [results.label(number) for number in range(len(results.configurations))]
    return bool(results.factors) and max(map(len, labels)) <= _LONGEST_LABEL and len(set(labels)) == len(labels)


# Runs that are no study's, and in what they differ


def _plain(title: str, rows: tuple[tuple[str, ...], ...]) -> Table:
    return Table(title, (), (("", rows),), text_columns=len(rows[0]) if rows else 1)


def _listed_runs(results: Results) -> Table:
    """The runs, each with the part of its path in which it differs from the others."""
    runs = results.all_runs
    paths = [os.path.abspath(run.path or "") for run in runs]  # noqa: PTH100 (Path.absolute keeps `..`)
    common = os.path.commonpath([os.path.dirname(path) for path in paths])  # noqa: PTH120
    rows = tuple(
        (
            *([letters(run.configuration)] if results.is_sampled else []),
            f"#{run.number}",
            os.path.relpath(path, common),
            *([f"seed {run.seed}"] if len(results.seeds) > 1 else []),
            "; ".join((run.verdict, *run.remarks)),
        )
        for run, path in zip(runs, paths, strict=True)
    )
    return Table("", (), (("", rows),), text_columns=len(rows[0]), verdicts=tuple(run.verdict for run in runs))


def _unlike(results: Results) -> Iterator[tuple[str, str, str]]:
    """Differing properties that are in no table: each text with the runs or configurations that it applies to."""
    similarity = results.similarity
    if similarity is None:
        return
    long_ones = [row for row in similarity.settings if not _is_short(row[1])]
    for name, texts in (*(row for row in similarity.unlike if row[0] != SEED), *long_ones):
        levels = [levels[name] for levels in results.configurations] if results.is_sampled else texts
        for row, (members, text) in enumerate(grouped(levels)):
            names = " ".join(map(letters, members)) if results.is_sampled else by_number(run + 1 for run in members)
            yield ("" if row else name, names, text)


def _is_short(texts: Iterable[str]) -> bool:
    return max(map(len, texts)) <= _LONGEST_SETTING


def _short_settings(results: Results) -> Rows:
    """By run, the settings that differ and fit a column."""
    if results.similarity is None:
        runs = results.all_runs
        return tuple(
            (factor, tuple(results.configurations[run.configuration][factor] for run in runs))
            for factor in results.factors
        )
    return tuple(row for row in results.similarity.settings if _is_short(row[1]))


# Configurations


def _configurations(results: Results) -> Table:
    numbers = range(len(results.configurations))
    runs = [by_number(run.number for run in results.all_runs if run.configuration == number) for number in numbers]
    names = [name for name, _ in _short_settings(results)]
    texts = [
        *((name, [levels[name] for levels in results.configurations]) for name in names),
        *([("runs", runs)] if results.similarity else []),
        ("samples", [str(_counted_runs(results, number)) for number in numbers]),
    ]
    return _oriented("configurations", [letters(number) for number in numbers], texts, [])


_FIGURE_COLUMNS = ("runs", "median", "interval", "level")
_DIFFERENCE_COLUMNS = ("difference", "", "interval", "pairs")


def _figures(results: Results, *, runs_are_hidden: bool) -> Table:
    """The shown figures: a section each, a row for each configuration that measured it."""
    has_differences = any(row.difference for row in results.figures)
    sections: list[tuple[str, tuple[tuple[str, ...], ...]]] = []
    equal: list[tuple[str, str]] = []
    for name in results.shown:
        measured = [row for number in range(len(results.configurations)) if (row := results.figure_of(number, name))]
        values = {limits_text(name, value) for row in measured for value in row.values}
        if len(values) == 1 and len(measured) > 1:
            equal.append((heading(name), values.pop()))
        elif measured:
            rows = tuple(tuple(_figure_row(results, row, has_differences=has_differences)) for row in measured)
            sections.append((heading(name), rows))
    hint = ("figures of every run: --per-run, --out, --json",) if runs_are_hidden else ()
    notes = (*_same_of_all(equal), *_notes(results), *hint)
    factors = ", ".join(factor.rpartition(".")[2] for factor in results.factors) if _has_labels(results) else ""
    columns = (factors, *_FIGURE_COLUMNS, *(_DIFFERENCE_COLUMNS if has_differences else ()))
    return Table(OVER_RUNS, columns, tuple(sections), text_columns=1, notes=notes)


def _figure_row(results: Results, row: ConfigurationFigure, *, has_differences: bool) -> Iterator[str]:
    pair = row.difference
    levels = dict.fromkeys(row.level for row in (row.median, *([pair.median] if pair else [])) if row.level)
    yield configuration_name(results, row.configuration)
    counted_runs = _counted_runs(results, row.configuration)
    if general_figure(row.figure) in TRANSFER_FIGURES:
        yield f"{row.median.runs}, {percent(len(row.exact_values) / row.median.runs)} finished"
    else:
        yield str(row.median.runs) if row.median.runs == counted_runs else f"{row.median.runs} of {counted_runs}"
    yield from _estimate(row.figure, row.median)
    yield f"{', '.join(f'{100 * level:.1f}' for level in levels)} %" if levels else ""
    if pair is not None and row.baseline is not None:
        before = results.figure_of(row.baseline, row.figure)
        value, interval = _estimate(row.figure, pair.median, sign="+")
        yield value
        is_single_pair = pair.median.runs == 1 < counted_runs  # one pair of several says nothing about the medians
        yield (
            percent_text(row.figure, before.median.value, before.median.value + pair.median.value)
            if before and not (is_single_pair or before.median.most or pair.median.most)
            else ""
        )
        yield interval
        yield _direction(pair)
    elif has_differences:
        yield from ("",) * len(_DIFFERENCE_COLUMNS)


def _counted_runs(results: Results, configuration: int) -> int:
    """The number of runs of a configuration that count."""
    return sum(run.configuration == configuration for run in results.runs)


def _direction(pair: Paired) -> str:
    """In how many pairs the figure is higher, or lower if those are more: ``4 of 5 up``."""
    if not pair.higher and not pair.lower:
        return f"{pair.equal} equal" if pair.equal else UNKNOWN
    up = pair.higher >= pair.lower
    return f"{pair.higher if up else pair.lower} of {pair.median.runs} {'up' if up else 'down'}"


def _estimate(name: str, estimate: Estimate, sign: str = "") -> tuple[str, str]:
    value, low, high = estimate.limits
    # Of an end between two numbers the outer one is shown.
    low = Limits(low.least, low.least) if low.sign == "~" else low
    high = Limits(high.most, high.most) if high.sign == "~" else high
    interval = f"{limits_text(name, low, sign)} to {limits_text(name, high, sign)}"
    return limits_text(name, value, sign), interval if estimate.level else ""


def _notes(results: Results) -> Iterator[str]:
    if any(row.difference for row in results.figures):
        yield "difference: median of the differences from the baseline, over pairs of runs with the same seed"
    elif len(results.configurations) > 1 and results.runs:
        yield "no differences: no seed was run for both the baseline and another configuration"
    partial = [name for name in results.shown if any(measured < runs for measured, runs in _measured(results, name))]
    if partial:
        yield (f"{listed(partial)}: not measured in every run; the estimates cover the other runs only")
    if any(run.limits.keys() & set(results.shown) for run in results.runs):
        yield (
            "a transfer that did not finish counts as longer than the rest of its run; if both of a pair did not "
            "finish, their difference is not known"
        )
    if "loss" in results.shown and any(results.figure_of(n, _RESIDUAL) for n in range(len(results.configurations))):
        yield f"loss: of the slowest link, before coders bring packets back; the rest are {_RESIDUAL!r}"
    if any(0 < row.median.level < LEVEL for row in results.figures if row.figure in results.shown):
        yield (
            f"a 95 % interval needs at least {least_runs()} runs; with fewer runs the interval has the lower level "
            "that is shown"
        )
    if results.missing:
        runs, pronoun = counted(results.missing, "run"), "it" if results.missing == 1 else "them"
        remedy = f"{runs} of the study missing; `atoll sweep STUDY --resume` makes {pronoun}"
        yield f"no row for {runs} of the study" if results.of_tables else remedy
    origins = {run.provenance for run in results.runs}
    if len(origins) > 1 and results.similarity is None:
        yield f"runs of different provenance are mixed: {'; '.join(sorted(map(str, origins)))}"
    if results.warm_up.seconds:
        yield (
            f"{listed(TRIMMED_FIGURES)}: without the first {results.warm_up.seconds:g} s of each run "
            f"(warm_up: {results.warm_up.rule}); other figures are of the whole measurement"
        )
    if results.warm_up.unsettled:
        yield (
            f"warm_up: goodput of {listed([configuration_name(results, n) for n in results.warm_up.unsettled])} "
            "does not settle in the first half of the shortest run; nothing is left out for it, longer runs may settle"
        )
    for bound in dict.fromkeys(results.flow_bounds.values()):
        numbers = [number for number, each in results.flow_bounds.items() if each == bound]
        are_all = len(numbers) == len(results.configurations)
        scope = "" if are_all else f" of {listed([configuration_name(results, number) for number in numbers])}"
        larger = f"{_share(bound.share_of_flows)} of flows are larger, with {_share(bound.share_of_bytes)} of all bytes"
        yield (
            f"largest flow that a run{scope} can receive: {rough_size(Size(bound.largest_bytes))}; "
            f"{larger if bound.share_of_flows else 'no flow is larger'}"
        )
    yield from _caveats(results)
    yield from _not_counted(results)


def _share(share: float) -> str:
    return f"{significant(100 * share, 2)} %" if share else "none"


def _caveats(results: Results) -> Iterator[str]:
    """The caveats of a study's runs that count. Those of other runs are in the table of runs."""
    runs = [run for run in results.runs if run.remarks] if results.similarity is None else []
    yield from (_with_remarks(results, run) for run in runs[:_MOST_CAVEATS])
    if (more_runs := len(runs) - _MOST_CAVEATS) > 0:
        yield f"{Verdict.CAVEATS}: {counted(more_runs, 'more run')}; `atoll report RUN` names the caveats"


def _with_remarks(results: Results, run: StudyRun) -> str:
    levels = ", ".join((*results.configurations[run.configuration].values(), f"seed {run.seed}"))
    return f"{run.verdict}: {levels}: {'; '.join(run.remarks)} ({run.path})"


def _not_counted(results: Results) -> Iterator[str]:
    """The runs that do not count. Those of a study are listed nowhere else."""
    invalid = [run for run in results.uncounted if run.repeats is None]
    if results.similarity is None:
        yield from (_with_remarks(results, run) for run in invalid)
        return
    if invalid:
        yield f"not counted, invalid: {by_number(run.number for run in invalid)}"
    if equal := [f"#{run.number} (#{run.repeats})" for run in results.uncounted if run.repeats]:
        yield f"not counted, because every figure equals that of an earlier run: {', '.join(equal)}"


def _measured(results: Results, name: str) -> Iterator[tuple[int, int]]:
    """Of each configuration that measured a figure: the number of runs that did, and of its runs that count."""
    for number in range(len(results.configurations)):
        measured = results.figure_of(number, name)
        if measured:
            yield measured.median.runs, _counted_runs(results, number)


# How the runs of a study were chosen, and what corrects their means


def _figure_sections(results: Results, row: Callable[[ConfigurationFigure], tuple[str, ...] | None]) -> Sections:
    """A section for each shown figure, a row for each configuration that has one."""
    sections = [
        (heading(name), tuple(
            (configuration_name(results, item.configuration), *cells)
            for item in results.figures if item.figure == name and (cells := row(item)) is not None
        ))
        for name in results.shown
    ]  # fmt: skip
    return tuple((title, rows) for title, rows in sections if rows)


def _groups(results: Results) -> Table:
    """Medians of the shown figures by group of clients, a column for each group; no rows without groups."""
    groups = list(dict.fromkeys(group for each in results.figures if (group := group_of_figure(each.figure))))
    sections: list[tuple[str, tuple[tuple[str, ...], ...]]] = []
    shown = {general_figure(name) for name in results.shown}
    for name in (name for name in FIGURES_BY_GROUP if name in shown):
        rows: list[tuple[str, ...]] = []
        for number in range(len(results.configurations)):
            of_groups = [results.figure_of(number, f"{name} of group {group}") for group in groups]
            cells = [limits_text(name, row.median.limits[0] if row else None) for row in of_groups]
            rows += [(configuration_name(results, number), *cells)] if any(of_groups) else []
        sections += [(heading(name), tuple(rows))] if rows else []
    return Table("medians by group of clients", ("", *groups), tuple(sections), text_columns=1)


def _repetitions(results: Results, stop: Stop) -> Table:
    rows = tuple(
        (
            configuration_name(results, number),
            decision.reason.value,
            str(decision.repetitions),
            "" if decision.half_width is None else f"{100 * decision.half_width:.1f} %",
        )
        for number, decision in results.stops.items()
    )
    note = (
        f"the interval of {stop.figure} holds at all looks together, and its runs were chosen by it; intervals of "
        "other figures are of a fixed number of runs"
    )
    title = f"repetitions until the half width of {stop.figure} is at most {100 * stop.half_width:g} %"
    return Table(title, ("", "outcome", "repetitions", "half width"), (("", rows),), text_columns=2, notes=(note,))


def _conclusions(results: Results) -> Table:
    """Whether configurations differ from the baseline or are equivalent; no rows without pairs of runs."""
    compared = compared_figures(results)
    has_margin = any(each.equivalence_p is not None for each in compared)

    def row(each: ComparedFigure) -> tuple[str, ...]:
        return (
            f"{heading(each.figure)}{' (primary)' if each.is_primary else ''}",
            configuration_name(results, each.configuration),
            str(each.conclusion),
            _p_text(each.difference_p),
            *([_p_text(each.equivalence_p)] if has_margin else []),
        )

    listed_ones = [each for each in compared if each.is_primary or each.conclusion is not Conclusion.OPEN]
    rows = [row(each) for each in listed_ones]
    if more := len(compared) - len(rows):
        others = counted(more, "other comparison" if rows else "comparison")
        rows.append((others, "", str(Conclusion.OPEN), *([""] * (1 + has_margin))))
    columns = ("figure", "", "conclusion", "p, different", *(["p, equivalent"] if has_margin else []))
    notes = tuple(_conclusion_notes(results, compared))
    return Table("conclusions", columns, (("", tuple(rows)),), text_columns=3, notes=notes)


def _p_text(p: float | None) -> str:
    return "" if p is None else significant(p, 2)


def _conclusion_notes(results: Results, compared: Sequence[ComparedFigure]) -> Iterator[str]:
    primary = results.primary
    family = "among the primary figure's, and among all others" if primary else "among all of them"
    yield (
        f"p: sign tests of pairs of runs with the same seed, corrected by Holm's method {family}; "
        f"a conclusion needs {ERROR:g} or less"
    )
    if results.stop:
        yield f"{results.stop.figure} has no test, since it chose the number of runs"
    if primary is None:
        return
    if primary.margin is not None:
        yield f"equivalent: the median deviation from the baseline is below {100 * primary.margin:g} %"
    if primary.runs_before:
        runs = counted(primary.runs_before, "run")
        yield f"{primary.figure} became the primary figure after {runs}: conclusions from these are exploratory"
    if others := rests_on_others(compared):
        yield (
            f"no difference of {primary.figure}, the primary figure, is shown: conclusions rest on {listed(others)}, "
            "and are exploratory"
        )


def _published(results: Results) -> Table:
    """Published figures and the runs of the same set-up; no rows if the study names none."""

    def row(comparison: Comparison) -> tuple[str, ...]:
        name, published = comparison.published.figure, comparison.published
        is_ratio = bool(published.relative_to)
        text = _ratio_text if is_ratio else partial(limits_text, name)
        levels = ", ".join(f"{factor.rpartition('.')[2]} {level}" for factor, level in published.relative_to.items())
        return (
            f"{name} relative to {levels}" if is_ratio else heading(name),
            configuration_name(results, comparison.configuration) if results.factors else "",
            f"{published.bound} {published.value:.10g}".strip(),
            text(comparison.median),
            f"{text(comparison.low)} to {text(comparison.high)}",
            UNKNOWN if comparison.quantile is None else f"{100 * comparison.quantile:.0f} %",
            str(comparison.runs),
            comparison.agreement.value,
            published.source,
        )

    columns = ("figure", "", "published", "median", "central range", "quantile", "runs", "", "source")
    note = (
        f"agrees: inside the central {100 * (1 - OUTSIDE):.0f} % of the runs, jointly over the published figures of a "
        "configuration; quantile: share of the runs below the published value"
    )
    rows = tuple(map(row, comparisons(results)))
    return Table("published figures", columns, (("", rows),), text_columns=2, notes=(note,))


def _effects(results: Results) -> Table:
    """Main effects of factors with two levels; no rows if the design has none."""
    by_figure = groupby(effects(results), key=lambda effect: effect.figure)
    sections = tuple((heading(figure), tuple(map(_effect_row, of_figure))) for figure, of_figure in by_figure)
    note = (
        "ratio: geometric mean at the second level relative to that at the first, over all levels of the other "
        "factors; interval: 95 %, of Student's t over seeds; *: it excludes 1"
    )
    if results.similarity is None and len(results.configurations) < 2 ** len(results.factors):
        note += "; of a screening design: no interaction of two factors is in these effects"
    return Table("main effects", ("", "factor", "from", "to", "ratio", "interval", "seeds", ""), sections, 4, (note,))


def _effect_row(effect: MainEffect) -> tuple[str, ...]:
    ratio = effect.ratio
    interval = f"{ratio.low:.2f} to {ratio.high:.2f}" if ratio.level else ""
    mark = "*" if effect.is_significant else ""
    levels = (effect.first_level, effect.second_level)
    return "", effect.factor, *levels, f"{ratio.value:.2f}", interval, str(ratio.runs), mark


def _regimes(results: Results) -> Table:
    """How many runs of each configuration were in each regime of the slowest link; no rows if none is known."""
    counts = {number: results.regimes(number) for number in range(len(results.configurations))}
    names = [name for name in (*map(str, Regime), NO_REGIME) if any(name in c for c in counts.values())]
    rows = tuple(
        (configuration_name(results, number), *(str(runs_by_regime.get(name, 0)) for name in names))
        for number, runs_by_regime in counts.items()
        if runs_by_regime and names != [NO_REGIME]
    )
    return Table("regimes", ("", *names), (("", rows),), text_columns=1)


def _queue(advice: QueueAdvice) -> Table:
    """The capacities of a queue with their criteria, and the recommended one below."""
    others = ", ".join(f"{factor} {level}" for factor, level in advice.other_levels.items())
    title = f"queue capacity ({others})" if others else "queue capacity"
    columns = (
        *("queue", "regime", "not met", "runs", "transfer", "utilisation", "full and empty", "standing"),
        "voice, one way",
    )
    rows = tuple(_queue_row(level) for level in advice.levels)
    return Table(title, columns, (("", rows),), text_columns=3, notes=(_recommended(advice),))


def _queue_row(level: QueueLevel) -> tuple[str, ...]:
    transfer = figure(level.transfer_at_least_s, "s", 1)
    if level.finished_share is not None:
        sign = "> " if level.transfer_s == math.inf and level.transfer_at_least_s is not None else ""
        transfer = f"{sign}{transfer}, {percent(level.finished_share)} finished"
    voice = figure(level.voice_ms, "ms", 0) + (" (marginal)" if level.is_marginal_for_voice else "")
    shares = map(percent, (level.utilisation, level.full_and_empty_share, level.standing_share))
    regimes = listed([*level.regimes]) if level.regimes else NOT_MEASURED
    return (octets(level.queue_bytes), regimes, ", ".join(level.unmet), str(level.runs), transfer, *shares, voice)


def _recommended(advice: QueueAdvice) -> str:
    best, caveats = advice.recommended, " and ".join(advice.caveats)
    if best is None:
        text = f"no capacity is recommended: {advice.refusal}"
    else:
        unmet = (
            f", which does not meet {listed(best.unmet)}"
            if best.unmet
            else ", the smallest capacity that meets all criteria"
        )
        doubt = f" (on little evidence: {caveats})" if caveats else ""
        packets = ""
        if advice.recommended_packets is not None:
            packets = (
                f", or {advice.recommended_packets} packets of the mean {figure(advice.mean_packet_bytes, 'B', 0)}"
            )
        text = f"recommended: {octets(best.queue_bytes)}{packets}{unmet}{doubt}"
    if advice.product_bytes is not None:
        text += f"; bandwidth-delay product (BDP) {octets(advice.product_bytes)}"
    if advice.root_bytes is not None:
        text += f"; BDP / sqrt({figure(advice.long_flows, '', 1)} long flows) = {octets(advice.root_bytes)}"
    return text


def _search(searched: SearchResult) -> Table:
    """The capacities of a search in the order in which they were tried, and the result below."""
    others = others_text(searched)
    rows = tuple(
        (
            str(number),
            octets(step.capacity),
            ", ".join(step.unmet),
            str(step.repetitions),
            f"{octets(step.low)} to {octets(step.high)}",
        )
        for number, step in enumerate(searched.path.steps, start=1)
    )
    title = f"search of the queue capacity ({others})" if others else "search of the queue capacity"
    columns = ("step", "queue", "not met", "runs", "possible capacities after it")
    return Table(title, columns, (("", rows),), text_columns=3, notes=(_found(searched),))


def others_text(searched: SearchResult) -> str:
    """The other factors of a search with their levels."""
    return ", ".join(f"{factor} {level}" for factor, level in searched.other_levels.items())


def _found(searched: SearchResult) -> str:
    path, interval, limits = searched.path, searched.interval, searched.limits
    runs = counted(sum(step.repetitions for step in path.last_steps.values()), "run")
    if path.best is None or interval is None or limits is None:
        reason = path.end.value
        return f"{reason}; {runs} so far" if path.end is End.OPEN else f"no capacity was found: {reason} ({runs})"
    unmet = path.last_steps[path.best].unmet
    remark = f"does not meet {listed(unmet)}, and no capacity meets more" if unmet else "meets all criteria"
    low, high = (octets(round(end)) for end in limits)
    return (
        f"found: {octets(path.best)}, which {remark}, by {runs}; the median over seeds of the best capacity is between "
        f"{low} and {high} with a confidence of {100 * interval.level:.1f} % ({counted(interval.runs, 'seed')}), if "
        "each criterion changes once with the capacity"
    )


def _control_variate(results: Results) -> Table:
    """Means without and with the control variate."""

    def row(item: ConfigurationFigure) -> tuple[str, ...] | None:
        if (controlled := item.controlled()) is None or (mean := item.mean()) is None:
            return None
        corrected = controlled.estimate
        cells = _estimate(item.figure, corrected) if corrected else (_unused_reason(controlled, mean.runs), "")
        return (str(mean.runs), *_estimate(item.figure, mean), *cells, f"{controlled.correlation:+.2f}")

    columns = ("", "runs", "mean", "interval", "with control", "interval", "correlation")
    return Table("means with control variate", columns, _figure_sections(results, row), text_columns=1)


def _unused_reason(controlled: Controlled, runs: int) -> str:
    if runs < LEAST_CONTROLLED:
        return f"fewer than {LEAST_CONTROLLED} runs"
    if abs(controlled.correlation) < controlled.least_correlation:
        return f"correlation below {controlled.least_correlation:.2f}"
    return "no finite interval"


def _sensitivity(results: Results) -> Table:
    """Medians if no run were chosen by its verdict."""

    def row(item: ConfigurationFigure) -> tuple[str, ...] | None:
        if (other := item.sensitivity) is None:
            return None
        medians = (item.median.limits[0], other.without, other.first_attempts)
        return (str(other.replaced), *(limits_text(item.figure, value) for value in medians))

    columns = ("", "replaced", "median", "without these", "all first attempts")
    note = (
        "replaced: runs whose first attempt is not valid, whether a later one counts or none; all first attempts: "
        "whatever their verdicts, if they came to their end"
    )
    title = "medians with and without replaced runs"
    return Table(title, columns, _figure_sections(results, row), text_columns=1, notes=(note,))


# Every run


def _runs(results: Results) -> Table:
    """The figures of every run. Of few runs each with its difference from the first one."""
    runs = [run for run in results.all_runs if run.verdict != FAILED]
    is_few = len(runs) <= MOST_COLUMNS
    verdicts = [("verdict", [run.verdict for run in runs])] if {run.verdict for run in runs} != {"valid"} else []
    seeds = [(SEED, [str(run.seed) for run in runs])] if len(results.seeds) > 1 else []
    figures = [(heading(name), _cells(name, runs, differences=is_few)) for name in results.shown]
    settings = [(name, list(texts)) for name, texts in _short_settings(results)]
    if results.similarity is None:  # whose failed runs have no column
        settings = [(name, [results.configurations[run.configuration][name] for run in runs]) for name, _ in settings]
    title = "every run" if results.is_sampled else ""
    table = _oriented(title, [f"#{run.number}" for run in runs], [*seeds, *settings, *verdicts], figures)
    note = f"no differences from the baseline: no configuration has {LEAST_SAMPLES} valid runs, which is the least"
    return replace(table, notes=(*table.notes, *([note] if results.baseline_asked and not results.is_sampled else [])))


def _cells(name: str, runs: Sequence[StudyRun], *, differences: bool) -> list[str]:
    first = runs[0].figures.get(name)
    cells = [limits_text(name, run.limits_of(name)) for run in runs]
    shares = [percent_text(name, first, run.figures.get(name)) if differences else "" for run in runs]
    return ["\n".join(filter(None, (cell, share if index else ""))) for index, (cell, share) in
            enumerate(zip(cells, shares, strict=True))]  # fmt: skip


def _oriented(
    title: str,
    subjects: Sequence[str],
    texts: Sequence[tuple[str, Sequence[str]]],
    figures: Sequence[tuple[str, Sequence[str]]],
) -> Table:
    """A column for each subject, or a row if there are many. Then figures that are equal for all are sentences."""
    if len(subjects) <= MOST_COLUMNS:
        rows = tuple((name, *cells) for name, cells in (*texts, *figures))
        return Table(title, ("", *subjects), (("", rows),), text_columns=1)
    equal = [(name, cells[0]) for name, cells in figures if len(set(cells)) == 1]
    columns = [*texts, *(row for row in figures if len(set(row[1])) > 1)]
    rows = tuple(zip(subjects, *(cells for _, cells in columns), strict=True))
    headings = ("", *(name for name, _ in columns))
    return Table(title, headings, (("", rows),), text_columns=1 + len(texts), notes=_same_of_all(equal))


def _same_of_all(equal: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    return (f"equal in all rows: {'; '.join(f'{name}: {text}' for name, text in equal)}",) if equal else ()
