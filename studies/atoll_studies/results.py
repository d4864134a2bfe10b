# SPDX-License-Identifier: Apache-2.0
"""The results of a study: a table of runs, and a table of figures of each configuration over its runs.

Both are written as CSV and as Parquet; ``docs/studies.md`` has their columns.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll_analysis.run_directory.atomic_files import replacing
from atoll_core.codec import from_json
from atoll_core.description.validation_messages import suggest
from atoll_core.errors import UsageError
from atoll_dashboards.compare.comparison import FIGURES, LOSSES
from atoll_studies.flow_sample import Control, largest_flow_bytes
from atoll_studies.statistics import (
    Controlled,
    Estimate,
    Paired,
    controlled_mean,
    mean_estimate,
    paired_differences,
    quantile,
    quantile_estimate,
)
from atoll_studies.stopping import Decision, Stop
from atoll_studies.study_directory import Attempt, StudyDirectory
from atoll_studies.study_runs import Figures, PointRuns, decisions, first_attempt_figures, run_figures, warm_up_of
from atoll_studies.warm_up import WarmUp
from atoll_testbed.run.run_request import RunRequest

if TYPE_CHECKING:
    import polars as pl

USUAL_FIGURES = ("goodput", "utilisation", "loss", "queue sojourn p95", "flows completed", "transfer time")
"""Figures that are shown if a study names none."""

RUNS, FIGURE_TABLE = "runs", "figures"
"""Names of the tables' files, without .csv or .parquet."""


_CONTROL_COLUMN = "first_flows_mean_b"
_ORIGIN_COLUMNS = ("point", "run", "wall_s", "platform", "revision", "kernel", "kernel_mode")
_ESTIMATE = ("", "_low", "_high", "_level")
FIGURE_COLUMNS: dict[str, type] = {
    **dict.fromkeys(("figure", "unit"), str),
    "runs": int,
    **{f"median{part}": float for part in _ESTIMATE},
    **dict.fromkeys(("quartile_1", "quartile_3", "least", "greatest"), float),
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
    """A usable run of a point."""

    point: str
    configuration: int
    seed: int
    attempt: Attempt
    figures: Mapping[str, float | None]  # all of FIGURES
    control: float | None = (
        None  # mean size of the first flows of its channels in bytes; None: the study has no control
    )


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """A median if runs had not been replaced by their verdict; None: no run is left, or no attempt measured it."""

    replaced: int  # points with an attempt before the usable one, or with none that is usable
    without: float | None  # median of the points of which the first attempt is usable
    first_attempts: float | None  # median of all first attempts, whatever their verdicts


@dataclass(frozen=True, slots=True)
class FlowBound:
    """The largest flow that one run can measure to its end."""

    largest_bytes: int
    share_of_flows: float  # that are larger
    share_of_bytes: float  # that these flows have


@dataclass(frozen=True, slots=True)
class ConfigurationFigure:
    """A figure of one configuration over its runs; ``difference``: from the baseline's, of shared seeds."""

    configuration: int
    figure: str
    unit: str
    median: Estimate
    mean: Estimate
    quartiles: tuple[float, float]
    least: float
    greatest: float
    baseline: int | None  # the configuration compared with; None: this is one
    difference: Paired | None
    controlled: Controlled | None = None  # None: the study has no control, or the configuration no channels
    stopped: Decision | None = None  # of the figure that the study's ``stop`` looks at
    sensitivity: Sensitivity | None = None  # None: no run was replaced or left out


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a study so far."""

    name: str
    factors: tuple[str, ...]
    configurations: tuple[Mapping[str, str], ...]  # levels by factor
    seeds: tuple[int, ...]
    shown: tuple[str, ...]  # figures
    runs: tuple[StudyRun, ...]
    figures: tuple[ConfigurationFigure, ...]  # that a run measured; by configuration, then by figure
    invalid: tuple[tuple[str, Attempt], ...]  # label of the point
    missing: int  # points without a usable run
    warm_up: WarmUp
    stop: Stop | None
    stops: Mapping[int, Decision]  # by configuration
    flow_bounds: Mapping[int, FlowBound]  # of configurations with channels and a link

    def of(self, configuration: int, figure: str) -> ConfigurationFigure | None:
        """One figure of one configuration."""
        return next((f for f in self.figures if f.configuration == configuration and f.figure == figure), None)

    def values(self, configuration: int, figure: str) -> dict[int, float]:
        """The measured values of a figure by seed."""
        return _values((run for run in self.runs if run.configuration == configuration), figure)

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
    _require_baseline(against, factors)
    for name in figures:
        if name not in FIGURES:
            raise UsageError(f"--figure: unknown figure {name!r}; {suggest(name, FIGURES, 'figures')}")
    configurations: list[dict[str, str]] = about["configurations"]
    points = _points(directory, about["points"])
    warm_up = warm_up_of(about.get("warm_up"), points)
    stop = Stop(**about["stop"]) if about.get("stop") else None
    control = Control(**about["control"]) if about.get("control") else None
    stops = decisions(stop, warm_up, points, _ended(points)) if stop else {}
    points = [each for each in points if not stop or each.repetition < stops[each.configuration].repetitions]
    requests = {
        each.configuration: from_json(RunRequest, directory.point(each.id)["request"])
        for each in points
        if each.repetition == 0
    }
    runs: list[StudyRun] = []
    for point in points:
        if (usable := point.usable) is not None:
            traffic = requests[point.configuration].experiment.traffic
            value = control.of_run(traffic, point.seed) if control and traffic.channels else None
            measured = run_figures(usable.path, warm_up)
            runs.append(StudyRun(point.id, point.configuration, point.seed, usable, measured, value))
    estimates = _Estimates(runs, points, warm_up, stop, stops, control, requests)
    compared = [_baseline_of(number, configurations, against) for number in range(len(configurations))]
    return Results(
        name=about["name"],
        factors=tuple(factors),
        configurations=tuple(configurations),
        seeds=tuple(dict.fromkeys(point.seed for point in points)),
        shown=tuple(figures or about["figures"] or USUAL_FIGURES),
        runs=tuple(runs),
        figures=tuple(estimates.of(compared)),
        invalid=tuple(
            (", ".join((*configurations[point.configuration].values(), f"seed {point.seed}")), attempt)
            for point in points
            for attempt in point.attempts
            if not attempt.usable
        ),
        missing=len(points) - len(runs),
        warm_up=warm_up,
        stop=stop,
        stops=stops,
        flow_bounds={number: bound for number, each in requests.items() if (bound := _flow_bound(each)) is not None},
    )


def _points(directory: StudyDirectory, listed: Sequence[Mapping[str, Any]]) -> list[PointRuns]:
    """The points of study.json, block by block, with their attempts."""
    made: Counter[int] = Counter()
    found: list[PointRuns] = []
    for each in listed:
        number = each["configuration"]
        found.append(PointRuns(each["id"], number, made[number], each["seed"], directory.attempts(each["id"])))
        made[number] += 1
    return found


def _ended(points: Sequence[PointRuns]) -> Callable[[PointRuns], bool]:
    """Whether a sweep is done with a point: there is an attempt at it, or at a later one of its configuration."""
    last: dict[int, int] = {}
    for each in points:
        if each.attempts:
            last[each.configuration] = max(each.repetition, last.get(each.configuration, 0))
    return lambda each: each.repetition <= last.get(each.configuration, -1)


def _flow_bound(request: RunRequest) -> FlowBound | None:
    experiment = request.experiment
    largest = largest_flow_bytes(request.network, experiment) if experiment.traffic.channels else None
    if largest is None:
        return None
    sizes = experiment.traffic.distribution
    return FlowBound(largest, 1 - sizes.share_up_to(largest), 1 - sizes.bytes_share_up_to(largest))


def _require_baseline(baseline: Mapping[str, str], factors: Mapping[str, Sequence[str]]) -> None:
    for factor, level in baseline.items():
        if factor not in factors:
            raise UsageError(f"--baseline {factor}={level}: unknown factor; {suggest(factor, factors, 'factors')}")
        if level not in factors[factor]:
            known = suggest(level, factors[factor], "levels")
            raise UsageError(f"--baseline {factor}={level}: unknown level; {known}")


def _baseline_of(number: int, configurations: Sequence[Mapping[str, str]], baseline: Mapping[str, str]) -> int | None:
    """The configuration with the levels of the baseline and otherwise the same; None if it is that one itself."""
    wanted = {**configurations[number], **baseline}
    if wanted == configurations[number]:
        return None
    return configurations.index(wanted)


@dataclass(frozen=True, slots=True)
class _Estimates:
    """The estimates of all figures from the runs of a study."""

    runs: Sequence[StudyRun]
    points: Sequence[PointRuns]
    warm_up: WarmUp
    stop: Stop | None
    stops: Mapping[int, Decision]
    control: Control | None
    requests: Mapping[int, RunRequest]

    def of(self, compared: Sequence[int | None]) -> Iterable[ConfigurationFigure]:
        """The estimates by configuration, then by figure. ``compared``: the baseline of each configuration."""
        lossless = {name for name in LOSSES if not any(run.figures[name] for run in self.runs)}
        runs_of: list[list[StudyRun]] = [[] for _ in compared]
        for run in self.runs:
            runs_of[run.configuration].append(run)
        for configuration, baseline in enumerate(compared):
            own = runs_of[configuration]
            first_attempts = self.first_attempts(configuration)
            for figure, (unit, _, _) in FIGURES.items():
                values = _values(own, figure)
                if not values or figure in lossless:
                    continue
                each = list(values.values())
                stopped = self.stops.get(configuration) if self.stop and figure == self.stop.figure else None
                others = None if baseline is None else _values(runs_of[baseline], figure)
                yield ConfigurationFigure(
                    configuration=configuration,
                    figure=figure,
                    unit=unit,
                    median=(stopped and stopped.estimate) or quantile_estimate(each),
                    mean=mean_estimate(each, seed=1),
                    quartiles=(quantile(each, 0.25), quantile(each, 0.75)),
                    least=min(each),
                    greatest=max(each),
                    baseline=baseline,
                    difference=None if others is None else paired_differences(others, values),
                    controlled=self.controlled(configuration, own, figure),
                    stopped=stopped,
                    sensitivity=_sensitivity(first_attempts, values, figure) if first_attempts else None,
                )

    def controlled(self, configuration: int, own: Sequence[StudyRun], figure: str) -> Controlled | None:
        traffic = self.requests[configuration].experiment.traffic
        if self.control is None or not traffic.channels:
            return None
        pairs = [(run.figures[figure], run.control) for run in own]
        known = [(value, control) for value, control in pairs if value is not None and control is not None]
        values, controls = zip(*known, strict=True)
        return controlled_mean(values, controls, self.control.expectation(traffic), seed=1)

    def first_attempts(self, configuration: int) -> "dict[int, tuple[bool, Figures]] | None":
        """By seed: whether the first attempt is usable, and its figures; None if all are."""
        own = [each for each in self.points if each.configuration == configuration and each.attempts]
        if all(each.attempts[0].usable for each in own):
            return None
        return {each.seed: (each.attempts[0].usable, first_attempt_figures(each, self.warm_up)) for each in own}


def _sensitivity(
    first_attempts: "Mapping[int, tuple[bool, Figures]]", values: Mapping[int, float], figure: str
) -> Sensitivity:
    kept = [value for seed, value in values.items() if first_attempts[seed][0]]
    first = [value for _, figures in first_attempts.values() if (value := figures.get(figure)) is not None]
    return Sensitivity(
        replaced=sum(not usable for usable, _ in first_attempts.values()),
        without=quantile(kept, 0.5) if kept else None,
        first_attempts=quantile(first, 0.5) if first else None,
    )


def _values(runs: Iterable[StudyRun], figure: str) -> dict[int, float]:
    return {run.seed: found for run in runs if (found := run.figures[figure]) is not None}


# Tables


def column_name(figure: str, unit: str) -> str:
    """``goodput_mbit_s``: the figure and its unit as the name of a column."""
    unit = {"%": "percent"}.get(unit, unit)
    return re.sub(r"[^a-z0-9]+", "_", f"{figure} {unit}".lower()).strip("_")


def columns() -> frozenset[str]:
    """The columns that the tables have besides factors."""
    figures = {column_name(name, unit) for name, (unit, _, _) in FIGURES.items()}
    return frozenset({"seed", "verdict", _CONTROL_COLUMN, *figures, *_ORIGIN_COLUMNS, *FIGURE_COLUMNS})


def runs_table(results: Results) -> "pl.DataFrame":
    """A row for each usable run, in the order of configurations and seeds."""
    import polars as pl

    present = [name for name in FIGURES if any(run.figures[name] is not None for run in results.runs)]
    rows: list[dict[str, Any]] = []
    for run in sorted(results.runs, key=lambda each: (each.configuration, results.seeds.index(each.seed))):
        origin = run.attempt.provenance
        by = (origin.platform, origin.revision, origin.kernel, origin.mode)
        made = (run.point, str(run.attempt.path), run.attempt.wall_s, *by)
        rows.append(
            {
                **results.configurations[run.configuration],
                "seed": run.seed,
                "verdict": run.attempt.outcome,
                **{column_name(name, FIGURES[name][0]): run.figures[name] for name in present},
                **({} if run.control is None else {_CONTROL_COLUMN: run.control}),
                **dict(zip(_ORIGIN_COLUMNS, made, strict=True)),
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)


def figures_table(results: Results) -> "pl.DataFrame":
    """A row for each configuration and figure: estimates with their intervals, and differences from the baseline."""
    import polars as pl

    rows = [_figure_row(results, each) for each in results.figures]
    return pl.DataFrame(rows, {**dict.fromkeys(results.factors, str), **FIGURE_COLUMNS})


def _figure_row(results: Results, each: ConfigurationFigure) -> dict[str, Any]:
    pair = each.difference
    return {
        **results.configurations[each.configuration],
        "figure": each.figure,
        "unit": each.unit,
        "runs": each.median.runs,
        **_estimate_columns("median", each.median),
        "quartile_1": each.quartiles[0],
        "quartile_3": each.quartiles[1],
        "least": each.least,
        "greatest": each.greatest,
        **_estimate_columns("mean", each.mean),
        **_estimate_columns("controlled", each.controlled.estimate if each.controlled else None),
        "control_correlation": each.controlled.correlation if each.controlled else None,
        "stopped": each.stopped.reason.value if each.stopped else None,
        "replaced": each.sensitivity.replaced if each.sensitivity else 0,
        "median_without_replaced": each.sensitivity.without if each.sensitivity else None,
        "median_of_first_attempts": each.sensitivity.first_attempts if each.sensitivity else None,
        "baseline": None if each.baseline is None else results.label(each.baseline),
        "pairs": pair.median.runs if pair else None,
        **_estimate_columns("difference", pair.median if pair else None),
        "pairs_higher": pair.higher if pair else None,
        "pairs_lower": pair.lower if pair else None,
    }


def _estimate_columns(name: str, each: Estimate | None) -> dict[str, float | None]:
    held = (each.value, each.low, each.high, each.level) if each else (None,) * len(_ESTIMATE)
    return {f"{name}{part}": value for part, value in zip(_ESTIMATE, held, strict=True)}


def write_tables(results: Results, folder: Path) -> list[Path]:
    """Write both tables in both formats; returns the files. Parquet's metadata has the columns' units.

    Raises RunError when the disk is full.
    """
    if not results.runs:
        return []
    units = {_CONTROL_COLUMN: "B", **{column_name(name, unit): unit for name, (unit, _, _) in FIGURES.items()}}
    written: list[Path] = []
    for name, table in ((RUNS, runs_table(results)), (FIGURE_TABLE, figures_table(results))):
        with replacing(folder / f"{name}.csv") as path:
            table.write_csv(path)
        with replacing(folder / f"{name}.parquet") as path:
            metadata = {f"unit:{column}": units[column] for column in table.columns if units.get(column)}
            table.write_parquet(path, metadata=metadata)
        written += [folder / f"{name}.csv", folder / f"{name}.parquet"]
    return written


def results_json(results: Results) -> dict[str, Any]:
    """The results as ``--json`` prints them: the rows of the table of figures, and what does not count."""
    return {
        "study": results.name,
        "factors": list(results.factors),
        "seeds": list(results.seeds),
        "figures": [_figure_row(results, each) for each in results.figures],
        "invalid": [
            {"point": label, "run_dir": str(attempt.path), "outcome": attempt.outcome, "message": attempt.message}
            for label, attempt in results.invalid
        ],
        "missing": results.missing,
        "warm_up": {
            "rule": results.warm_up.rule,
            "seconds": results.warm_up.seconds,
            "unsettled": [results.label(number) for number in results.warm_up.unsettled],
        },
        "stop": [
            {
                "configuration": results.label(number),
                "repetitions": each.repetitions,
                "reason": each.reason.value,
                "half_width": each.half_width,
            }
            for number, each in results.stops.items()
        ],
        "largest_flow": [
            {"configuration": results.label(number), **asdict(each)} for number, each in results.flow_bounds.items()
        ],
    }
