# SPDX-License-Identifier: Apache-2.0
"""Results as tables of runs and of figures, in files, and as ``--json`` prints them."""

import math
import re
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from atoll_analysis.figures.run_figures import (
    FIGURES,
    TRANSFER_FIGURES,
    general_figure,
    unit_and_digits,
)
from atoll_analysis.run_directory.atomic_files import replacing
from atoll_analysis.tables.table_schemas import unit_of
from atoll_studies.results.agreement import comparisons
from atoll_studies.results.conclusions import compared_figures
from atoll_studies.results.effects import effects
from atoll_studies.results.queue_capacity import advice_json, queue_advice
from atoll_studies.results.queue_search import search_results, searches_json
from atoll_studies.results.results import ConfigurationFigure, Results, letters
from atoll_studies.statistics.estimates import Estimate, Limits, limited, quantile_estimate

if TYPE_CHECKING:
    import polars as pl

RUNS, FIGURE_TABLE = "runs", "figures"
"""Names of the tables' files, without .csv or .parquet."""

REGIME_COLUMN = "regime"
VARIATE_COLUMN = "first_flows_mean_bytes"
ORIGIN_COLUMNS = ("point", "run", "wall_s", "platform", "revision", "kernel", "kernel_mode")
_SUFFIXES = ("", "_low", "_high", "_level")
FIGURE_COLUMNS: dict[str, type] = {
    **dict.fromkeys(("figure", "unit"), str),
    **dict.fromkeys(("runs", "finished"), int),
    **{f"median{part}": float for part in _SUFFIXES},
    "median_limits": str,
    **{f"quartile_{number}{part}": float for number in (1, 3) for part in _SUFFIXES},
    **dict.fromkeys(("quartile_1_limits", "quartile_3_limits"), str),
    **dict.fromkeys(("least", "greatest"), float),
    **{f"mean{part}": float for part in _SUFFIXES},
    **{f"controlled{part}": float for part in _SUFFIXES},
    "control_correlation": float,
    "stopped": str,
    "replaced": int,
    **dict.fromkeys(("median_without_replaced", "median_of_first_attempts"), float),
    "baseline": str,
    "pairs": int,
    **{f"difference{part}": float for part in _SUFFIXES},
    "difference_limits": str,
    **dict.fromkeys(("pairs_higher", "pairs_lower"), int),
}
"""Columns of the table of figures after those of factors, with their types."""


def column_name(figure: str, unit: str) -> str:
    """``goodput_mbit_s``: the figure and its unit as the name of a column."""
    unit = {"%": "percent"}.get(unit, unit)
    return re.sub(r"[^a-z0-9]+", "_", f"{figure} {unit}".lower()).strip("_")


def figure_column(figure: str) -> str:
    """The column of a figure."""
    return column_name(figure, unit_and_digits(figure)[0])


def limit_columns(figure: str) -> tuple[str, str]:
    """``transfer_time_at_least_s``, ``transfer_time_at_most_s``: the limits of a figure that a run did not measure."""
    unit, _ = unit_and_digits(figure)
    return column_name(f"{figure} at least", unit), column_name(f"{figure} at most", unit)


def _limit_column(figure: str, limits: tuple[float, float]) -> str:
    at_least, at_most = limit_columns(figure)
    return at_least if math.isfinite(limits[0]) else at_most


def reserved_columns() -> frozenset[str]:
    """The columns that the tables have besides factors."""
    figures = {*map(figure_column, FIGURES), *chain.from_iterable(map(limit_columns, TRANSFER_FIGURES))}
    return frozenset({"seed", "verdict", REGIME_COLUMN, VARIATE_COLUMN, *figures, *ORIGIN_COLUMNS, *FIGURE_COLUMNS})


def runs_table(results: Results) -> "pl.DataFrame":
    """A row for each run that counts, in the order of configurations and seeds."""
    import polars as pl

    measured = [name for name in results.figure_names if any(run.limits_of(name) for run in results.runs)]
    rows: list[dict[str, Any]] = []
    for run in sorted(results.runs, key=lambda run: (run.configuration, results.seeds.index(run.seed))):
        origin, path = run.provenance, run.path and str(run.path)
        software = (origin.platform or None, origin.revision, origin.kernel or None, origin.mode)
        rows.append(
            {
                **results.configurations[run.configuration],
                "seed": run.seed,
                "verdict": run.verdict,
                REGIME_COLUMN: run.regime,
                **{figure_column(name): run.figures.get(name) for name in measured},
                **{_limit_column(name, limits): Limits(*limits).finite for name, limits in run.limits.items()},
                **({} if (size := run.first_flows_bytes) is None else {VARIATE_COLUMN: size}),
                **dict(zip(ORIGIN_COLUMNS, (run.point, path, run.wall_s, *software), strict=True)),
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)


def figures_table(results: Results) -> "pl.DataFrame":
    """A row for each configuration and figure: estimates with their intervals, and differences from the baseline."""
    import polars as pl

    rows = [_figure_row(results, figure) for figure in results.figures]
    return pl.DataFrame(rows, {**dict.fromkeys(results.factors, str), **FIGURE_COLUMNS})


def _figure_row(results: Results, row: ConfigurationFigure) -> dict[str, Any]:
    difference, controlled, sensitivity = row.difference, row.controlled(), row.sensitivity
    stopped = results.stops.get(row.configuration) if results.stop and results.stop.figure == row.figure else None
    return {
        **results.configurations[row.configuration],
        "figure": row.figure,
        "unit": row.unit,
        "runs": row.median.runs,
        "finished": len(row.exact_values) if general_figure(row.figure) in TRANSFER_FIGURES else None,
        **_limited_columns("median", row.median),
        **_limited_columns("quartile_1", limited(partial(quantile_estimate, share=0.25), row.values)),
        **_limited_columns("quartile_3", limited(partial(quantile_estimate, share=0.75), row.values)),
        **{
            name: _exact(Limits(most(value.least for value in row.values), most(value.most for value in row.values)))
            for name, most in (("least", min), ("greatest", max))
        },
        **_estimate_columns("mean", row.mean()),
        **_estimate_columns("controlled", controlled.estimate if controlled else None),
        "control_correlation": controlled.correlation if controlled else None,
        "stopped": stopped.reason.value if stopped else None,
        "replaced": sensitivity.replaced if sensitivity else 0,
        "median_without_replaced": _exact(sensitivity.without) if sensitivity else None,
        "median_of_first_attempts": _exact(sensitivity.first_attempts) if sensitivity else None,
        "baseline": None if row.baseline is None else results.label(row.baseline),
        "pairs": difference.median.runs if difference else None,
        **_limited_columns("difference", difference.median if difference else None),
        "pairs_higher": difference.higher if difference else None,
        "pairs_lower": difference.lower if difference else None,
    }


def _estimate_columns(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    cells = (estimate.value, estimate.low, estimate.high, estimate.level) if estimate else (None,) * len(_SUFFIXES)
    return {f"{name}{part}": value for part, value in zip(_SUFFIXES, cells, strict=True)}


def _limited_columns(name: str, estimate: Estimate | None) -> dict[str, float | str | None]:
    """The columns of an estimate of which limits alone may be known.

    ``_limits`` has a sign for each of value, low and high: ``=``, ``>`` or ``<`` the number, ``~`` at least the number
    and less than infinite, ``?`` not known.
    """
    signs = "".join(limits.sign for limits in estimate.limits) if estimate else None
    numbers = (*(limits.finite for limits in estimate.limits), estimate.level) if estimate else (None,) * len(_SUFFIXES)
    return {**dict(zip((f"{name}{part}" for part in _SUFFIXES), numbers, strict=True)), f"{name}_limits": signs}


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _exact(limits: Limits | None) -> float | None:
    return limits.least if limits and limits.is_exact else None


def units_of(table: "pl.DataFrame", figures: Iterable[str]) -> dict[str, str]:
    """The units of a table's columns, as Parquet's metadata has them: ``unit:goodput_mbit_s`` is ``Mbit/s``.

    ``figures``: the figures of the runs.
    """
    units = {
        VARIATE_COLUMN: unit_of(VARIATE_COLUMN),
        **{figure_column(name): unit_and_digits(name)[0] for name in figures},
    }
    return {f"unit:{column}": units[column] for column in table.columns if units.get(column)}


def write_tables(results: Results, folder: Path) -> list[Path]:
    """Write both tables in both formats; returns the files. Parquet's metadata has the columns' units.

    Raises RunError when the disk is full.
    """
    if not results.runs:
        return []
    files = [folder / f"{name}{suffix}" for name in (RUNS, FIGURE_TABLE) for suffix in (".csv", ".parquet")]
    for file in files:
        table = runs_table(results) if file.stem == RUNS else figures_table(results)
        with replacing(file) as path, path.open("wb") as sink:
            write_table(table, sink, file.suffix, results.figure_names)
    return files


def write_table(table: "pl.DataFrame", sink: IO[bytes], suffix: str, figures: Iterable[str]) -> None:
    """Write a table as ``.csv`` or ``.parquet``, whose metadata has the columns' units. ``figures``: of the runs."""
    if suffix == ".csv":
        table.write_csv(sink)
    else:
        table.write_parquet(sink, metadata=units_of(table, figures))


def results_json(results: Results) -> dict[str, Any]:
    """The results as ``--json`` prints them: configurations, every run, and the rows of the table of figures.

    Of runs that are no study's, ``alike`` and ``settings`` have the properties in which they agree and differ,
    ``unlike`` the names of those that are no settings.
    """
    similarity = results.similarity
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
                "regimes": results.regimes(number),
            }
            for number, levels in enumerate(results.configurations)
        ],
        "runs": [
            {
                "number": run.number,
                "run_dir": run.path and str(run.path),
                "configuration": letters(run.configuration),
                "seed": run.seed,
                "verdict": run.verdict,
                "regime": run.regime,
                "remarks": list(run.remarks),
                "repeats": run.repeats,
                "figures": {name: value for name, value in run.figures.items() if name in results.shown},
                "limits": {
                    name: [_finite(end) for end in ends] for name, ends in run.limits.items() if name in results.shown
                },
            }
            for run in results.all_runs
        ],
        "figures": [_figure_row(results, figure) for figure in results.figures if figure.figure in results.shown],
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
        "primary": results.primary and asdict(results.primary),
        "conclusions": [
            {
                "configuration": letters(each.configuration),
                "figure": each.figure,
                "primary": each.is_primary,
                "conclusion": each.conclusion.value,
                "difference_p": each.difference_p,
                "equivalence_p": each.equivalence_p,
            }
            for each in compared_figures(results)
        ],
        "published": [
            {
                **asdict(item.published),
                "configuration": letters(item.configuration),
                "runs": item.runs,
                **{
                    name: None if limits is None else [_finite(limits.least), _finite(limits.most)]
                    for name, limits in (("median", item.median), ("low", item.low), ("high", item.high))
                },
                "quantile": item.quantile,
                "agreement": item.agreement.value,
            }
            for item in comparisons(results)
        ],
        "effects": [asdict(effect) for effect in effects(results)],
        "queue_capacity": advice_json(queue_advice(results)),
        "searches": searches_json(search_results(results)),
        **(similarity.to_json() if similarity else {}),
    }
