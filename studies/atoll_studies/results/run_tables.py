# SPDX-License-Identifier: Apache-2.0
"""Results of a study from tables of its runs: ``runs.csv`` of its directory, also of several machines or days."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from atoll_analysis.figures.run_figures import TRANSFER_FIGURES, figures_of, general_figure
from atoll_core.errors import DescriptionError, Diagnostic, UsageError
from atoll_studies.results.result_tables import ORIGIN_COLUMNS, REGIME_COLUMN, figure_column, limit_columns
from atoll_studies.results.results import (
    Results,
    StudyRun,
    baselines,
    estimate,
    require_baseline,
    require_figures,
    shown_figures,
    usual_figures,
)
from atoll_studies.study import StudyDescription
from atoll_studies.study_directory import USABLE_OUTCOMES, Provenance


def results_of_tables(
    study: StudyDescription,
    tables: Sequence[Path],
    baseline: Mapping[str, str] | None = None,
    figures: Sequence[str] = (),
) -> Results:
    """Estimate from the runs in CSV tables. ``baseline``, ``figures``: instead of the study's.

    Raises UsageError for a study whose repetitions depend on its runs, and for a factor, level or figure that there is
    not; DescriptionError with each row that is no run of the study.
    """
    if study.stop or study.search:
        raise UsageError("--runs: a study with 'stop' or 'search' has no fixed runs; report its directory")
    baseline_levels = dict(study.baseline) if baseline is None else baseline
    require_baseline(baseline_levels, study.level_names)
    require_figures(figures)
    runs = _read_runs(study, tables)
    configurations = [study.levels_by_factor(configuration) for configuration in study.configurations]
    family = study.figures or tuple(usual_figures(runs))
    shown = shown_figures(study.primary, family, figures)
    return Results(
        name=study.name,
        factors=tuple(study.factors),
        configurations=tuple(configurations),
        seeds=study.seeds,
        shown=shown,
        plotted=shown,
        runs=tuple(runs),
        uncounted=(),
        figures=tuple(estimate(runs, baselines(configurations, baseline_levels))),
        missing=len(configurations) * len(study.seeds) - len(runs),
        described={number: (each.network, each.experiment) for number, each in enumerate(study.configurations)},
        primary=study.primary,
        family=family,
        published=study.published,
        of_tables=True,
    )


def _read_runs(study: StudyDescription, tables: Sequence[Path]) -> list[StudyRun]:
    configurations = {each.levels: number for number, each in enumerate(study.configurations)}
    names = list(dict.fromkeys(name for each in study.configurations for name in figures_of(each.experiment)))
    runs: dict[tuple[int, int], StudyRun] = {}
    mistakes: list[Diagnostic] = []
    for table in tables:
        try:
            rows = _rows(study, table)
        except DescriptionError as error:
            mistakes += error.mistakes
            continue
        for line, row in rows:
            configuration = configurations.get(tuple(row[factor] for factor in study.factors))
            seed = int(row["seed"]) if row["seed"].isdecimal() else -1
            if configuration is None:
                levels = ", ".join(f"{factor} {row[factor]}" for factor in study.factors)
                mistakes.append(Diagnostic(str(table), line, f"{levels}: no configuration of study {study.name}"))
            elif seed not in study.seeds:
                mistakes.append(Diagnostic(str(table), line, f"seed {row['seed']}: not of study {study.name}"))
            elif row["verdict"] not in USABLE_OUTCOMES:
                mistakes.append(Diagnostic(str(table), line, f"verdict {row['verdict']!r}: such a run does not count"))
            elif (configuration, seed) in runs:
                mistakes.append(Diagnostic(str(table), line, f"seed {seed}: a second run of this configuration"))
            else:
                try:
                    runs[configuration, seed] = _run(len(runs) + 1, configuration, seed, row, names)
                except ValueError as error:
                    mistakes.append(Diagnostic(str(table), line, str(error)))
    if mistakes:
        raise DescriptionError(mistakes)
    return list(runs.values())


def _rows(study: StudyDescription, table: Path) -> list[tuple[int, dict[str, str]]]:
    """The rows of a table with their lines; cells that are absent are empty. Raises DescriptionError."""
    try:
        content = table.read_text(encoding="utf-8-sig")  # as spreadsheets write it
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise DescriptionError([Diagnostic(str(table), 0, f"cannot be read: {reason}")]) from None
    reader = csv.DictReader(io.StringIO(content, newline=""), restval="", strict=True)

    def refused(line: int, message: str) -> DescriptionError:
        return DescriptionError([Diagnostic(str(table), line, message)])

    try:
        columns = reader.fieldnames or ()
        if missing := [name for name in (*study.factors, "seed", "verdict") if name not in columns]:
            remedy = "write the table with `atoll report STUDY --per-run --out FILE.csv`"
            raise refused(1, f"no column {', '.join(missing)}; {remedy}")
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise refused(reader.reader.line_num, f"no CSV: {error}") from None
    if not rows:
        raise refused(1, "no rows; name a table with at least one run of the study")
    if long := next((line for line, row in rows if len(row) > len(columns)), None):
        raise refused(long, f"more than {len(columns)} cells, the number of columns; quote cells that have a comma")
    return rows


def _run(number: int, configuration: int, seed: int, row: Mapping[str, str], names: Sequence[str]) -> StudyRun:
    """``names``: of the figures that the columns may have. Raises ValueError for a cell that is no number."""

    def cell(column: str) -> float | None:
        text = row.get(column)
        try:
            value = float(text) if text else None
        except ValueError:
            value = math.nan
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{column} {text!r}: write a number, or nothing")
        return value

    limits: dict[str, tuple[float, float]] = {}
    for figure in (name for name in names if general_figure(name) in TRANSFER_FIGURES):
        least, most = map(cell, limit_columns(figure))
        if least is not None:
            limits[figure] = (least, math.inf)
        elif most is not None:
            limits[figure] = (-math.inf, most)
    origin = {name: row.get(name) or None for name in ORIGIN_COLUMNS}
    return StudyRun(
        number=number,
        path=Path(origin["run"]) if origin["run"] else None,
        configuration=configuration,
        seed=seed,
        verdict=row["verdict"],
        remarks=(),
        figures={name: cell(figure_column(name)) for name in names},
        provenance=Provenance(
            origin["revision"], origin["platform"] or "", origin["kernel"] or "", origin["kernel_mode"]
        ),
        regime=row.get(REGIME_COLUMN) or None,
        limits=limits,
        point=origin["point"],
        wall_s=cell("wall_s"),
    )
