# SPDX-License-Identifier: Apache-2.0
"""Results over runs: configurations, their runs, and estimates of each figure. Of a study, or of any runs compared.

A study knows its factors. Of other runs :mod:`atoll_studies.results.comparison` finds them. From here on both are
the same.
"""

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from atoll_analysis.figures.regimes import Regime
from atoll_analysis.figures.run_figures import (
    LOSS_FIGURES,
    figure_limits,
    figure_names,
    general_figure,
    group_of_figure,
    is_figure,
    suggest_figure,
    unit_and_digits,
)
from atoll_analysis.run_directory import RunDir
from atoll_analysis.summary import Summary
from atoll_core.codec import from_json
from atoll_core.description.validation_messages import suggest
from atoll_core.errors import RunDirError, UsageError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_studies.published import Published
from atoll_studies.results.similarity import Similarity
from atoll_studies.results.study_runs import PointRuns, decisions, ended, points_of, run_figures, settled, warm_up_of
from atoll_studies.statistics.bisection import QueueSearch
from atoll_studies.statistics.estimates import (
    LEAST_SAMPLES,
    Controlled,
    Estimate,
    Limits,
    Paired,
    controlled_mean,
    limited,
    mean_estimate,
    paired_differences,
    quantile_estimate,
)
from atoll_studies.statistics.flow_sample import ControlVariate, FlowBound, flow_bound
from atoll_studies.statistics.sign_tests import Primary
from atoll_studies.statistics.stopping import Decision, Stop
from atoll_studies.statistics.warm_up import NO_WARM_UP, WarmUp
from atoll_studies.study_directory import FAILED, Attempt, Provenance, StudyDirectory
from atoll_testbed.run.run_request import RunRequest

USUAL_FIGURES = (
    *("goodput", "utilisation", "loss", "packets lost behind coders"),
    *("queue sojourn p95", "flows completed", "transfer time"),
)
"""Figures that are shown if a study names none, and that have plots if nobody names any."""

NO_REGIME = "not known"
"""Counted as the regime of a run without a link, and of one that an older version analysed."""


@dataclass(frozen=True, slots=True)
class StudyRun:
    """A run of a configuration, whether its figures count or not."""

    number: int  # from 1
    path: Path | None  # of its directory; None: of a table of runs that does not name it
    configuration: int
    seed: int
    verdict: str  # or FAILED, of a run that did not come to its end
    remarks: tuple[str, ...]  # why it is invalid or failed, else its caveats
    figures: Mapping[str, float | None]  # all of FIGURES, and those of named transfers; of a failed run none
    provenance: Provenance
    regime: str | None = None  # of the slowest link; None: there is no link
    repeats: int | None = None  # number of the earlier run that measured the same with the same seed
    point: str | None = None  # its id in a study
    wall_s: float | None = None
    first_flows_bytes: float | None = None  # control variate: mean size of the first flows; None: the study has none
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])

    def limits_of(self, figure: str) -> Limits | None:
        """A figure, or its limits if the run has those alone; None: neither."""
        value = self.figures.get(figure)  # transfers of another run may have other names
        limits = self.limits.get(figure) if value is None else (value, value)
        return None if limits is None else Limits(*limits)


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """A median if no run were chosen by its verdict; None: no run is left, or none measured the figure."""

    replaced: int  # points whose first attempt does not count, whether a later one does or none
    without: Limits | None  # median of the other points
    first_attempts: Limits | None  # median of all first attempts, whatever their verdicts


@dataclass(frozen=True, slots=True)
class ConfigurationFigure:
    """A figure of one configuration over its runs; ``difference``: from the baseline's, of shared seeds."""

    configuration: int
    figure: str
    unit: str
    values: tuple[Limits, ...]  # of the runs that measured it or its limits
    median: Estimate
    baseline: int | None  # the configuration compared with; None: this is one
    difference: Paired | None
    sensitivity: Sensitivity | None = None  # None: all first attempts count
    controls: tuple[float, ...] = ()  # the control variate of each of the values; empty: there is none
    expectation: float = 0.0  # of the control variate

    @property
    def exact_values(self) -> tuple[float, ...]:
        """The values that are known exactly."""
        return tuple(value.least for value in self.values if value.is_exact)

    def mean(self) -> Estimate | None:
        """The mean with a bootstrap interval, which only tables have: it takes its time. None: a value is unknown."""
        return _mean(self.exact_values) if len(self.exact_values) == len(self.values) else None

    def controlled(self) -> Controlled | None:
        """The mean that the control variate corrects.

        None: the study has no control, or the configuration no channels, or a value is unknown.
        """
        known = self.controls and len(self.exact_values) == len(self.values)
        return _controlled(self.exact_values, self.controls, self.expectation) if known else None


@dataclass(frozen=True)
class Results:
    """Runs by configuration and seed, and estimates over the runs that count."""

    name: str
    factors: tuple[str, ...]
    configurations: tuple[Mapping[str, str], ...]  # levels by factor
    seeds: tuple[int, ...]
    shown: tuple[str, ...]  # figures
    plotted: tuple[str, ...]
    runs: tuple[StudyRun, ...]  # that count
    uncounted: tuple[StudyRun, ...]  # invalid, failed, or a repetition of an earlier run
    figures: tuple[ConfigurationFigure, ...]  # that a run measured; by configuration, then by figure
    missing: int = 0  # points of a study at which --resume makes attempts
    warm_up: WarmUp = NO_WARM_UP
    stop: Stop | None = None
    search: QueueSearch | None = None
    settled_points: frozenset[tuple[int, int]] = frozenset()  # configuration and seed that get no further attempt
    stops: Mapping[int, Decision] = field(default_factory=dict[int, Decision])  # by configuration
    described: Mapping[int, tuple[Network, Experiment]] = field(default_factory=dict[int, tuple[Network, Experiment]])
    similarity: Similarity | None = None  # of runs of no study: what else they share, and in what they differ

    primary: Primary | None = None
    family: tuple[str, ...] = ()  # figures that a study shows, whatever --figure says
    published: tuple[Published, ...] = ()
    baseline_asked: bool = False  # of runs that are not a study's: a baseline was named
    of_tables: bool = False  # runs are rows of tables, whose directories are not read

    @functools.cached_property
    def flow_bounds(self) -> dict[int, FlowBound]:
        """The bounds of flow sizes, by configuration that has one."""
        bounds = {number: flow_bound(*described) for number, described in self.described.items()}
        return {number: bound for number, bound in bounds.items() if bound is not None}

    @property
    def all_runs(self) -> list[StudyRun]:
        """All runs by their numbers."""
        return sorted((*self.runs, *self.uncounted), key=lambda run: run.number)

    @property
    def directories(self) -> list[tuple[StudyRun, Path]]:
        """The runs that count, each with its directory; of tables of runs none."""
        return [] if self.of_tables else [(run, run.path) for run in self.runs if run.path]

    @property
    def figure_names(self) -> list[str]:
        """The names of all figures that the runs can have."""
        return figure_names(run.figures for run in self.runs)

    @property
    def is_sampled(self) -> bool:
        """Whether there is something to say over runs: in a study always, else from three runs of a configuration."""
        counts = [sum(run.configuration == number for run in self.runs) for number in range(len(self.configurations))]
        return self.similarity is None or any(count >= LEAST_SAMPLES for count in counts)

    def figure_of(self, configuration: int, figure: str) -> ConfigurationFigure | None:
        """One figure of one configuration."""
        return self._by_configuration.get((configuration, figure))

    def regimes(self, configuration: int) -> dict[str, int]:
        """The number of runs that count in each regime; of those without a link as :data:`NO_REGIME`."""
        own = [run.regime or NO_REGIME for run in self.runs if run.configuration == configuration]
        return {name: own.count(name) for name in (*map(str, Regime), NO_REGIME) if name in own}

    @functools.cached_property
    def _by_configuration(self) -> dict[tuple[int, str], ConfigurationFigure]:
        return {(figure.configuration, figure.figure): figure for figure in self.figures}

    def values(self, configuration: int, figure: str) -> dict[int, Limits]:
        """The values of a figure by seed."""
        return _by_seed([run for run in self.runs if run.configuration == configuration], figure)

    def label(self, configuration: int) -> str:
        """The levels of a configuration."""
        return levels_text(self.configurations[configuration]) or self.name


def levels_text(levels: Mapping[str, str]) -> str:
    """Levels in a few words; true and false have the last part of their factor's name."""
    names = {factor: f"{factor.rpartition('.')[2]}=" for factor, level in levels.items() if level in {"true", "false"}}
    return ", ".join(names.get(factor, "") + level for factor, level in levels.items())


def read_results(
    directory: StudyDirectory, baseline: Mapping[str, str] | None = None, figures: Sequence[str] = ()
) -> Results:
    """Read the runs of a study, and estimate. ``baseline``, ``figures``: instead of the study's.

    Raises RunDirError, UsageError for a factor, level or figure that there is not.
    """
    study = directory.study()
    factors: dict[str, list[str]] = study["factors"]
    baseline_levels: Mapping[str, str] = study["baseline"] if baseline is None else baseline
    require_baseline(baseline_levels, factors)
    require_figures(figures)
    configurations: list[dict[str, str]] = study["configurations"]
    points = points_of(directory, study["points"])
    stop = Stop(**study["stop"]) if study.get("stop") else None
    warm_up = warm_up_of(study.get("warm_up"), points)
    is_settled = settled(study)
    stops = decisions(stop, warm_up, points, ended(stop, points, is_settled)) if stop else {}
    points = [point for point in points if not stop or point.repetition < stops[point.configuration].repetitions]
    requests = {point.configuration: _request(directory, point.id) for point in points if point.repetition == 0}
    control = ControlVariate(**study["control"]) if study.get("control") else None
    controlled = {
        number: request.experiment.first_load
        for number, request in requests.items()
        if control and request.experiment.max_channels
    }
    runs: list[StudyRun] = []
    uncounted: list[StudyRun] = []
    for point in points:
        for attempt in point.attempts:
            if attempt is point.chosen or not attempt.is_usable:
                run = _run_of_point(len(runs) + len(uncounted) + 1, point, attempt, warm_up)
                if attempt.is_usable and control and (traffic := controlled.get(point.configuration)):
                    run = replace(run, first_flows_bytes=control.of_run(traffic, point.seed))
                (runs if attempt.is_usable else uncounted).append(run)
    expectations = {number: control.expectation(traffic) for number, traffic in controlled.items()} if control else {}
    estimates = estimate(runs, baselines(configurations, baseline_levels), uncounted, expectations)
    primary = Primary(**study["primary"]) if study.get("primary") else None
    family = tuple(study["figures"] or usual_figures(runs))
    shown = shown_figures(primary, family, figures)
    return Results(
        name=study["name"],
        factors=tuple(factors),
        configurations=tuple(configurations),
        seeds=tuple(dict.fromkeys(point.seed for point in points)),
        shown=shown,
        plotted=shown,
        runs=tuple(runs),
        uncounted=tuple(uncounted),
        figures=tuple(
            replace(figure, median=interval)  # with the interval that holds at all looks together
            if stop and figure.figure == stop.figure and (interval := stops[figure.configuration].estimate)
            else figure
            for figure in estimates
        ),
        missing=sum(not is_settled(point) for point in points),
        warm_up=warm_up,
        stop=stop,
        stops=stops,
        search=from_json(QueueSearch, study["search"]) if study.get("search") else None,
        settled_points=frozenset((point.configuration, point.seed) for point in points if is_settled(point)),
        described={number: (request.network, request.experiment) for number, request in requests.items()},
        primary=primary,
        family=family,
        published=tuple(Published(**fields) for fields in study.get("published", ())),
    )


def _request(directory: StudyDirectory, point: str) -> RunRequest:
    """The request of a point's runs. Raises RunDirError."""
    try:
        return from_json(RunRequest, directory.point(point)["request"])
    except (KeyError, TypeError, ValueError) as error:
        path = directory.point_path(point)
        raise RunDirError(f"{path}/point.json: damaged ({error!r}); remove {path}") from None


def _run_of_point(number: int, point: PointRuns, attempt: Attempt, warm_up: WarmUp) -> StudyRun:
    run = RunDir(attempt.path)
    analysed = attempt.outcome != FAILED or ((run.path / "summary.json").exists() and not run.damages())
    summary = cast("Summary", run.summary()) if attempt.is_usable else None
    return StudyRun(
        number=number,
        path=attempt.path,
        configuration=point.configuration,
        seed=point.seed,
        verdict=attempt.outcome,
        remarks=tuple(summary.get("caveats") or () if summary else filter(None, [attempt.message])),
        figures=run_figures(attempt, warm_up) if analysed else {},
        provenance=attempt.provenance,
        regime=regime_of(summary) if summary else None,
        limits=figure_limits(cast("Summary", run.summary())) if analysed else {},
        point=point.id,
        wall_s=attempt.wall_s,
    )


def usual_figures(runs: Sequence[StudyRun]) -> list[str]:
    """Return USUAL_FIGURES, with those of named transfers, but not of groups, that any of the runs has."""
    names = [name for name in figure_names(run.figures for run in runs) if group_of_figure(name) is None]
    return [name for usual in USUAL_FIGURES for name in names if general_figure(name) == usual]


def shown_figures(primary: Primary | None, family: Sequence[str], figures: Sequence[str]) -> tuple[str, ...]:
    """The figures that results show: those of ``--figure``, else the primary one and the study's."""
    first: list[str] = [primary.figure] if primary else []
    return tuple(figures or dict.fromkeys([*first, *family]))


def regime_of(summary: Summary) -> str | None:
    """The regime of the slowest link; None without a link, or from a version that did not compute it."""
    return regime["regime"] if (regime := summary.get("regime")) else None


def require_figures(names: Iterable[str]) -> None:
    """Raise UsageError for a name that is no figure's."""
    for name in names:
        if not is_figure(name):
            raise UsageError(f"--figure: unknown figure {name!r}; {suggest_figure(name)}")


def require_baseline(baseline: Mapping[str, str], factors: Mapping[str, Sequence[str]]) -> None:
    """Raise UsageError for a factor or a level that there is not."""
    for factor, level in baseline.items():
        if factor not in factors:
            raise UsageError(f"--baseline {factor}={level}: unknown factor; {suggest(factor, factors, 'factors')}")
        if level not in (levels := factors[factor]):
            raise UsageError(f"--baseline {factor}={level}: unknown level; {suggest(level, levels, 'levels')}")


def baselines(configurations: Sequence[Mapping[str, str]], baseline: Mapping[str, str]) -> list[int | None]:
    """For each configuration the one with the levels of the baseline and otherwise the same.

    None: it is that one itself, or there is none, as may be among runs that are no study's.
    """
    listed = list(configurations)
    targets = [listed.index(target) if (target := {**own, **baseline}) in listed else None for own in configurations]
    return [None if other == number else other for number, other in enumerate(targets)]


def estimate(
    runs: Sequence[StudyRun],
    compared: Sequence[int | None],
    uncounted: Sequence[StudyRun] = (),
    expectations: Mapping[int, float] | None = None,
) -> Iterable[ConfigurationFigure]:
    """The figures of each configuration; ``compared``: the number of the configuration that each is compared with.

    ``uncounted``: runs that do not count. ``expectations``: of the control variate, by configuration.
    """
    lossless = {name for name in LOSS_FIGURES if not any(run.figures[name] for run in runs)}
    names = figure_names(run.figures for run in runs)
    runs_of: list[list[StudyRun]] = [[] for _ in compared]
    for run in runs:
        runs_of[run.configuration].append(run)
    for configuration, baseline in enumerate(compared):
        own = runs_of[configuration]
        first_attempts = _first_attempts([*own, *(run for run in uncounted if run.configuration == configuration)])
        for figure in names:
            measured = [(run, value) for run in own if (value := run.limits_of(figure))]
            values = tuple(value for _, value in measured)
            if not values or figure in lossless:
                continue
            by_seed = functools.partial(_by_seed, figure=figure)
            yield ConfigurationFigure(
                configuration=configuration,
                figure=figure,
                unit=unit_and_digits(figure)[0],
                values=values,
                median=limited(quantile_estimate, values),
                baseline=baseline,
                difference=None if baseline is None else paired_differences(by_seed(runs_of[baseline]), by_seed(own)),
                sensitivity=_sensitivity(first_attempts, {run.number for run in own}, figure),
                controls=tuple(size for run, _ in measured if (size := run.first_flows_bytes) is not None),
                expectation=(expectations or {}).get(configuration, 0.0),
            )


def _first_attempts(runs: Sequence[StudyRun]) -> list[StudyRun]:
    """The first attempt at each point. A run that is no study's is the only attempt at a point of its own."""
    first_attempts: dict[str | int, StudyRun] = {}
    for run in sorted(runs, key=lambda run: run.number):
        if run.repeats is None:
            first_attempts.setdefault(run.point or run.number, run)
    return list(first_attempts.values())


def _sensitivity(first_attempts: Sequence[StudyRun], counted: Collection[int], figure: str) -> Sensitivity | None:
    """``counted``: the numbers of the runs that count."""
    replaced = sum(run.number not in counted for run in first_attempts)
    if not replaced:
        return None
    completed = [run for run in first_attempts if run.verdict != FAILED]
    return Sensitivity(
        replaced=replaced,
        without=_median(run.limits_of(figure) for run in completed if run.number in counted),
        first_attempts=_median(run.limits_of(figure) for run in completed),
    )


def _median(values: Iterable[Limits | None]) -> Limits | None:
    measured = [value for value in values if value is not None]
    return limited(quantile_estimate, measured).limits[0] if measured else None


@functools.cache
def _mean(values: tuple[float, ...]) -> Estimate:
    return mean_estimate(values, seed=1)


@functools.cache
def _controlled(values: tuple[float, ...], controls: tuple[float, ...], expectation: float) -> Controlled:
    return controlled_mean(values, controls, expectation, seed=1)


def _by_seed(runs: Sequence[StudyRun], figure: str) -> dict[int, Limits]:
    """Values by seed; of several runs of one seed, as in real time, their median."""
    by_seed: dict[int, list[Limits]] = {}
    for run in runs:
        if value := run.limits_of(figure):
            by_seed.setdefault(run.seed, []).append(value)
    return {seed: limited(quantile_estimate, values).limits[0] for seed, values in by_seed.items()}


def letters(number: int) -> str:
    """The short name of a configuration: ``A`` to ``Z``, then ``AA``, as spreadsheets call columns."""
    rest, last = divmod(number, 26)
    return (letters(rest - 1) if rest else "") + chr(ord("A") + last)
