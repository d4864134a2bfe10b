# SPDX-License-Identifier: Apache-2.0
"""The results of a study: a table of runs, and a table of figures of each configuration over its runs.

Both are written as CSV and as Parquet; ``docs/studies.md`` has their columns.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.atomic_files import replacing
from atoll_analysis.summary import Summary
from atoll_core.description.validation_messages import suggest
from atoll_core.errors import UsageError
from atoll_dashboards.compare.comparison import FIGURES, LOSSES
from atoll_studies.statistics import Estimate, Paired, mean_estimate, paired_differences, quantile, quantile_estimate
from atoll_studies.study_directory import Attempt, StudyDirectory

if TYPE_CHECKING:
    import polars as pl

USUAL_FIGURES = ("goodput", "utilisation", "loss", "queue sojourn p95", "flows completed", "transfer time")
"""Figures that are shown if a study names none."""

RUNS, FIGURE_TABLE = "runs", "figures"
"""Names of the tables' files, without .csv or .parquet."""


_ORIGIN_COLUMNS = ("point", "run", "wall_s", "platform", "revision", "kernel", "kernel_mode")
_ESTIMATE = ("", "_low", "_high", "_level")
FIGURE_COLUMNS: dict[str, type] = {
    **dict.fromkeys(("figure", "unit"), str),
    "runs": int,
    **{f"median{part}": float for part in _ESTIMATE},
    **dict.fromkeys(("quartile_1", "quartile_3", "least", "greatest"), float),
    **{f"mean{part}": float for part in _ESTIMATE},
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
    runs: list[StudyRun] = []
    invalid: list[tuple[str, Attempt]] = []
    points: list[dict[str, Any]] = about["points"]
    for point in points:
        attempts = directory.attempts(point["id"])
        configuration: int = point["configuration"]
        levels = list(configurations[configuration].values())
        invalid += [(", ".join((*levels, f"seed {point['seed']}")), each) for each in attempts if not each.usable]
        usable = next((each for each in attempts if each.usable), None)
        if usable is not None:
            summary = cast("Summary", RunDir.open(usable.path).summary())
            measured = {name: _number(read(summary)) for name, (_, _, read) in FIGURES.items()}
            runs.append(StudyRun(point["id"], configuration, point["seed"], usable, measured))
    compared = [_baseline_of(number, configurations, against) for number in range(len(configurations))]
    return Results(
        name=about["name"],
        factors=tuple(factors),
        configurations=tuple(configurations),
        seeds=tuple(dict.fromkeys(point["seed"] for point in points)),
        shown=tuple(figures or about["figures"] or USUAL_FIGURES),
        runs=tuple(runs),
        figures=tuple(_estimated(runs, compared)),
        invalid=tuple(invalid),
        missing=len(points) - len(runs),
    )


def _number(found: float | None) -> float | None:
    return None if found is None else float(found)


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


def _estimated(runs: Sequence[StudyRun], compared: Sequence[int | None]) -> Iterable[ConfigurationFigure]:
    lossless = {name for name in LOSSES if not any(run.figures[name] for run in runs)}
    runs_of: list[list[StudyRun]] = [[] for _ in compared]
    for run in runs:
        runs_of[run.configuration].append(run)
    for configuration, baseline in enumerate(compared):
        for figure, (unit, _, _) in FIGURES.items():
            values = _values(runs_of[configuration], figure)
            if not values or figure in lossless:
                continue
            each = list(values.values())
            yield ConfigurationFigure(
                configuration=configuration,
                figure=figure,
                unit=unit,
                median=quantile_estimate(each),
                mean=mean_estimate(each, seed=1),
                quartiles=(quantile(each, 0.25), quantile(each, 0.75)),
                least=min(each),
                greatest=max(each),
                baseline=baseline,
                difference=None if baseline is None else paired_differences(_values(runs_of[baseline], figure), values),
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
    return frozenset({"seed", "verdict", *figures, *_ORIGIN_COLUMNS, *FIGURE_COLUMNS})


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
    units = {column_name(name, unit): unit for name, (unit, _, _) in FIGURES.items()}
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
    }
