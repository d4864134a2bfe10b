# SPDX-License-Identifier: Apache-2.0
"""Results over runs: configurations, their runs, and estimates of each figure. Of a study, or of any runs compared.

A study knows its factors. Of other runs :mod:`atoll_studies.results.comparison` finds them. From here on both are
the same.
"""

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, cast

from atoll_analysis.figures.run_figures import FIGURES, LOSSES
from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.atomic_files import replacing
from atoll_analysis.summary import Summary
from atoll_analysis.tables.table_schemas import unit_of
from atoll_core.codec import from_json
from atoll_core.description.validation_messages import suggest
from atoll_core.errors import UsageError
from atoll_studies.results.similarity import Likeness
from atoll_studies.results.study_runs import PointRuns, decisions, over, points_of, run_figures, settled, warm_up_of
from atoll_studies.statistics.estimates import (
    Controlled,
    Estimate,
    Paired,
    controlled_mean,
    mean_estimate,
    paired_differences,
    quantile_estimate,
)
from atoll_studies.statistics.flow_sample import Control, FlowBound, flow_bound
from atoll_studies.statistics.stopping import Decision, Stop
from atoll_studies.statistics.warm_up import NO_WARM_UP, WarmUp
from atoll_studies.study_directory import FAILED, Attempt, Provenance, StudyDirectory
from atoll_testbed.run.run_request import RunRequest

if TYPE_CHECKING:
    import polars as pl

USUAL_FIGURES = ("goodput", "utilisation", "loss", "queue sojourn p95", "flows completed", "transfer time")
"""Figures that are shown if a study names none, and that have plots if nobody names any."""

LEAST_SAMPLES = 3
"""Of two runs a median says no more than the two do."""

RUNS, FIGURE_TABLE = "runs", "figures"
"""Names of the tables' files, without .csv or .parquet."""

CONTROL_COLUMN = "first_flows_mean_bytes"
ORIGIN_COLUMNS = ("point", "run", "wall_s", "platform", "revision", "kernel", "kernel_mode")
_ESTIMATE = ("", "_low", "_high", "_level")
FIGURE_COLUMNS: dict[str, type] = {
    **dict.fromkeys(("figure", "unit"), str),
    "runs": int,
    **{f"median{part}": float for part in _ESTIMATE},
    **{f"quartile_{number}{part}": float for number in (1, 3) for part in _ESTIMATE},
    **dict.fromkeys(("least", "greatest"), float),
    **{f"mean{part}": float for part in _ESTIMATE},
    **{f"controlled{part}": float for part in _ESTIMATE},
    "control_correlation": float,
    "stopped": str,
    "replaced": int,
    **dict.fromkeys(("median_without_replaced", "median_of_first_attempts"), float),
    "baseline": str,
    "pairs": int,
    **{f"difference{part}": float for part in _ESTIMATE},
    **dict.fromkeys(("pairs_higher", "pairs_lower"), int),
}
"""Columns of the table of figures after those of factors, with their types."""


@dataclass(frozen=True, slots=True)
class StudyRun:
    """A run of a configuration, whether its figures count or not."""

    number: int  # from 1
    path: Path
    configuration: int
    seed: int
    verdict: str  # or FAILED, of a run that did not come to its end
    remarks: tuple[str, ...]  # why it is invalid or failed, else its caveats
    figures: Mapping[str, float | None]  # all of FIGURES; of a failed run none
    provenance: Provenance
    repeats: int | None = None  # number of the earlier run that measured the same with the same seed
    point: str | None = None  # its id in a study
    wall_s: float | None = None
    first_flows_bytes: float | None = None  # control variate: mean size of the first flows; None: the study has none


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """A median if no run were chosen by its verdict; None: no run is left, or none measured the figure."""

    replaced: int  # points whose first attempt does not count, whether a later one does or none
    without: float | None  # median of the other points
    first_attempts: float | None  # median of all first attempts, whatever their verdicts


@dataclass(frozen=True, slots=True)
class ConfigurationFigure:
    """A figure of one configuration over its runs; ``difference``: from the baseline's, of shared seeds."""

    configuration: int
    figure: str
    unit: str
    values: tuple[float, ...]  # of the runs that measured it
    median: Estimate
    baseline: int | None  # the configuration compared with; None: this is one
    difference: Paired | None
    sensitivity: Sensitivity | None = None  # None: all first attempts count
    controls: tuple[float, ...] = ()  # the control variate of each of the values; empty: there is none
    expectation: float = 0.0  # of the control variate

    def mean(self) -> Estimate:
        """The mean with a bootstrap interval, which only tables have: it takes its time."""
        return _mean(self.values)

    def controlled(self) -> Controlled | None:
        """The mean that the control variate corrects; None: the study has none, or the configuration no channels."""
        return _controlled(self.values, self.controls, self.expectation) if self.controls else None


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
    others: tuple[StudyRun, ...]  # invalid, failed, or a repetition of an earlier run
    figures: tuple[ConfigurationFigure, ...]  # that a run measured; by configuration, then by figure
    missing: int = 0  # points of a study at which --resume makes attempts
    warm_up: WarmUp = NO_WARM_UP
    stop: Stop | None = None
    stops: Mapping[int, Decision] = field(default_factory=dict[int, Decision])  # by configuration
    flow_bounds: Mapping[int, FlowBound] = field(default_factory=dict[int, FlowBound])  # by configuration that has one
    likeness: Likeness | None = None  # of runs that are not a study's: what else they share, and in what they differ

    @property
    def all_runs(self) -> list[StudyRun]:
        """All runs by their numbers."""
        return sorted((*self.runs, *self.others), key=lambda run: run.number)

    @property
    def sampled(self) -> bool:
        """Whether there is something to say over runs: in a study always, else from three runs of a configuration."""
        counts = [sum(run.configuration == number for run in self.runs) for number in range(len(self.configurations))]
        return self.likeness is None or any(count >= LEAST_SAMPLES for count in counts)

    def of(self, configuration: int, figure: str) -> ConfigurationFigure | None:
        """One figure of one configuration."""
        return self._by_configuration.get((configuration, figure))

    @functools.cached_property
    def _by_configuration(self) -> dict[tuple[int, str], ConfigurationFigure]:
        return {(each.configuration, each.figure): each for each in self.figures}

    def values(self, configuration: int, figure: str) -> dict[int, float]:
        """The measured values of a figure by seed."""
        return _by_seed([run for run in self.runs if run.configuration == configuration], figure)

    def label(self, configuration: int) -> str:
        """The levels of a configuration."""
        return ", ".join(self.configurations[configuration].values()) or self.name


def read_results(
    directory: StudyDirectory, baseline: Mapping[str, str] | None = None, figures: Sequence[str] = ()
) -> Results:
    """Read the runs of a study, and estimate. ``baseline``, ``figures``: instead of the study's.

    Raises RunDirError, UsageError for a factor, level or figure that there is not.
    """
    about = directory.study()
    factors: dict[str, list[str]] = about["factors"]
    against: Mapping[str, str] = about["baseline"] if baseline is None else baseline
    require_baseline(against, factors)
    require_figures(figures)
    configurations: list[dict[str, str]] = about["configurations"]
    points = points_of(directory, about["points"])
    stop = Stop(**about["stop"]) if about.get("stop") else None
    warm_up = warm_up_of(about.get("warm_up"), points)
    is_settled = settled(about)
    stops = decisions(stop, warm_up, points, over(stop, points, is_settled)) if stop else {}
    points = [each for each in points if not stop or each.repetition < stops[each.configuration].repetitions]
    requests = {
        each.configuration: from_json(RunRequest, directory.point(each.id)["request"])
        for each in points
        if each.repetition == 0
    }
    control = Control(**about["control"]) if about.get("control") else None
    controlled = {
        number: request.experiment.first_load
        for number, request in requests.items()
        if control and request.experiment.most_channels
    }
    runs: list[StudyRun] = []
    others: list[StudyRun] = []
    for point in points:
        for each in point.attempts:
            if each is point.usable or not each.usable:
                run = _run_of_point(len(runs) + len(others) + 1, point, each, warm_up)
                if each.usable and control and (traffic := controlled.get(point.configuration)):
                    run = replace(run, first_flows_bytes=control.of_run(traffic, point.seed))
                (runs if each.usable else others).append(run)
    expectations = {number: control.expectation(traffic) for number, traffic in controlled.items()} if control else {}
    found = estimate(runs, baselines(configurations, against), others, expectations)
    shown = tuple(figures or about["figures"] or USUAL_FIGURES)
    return Results(
        name=about["name"],
        factors=tuple(factors),
        configurations=tuple(configurations),
        seeds=tuple(dict.fromkeys(point.seed for point in points)),
        shown=shown,
        plotted=shown,
        runs=tuple(runs),
        others=tuple(others),
        figures=tuple(_looked_at(each, stop, stops.get(each.configuration)) for each in found),
        missing=sum(not is_settled(point) for point in points),
        warm_up=warm_up,
        stop=stop,
        stops=stops,
        flow_bounds={
            number: bound
            for number, request in requests.items()
            if (bound := flow_bound(request.network, request.experiment)) is not None
        },
    )


def _run_of_point(number: int, point: PointRuns, attempt: Attempt, warm_up: WarmUp) -> StudyRun:
    run = RunDir(attempt.path)
    analysed = attempt.outcome != FAILED or (run.path / "summary.json").exists()
    caveats = cast("Summary", run.summary()).get("caveats") or () if attempt.usable else ()
    return StudyRun(
        number=number,
        path=attempt.path,
        configuration=point.configuration,
        seed=point.seed,
        verdict=attempt.outcome,
        remarks=tuple(caveats if attempt.usable else filter(None, [attempt.message])),
        figures=run_figures(attempt, warm_up) if analysed else {},
        provenance=attempt.provenance,
        point=point.id,
        wall_s=attempt.wall_s,
    )


def _looked_at(each: ConfigurationFigure, stop: Stop | None, decision: Decision | None) -> ConfigurationFigure:
    """The figure that ``stop`` looks at with the interval that holds at all looks together."""
    if stop is None or each.figure != stop.figure or decision is None or decision.estimate is None:
        return each
    return replace(each, median=decision.estimate)


def require_figures(names: Iterable[str]) -> None:
    """Raise UsageError for a name that is no figure's."""
    for name in names:
        if name not in FIGURES:
            raise UsageError(f"--figure: unknown figure {name!r}; {suggest(name, FIGURES, 'figures')}")


def require_baseline(baseline: Mapping[str, str], factors: Mapping[str, Sequence[str]]) -> None:
    """Raise UsageError for a factor or a level that there is not."""
    for factor, level in baseline.items():
        if factor not in factors:
            raise UsageError(f"--baseline {factor}={level}: unknown factor; {suggest(factor, factors, 'factors')}")
        if level not in factors[factor]:
            known = suggest(level, factors[factor], "levels")
            raise UsageError(f"--baseline {factor}={level}: unknown level; {known}")


def baselines(configurations: Sequence[Mapping[str, str]], baseline: Mapping[str, str]) -> list[int | None]:
    """For each configuration the one with the levels of the baseline and otherwise the same.

    None: it is that one itself, or there is none, as may be among runs that are no study's.
    """
    found = [next((n for n, each in enumerate(configurations) if each == {**own, **baseline}), None)
             for own in configurations]  # fmt: skip
    return [None if other == number else other for number, other in enumerate(found)]


def estimate(
    runs: Sequence[StudyRun],
    compared: Sequence[int | None],
    others: Sequence[StudyRun] = (),
    expectations: Mapping[int, float] | None = None,
) -> Iterable[ConfigurationFigure]:
    """The figures of each configuration; ``compared``: the number of the configuration that each is compared with.

    ``others``: runs that do not count. ``expectations``: of the control variate, by configuration.
    """
    lossless = {name for name in LOSSES if not any(run.figures[name] for run in runs)}
    runs_of: list[list[StudyRun]] = [[] for _ in compared]
    for run in runs:
        runs_of[run.configuration].append(run)
    for configuration, baseline in enumerate(compared):
        own = runs_of[configuration]
        firsts = _first_attempts([*own, *(run for run in others if run.configuration == configuration)])
        for figure, (unit, _, _) in FIGURES.items():
            measured = [run for run in own if run.figures[figure] is not None]
            values = tuple(found for run in measured if (found := run.figures[figure]) is not None)
            if not values or figure in lossless:
                continue
            by_seed = functools.partial(_by_seed, figure=figure)
            yield ConfigurationFigure(
                configuration=configuration,
                figure=figure,
                unit=unit,
                values=values,
                median=quantile_estimate(values),
                baseline=baseline,
                difference=None if baseline is None else paired_differences(by_seed(runs_of[baseline]), by_seed(own)),
                sensitivity=_sensitivity(firsts, {run.number for run in own}, figure),
                controls=tuple(known for run in measured if (known := run.first_flows_bytes) is not None),
                expectation=(expectations or {}).get(configuration, 0.0),
            )


def _first_attempts(runs: Sequence[StudyRun]) -> list[StudyRun]:
    """The first attempt at each point. A run that is no study's is the only attempt at a point of its own."""
    firsts: dict[str | int, StudyRun] = {}
    for run in sorted(runs, key=lambda run: run.number):
        if run.repeats is None:
            firsts.setdefault(run.point or run.number, run)
    return list(firsts.values())


def _sensitivity(firsts: Sequence[StudyRun], counted: Collection[int], figure: str) -> Sensitivity | None:
    """``counted``: the numbers of the runs that count."""
    replaced = sum(run.number not in counted for run in firsts)
    if not replaced:
        return None
    ended = [run for run in firsts if run.verdict != FAILED]
    return Sensitivity(
        replaced=replaced,
        without=_median(run.figures[figure] for run in ended if run.number in counted),
        first_attempts=_median(run.figures[figure] for run in ended),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return median(known) if known else None


@functools.cache
def _mean(values: tuple[float, ...]) -> Estimate:
    return mean_estimate(values, seed=1)


@functools.cache
def _controlled(values: tuple[float, ...], controls: tuple[float, ...], expectation: float) -> Controlled:
    return controlled_mean(values, controls, expectation, seed=1)


def _by_seed(runs: Sequence[StudyRun], figure: str) -> dict[int, float]:
    """Values by seed; of several runs of one seed, as in real time, their median."""
    found: dict[int, list[float]] = {}
    for run in runs:
        if (value := run.figures[figure]) is not None:
            found.setdefault(run.seed, []).append(value)
    return {seed: median(values) for seed, values in found.items()}


def letters(number: int) -> str:
    """The short name of a configuration: ``A`` to ``Z``, then ``AA``, as spreadsheets call columns."""
    rest, last = divmod(number, 26)
    return (letters(rest - 1) if rest else "") + chr(ord("A") + last)


# Tables


def column_name(figure: str, unit: str) -> str:
    """``goodput_mbit_s``: the figure and its unit as the name of a column."""
    unit = {"%": "percent"}.get(unit, unit)
    return re.sub(r"[^a-z0-9]+", "_", f"{figure} {unit}".lower()).strip("_")


def columns() -> frozenset[str]:
    """The columns that the tables have besides factors."""
    figures = {column_name(name, unit) for name, (unit, _, _) in FIGURES.items()}
    return frozenset({"seed", "verdict", CONTROL_COLUMN, *figures, *ORIGIN_COLUMNS, *FIGURE_COLUMNS})


def runs_table(results: Results) -> "pl.DataFrame":
    """A row for each run that counts, in the order of configurations and seeds."""
    import polars as pl

    present = [name for name in FIGURES if any(run.figures[name] is not None for run in results.runs)]
    rows: list[dict[str, Any]] = []
    for run in sorted(results.runs, key=lambda each: (each.configuration, results.seeds.index(each.seed))):
        origin = run.provenance
        by = (origin.platform, origin.revision, origin.kernel, origin.mode)
        rows.append(
            {
                **results.configurations[run.configuration],
                "seed": run.seed,
                "verdict": run.verdict,
                **{column_name(name, FIGURES[name][0]): run.figures[name] for name in present},
                **({} if (known := run.first_flows_bytes) is None else {CONTROL_COLUMN: known}),
                **dict(zip(ORIGIN_COLUMNS, (run.point, str(run.path), run.wall_s, *by), strict=True)),
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)


def figures_table(results: Results) -> "pl.DataFrame":
    """A row for each configuration and figure: estimates with their intervals, and differences from the baseline."""
    import polars as pl

    rows = [_figure_row(results, each) for each in results.figures]
    return pl.DataFrame(rows, {**dict.fromkeys(results.factors, str), **FIGURE_COLUMNS})


def _figure_row(results: Results, each: ConfigurationFigure) -> dict[str, Any]:
    pair, controlled, sensitivity = each.difference, each.controlled(), each.sensitivity
    stopped = results.stops.get(each.configuration) if results.stop and results.stop.figure == each.figure else None
    return {
        **results.configurations[each.configuration],
        "figure": each.figure,
        "unit": each.unit,
        "runs": each.median.runs,
        **_estimate_columns("median", each.median),
        **_estimate_columns("quartile_1", quantile_estimate(each.values, 0.25)),
        **_estimate_columns("quartile_3", quantile_estimate(each.values, 0.75)),
        "least": min(each.values),
        "greatest": max(each.values),
        **_estimate_columns("mean", each.mean()),
        **_estimate_columns("controlled", controlled.estimate if controlled else None),
        "control_correlation": controlled.correlation if controlled else None,
        "stopped": stopped.reason.value if stopped else None,
        "replaced": sensitivity.replaced if sensitivity else 0,
        "median_without_replaced": sensitivity.without if sensitivity else None,
        "median_of_first_attempts": sensitivity.first_attempts if sensitivity else None,
        "baseline": None if each.baseline is None else results.label(each.baseline),
        "pairs": pair.median.runs if pair else None,
        **_estimate_columns("difference", pair.median if pair else None),
        "pairs_higher": pair.higher if pair else None,
        "pairs_lower": pair.lower if pair else None,
    }


def _estimate_columns(name: str, each: Estimate | None) -> dict[str, float | None]:
    held = (each.value, each.low, each.high, each.level) if each else (None,) * len(_ESTIMATE)
    return {f"{name}{part}": value for part, value in zip(_ESTIMATE, held, strict=True)}


def units_of(table: "pl.DataFrame") -> dict[str, str]:
    """The units of a table's columns, as Parquet's metadata has them: ``unit:goodput_mbit_s`` is ``Mbit/s``."""
    units = {
        CONTROL_COLUMN: unit_of(CONTROL_COLUMN),
        **{column_name(name, unit): unit for name, (unit, _, _) in FIGURES.items()},
    }
    return {f"unit:{column}": units[column] for column in table.columns if units.get(column)}


def write_tables(results: Results, folder: Path) -> list[Path]:
    """Write both tables in both formats; returns the files. Parquet's metadata has the columns' units.

    Raises RunError when the disk is full.
    """
    if not results.runs:
        return []
    written: list[Path] = []
    for name, table in ((RUNS, runs_table(results)), (FIGURE_TABLE, figures_table(results))):
        with replacing(folder / f"{name}.csv") as path:
            table.write_csv(path)
        with replacing(folder / f"{name}.parquet") as path:
            table.write_parquet(path, metadata=units_of(table))
        written += [folder / f"{name}.csv", folder / f"{name}.parquet"]
    return written


def results_json(results: Results) -> dict[str, Any]:
    """The results as ``--json`` prints them: configurations, every run, and the rows of the table of figures.

    Of runs that are no study's, ``alike`` and ``settings`` have the properties in which they agree and differ,
    ``unlike`` the names of those that are no settings.
    """
    likeness = results.likeness
    return {
        "name": results.name,
        "factors": list(results.factors),
        "seeds": list(results.seeds),
        "configurations": [
            {
                "name": letters(number),
                "levels": dict(levels),
                "runs": [run.number for run in results.all_runs if run.configuration == number],
                "counted": [run.number for run in results.runs if run.configuration == number],
            }
            for number, levels in enumerate(results.configurations)
        ],
        "runs": [
            {
                "number": run.number,
                "run_dir": str(run.path),
                "configuration": letters(run.configuration),
                "seed": run.seed,
                "verdict": run.verdict,
                "remarks": list(run.remarks),
                "repeats": run.repeats,
                "figures": {name: found for name, found in run.figures.items() if name in results.shown},
            }
            for run in results.all_runs
        ],
        "figures": [_figure_row(results, each) for each in results.figures if each.figure in results.shown],
        "missing": results.missing,
        "warm_up": {
            "rule": results.warm_up.rule,
            "seconds": results.warm_up.seconds,
            "unsettled": [letters(number) for number in results.warm_up.unsettled],
        },
        "stop": [
            {
                "configuration": letters(number),
                "repetitions": each.repetitions,
                "reason": each.reason.value,
                "half_width": each.half_width,
            }
            for number, each in results.stops.items()
        ],
        "largest_flow": [
            {"configuration": letters(number), **asdict(each)} for number, each in results.flow_bounds.items()
        ],
        **(likeness.to_json() if likeness else {}),
    }
