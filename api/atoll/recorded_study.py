# SPDX-License-Identifier: Apache-2.0
"""The directory of a study as a value: tables of its runs and of its figures as Polars frames."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from atoll.recorded_run import Run
from atoll_studies.results.result_tables import figures_table, runs_table
from atoll_studies.results.results import read_results
from atoll_studies.study_directory import StudyDirectory


class Study:
    """A study that was swept, or is being swept. :func:`open_study` opens one."""

    def __init__(self, path: Path) -> None:
        self._directory = StudyDirectory(path)
        self._directory.study()
        self.path = path
        """The directory of the study."""

    def __repr__(self) -> str:
        return f"atoll.open_study({str(self.path)!r})"

    def runs(self) -> pl.DataFrame:
        """A row for each usable run: factors, seed, every figure (docs/studies.md). Each call reads the directory."""
        return runs_table(read_results(self._directory))

    def figures(self, names: Sequence[str] = (), baseline: Mapping[str, str] | None = None) -> pl.DataFrame:
        """A row for each combination of levels and each figure, with intervals (docs/studies.md).

        ``names``: figures; default: all. ``baseline``: levels by factor that others are compared with; default: the
        study's. Raises UsageError for a figure, factor or level that the study does not have.
        """
        table = figures_table(read_results(self._directory, baseline, names))
        return table.filter(pl.col("figure").is_in(list(names))) if names else table

    def open_runs(self) -> dict[str, Run]:
        """The usable runs by their paths, which are in the column ``run`` of :meth:`runs`."""
        return {str(run.path): Run(run.path) for run in read_results(self._directory).runs}


def open_study(path: str | Path) -> Study:
    """Open the directory of a study (``runs/studies/geo-queues``). Raises RunDirError if it is none."""
    return Study(Path(path))
