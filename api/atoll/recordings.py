# SPDX-License-Identifier: Apache-2.0
"""The directories of runs and studies as values: summaries, tables and packets as Polars frames."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import polars as pl
import polars.selectors as cs

from atoll_analysis.run_directory import RunDir
from atoll_analysis.summary import Summary
from atoll_analysis.tables.table_schemas import scan_table
from atoll_core.codec import from_json
from atoll_core.description.validation_messages import suggest
from atoll_core.errors import RunDirError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_dashboards.report.report import analyse_again
from atoll_hosts.binary import find_binary
from atoll_studies.results.result_tables import figures_table, runs_table
from atoll_studies.results.results import read_results
from atoll_studies.study_directory import StudyDirectory

_PREFIX = "packets-"
_NARROW_TYPES = (pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32)


class Run:
    """A run that was recorded. :func:`open_run` opens one."""

    def __init__(self, path: Path) -> None:
        self._directory = RunDir.open(path)
        self.path = path
        """The run directory."""

    def __repr__(self) -> str:
        return f"atoll.open_run({str(self.path)!r})"

    @cached_property
    def summary(self) -> Summary:
        """The summary, with the keys that `atoll results` lists. Raises RunError if the run was not analysed."""
        return cast("Summary", self._directory.summary())

    @property
    def verdict(self) -> str:
        """``valid``, ``valid with caveats`` or ``invalid``; the reasons are in the summary. Raises as ``summary``."""
        return self.summary["verdict"]

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        """The request, the plan and the provenance of the run (docs/contracts.md)."""
        return self._directory.manifest()

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment as it was run, resolved. Raises RunDirError if the run ended before it was planned."""
        return cast("Experiment", self._from_manifest(Experiment, "experiment"))

    @cached_property
    def network(self) -> Network:
        """The lab as it was used. Raises RunDirError if the run ended before it was planned."""
        return cast("Network", self._from_manifest(Network, "network"))

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of the run in their order (docs/contracts.md); ``t_ns``: CLOCK_REALTIME."""
        return self._directory.events()

    @property
    def tables(self) -> list[str]:
        """Names of the tables, without the packets of captures."""
        return [name for name in self._names() if not name.startswith(_PREFIX)]

    @property
    def captures(self) -> list[str]:
        """Names of the captures whose packets are in a table."""
        return [name.removeprefix(_PREFIX) for name in self._names() if name.startswith(_PREFIX)]

    def table(self, name: str) -> pl.DataFrame:
        """A table of the run (see `atoll results`), whole numbers as Int64. Raises RunDirError if there is none."""
        return self._scan(name, self.tables, "tables").collect()

    def packets(self, capture: str) -> pl.LazyFrame:
        """The packets of a capture, which may be more than fit into memory. Raises RunDirError if there is none.

        Lengths and other counts are Int64, wider than in the file: a sum of UInt32 wraps beyond 4.29 GB.
        """
        return self._scan(f"{_PREFIX}{capture}", [f"{_PREFIX}{name}" for name in self.captures], "captures")

    def analyse(self) -> Summary:
        """Analyse the run again, and write tables, summary and report; returns the summary.

        Raises RunDirError if this user cannot write there, RunError if the analysis fails.
        """
        analyse_again(self._directory, find_binary())
        self.__dict__.pop("summary", None)
        return self.summary

    def _names(self) -> list[str]:
        return sorted(path.stem for path in self._directory.tables.glob("*.parquet"))

    def _scan(self, name: str, names: list[str], kind: str) -> pl.LazyFrame:
        if name not in names:
            if not names:
                raise RunDirError(f"{self.path}: no {kind}; `run.analyse()` makes them from the captures and logs")
            unprefixed = [full_name.removeprefix(_PREFIX) for full_name in names]
            hint = suggest(name.removeprefix(_PREFIX), unprefixed, kind)
            raise RunDirError(f"{self.path}: no {kind[:-1]} {name.removeprefix(_PREFIX)!r}; {hint}")
        table = scan_table(self._directory.tables / f"{name}.parquet")
        return table.with_columns(cs.by_dtype(*_NARROW_TYPES).cast(pl.Int64))

    def _from_manifest(self, kind: type[Any], key: str) -> Any:
        if key not in self.manifest:
            raise RunDirError(f"{self.path}: the run ended before its plan was computed: manifest.json has no '{key}'")
        return from_json(kind, self.manifest[key])


def open_run(path: str | Path) -> Run:
    """Open a run directory (``runs/geo/20260102T030405Z-1``). Raises RunDirError if it is none."""
    return Run(Path(path))


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
        return {str(path): Run(path) for _, path in read_results(self._directory).directories}


def open_study(path: str | Path) -> Study:
    """Open the directory of a study (``runs/studies/geo-queues``). Raises RunDirError if it is none."""
    return Study(Path(path))
