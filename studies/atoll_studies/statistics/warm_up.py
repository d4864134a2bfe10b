# SPDX-License-Identifier: Apache-2.0
"""The warm-up of a study: the beginning of every run that its time averages leave out.

The beginning is the same for all runs of a study, so that runs with equal seeds are compared over the same time. It is
given, or found by MSER-5 (White 1997, Simulation 69(6)): as many means of five successive values are left out as give
the mean of the others the least standard error. The values are the goodput of 100 ms, averaged over runs with
different seeds as Hoad, Robinson and Davies recommend (2010, J. Operational Research Society 61(9)).
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import cast

import polars as pl

from atoll_analysis.figures.observables import capacity_bytes, counted_bytes, mbit_s
from atoll_analysis.run_directory import RunDir
from atoll_analysis.summary import Summary
from atoll_analysis.tables.change_timeline import RecordedEvent, direction_over_time
from atoll_analysis.tables.run_data import Window
from atoll_analysis.tables.table_schemas import scan_table
from atoll_analysis.tables.tables import WINDOW_NS
from atoll_core.codec import from_json
from atoll_core.description.raw_study import MSER_5
from atoll_core.errors import RunDirError
from atoll_core.experiment.experiment import Experiment
from atoll_core.units import Duration

PILOT_REPETITIONS = 6
"""Repetitions whose runs MSER-5 uses. Later ones change nothing: figures stay as they are when a study grows."""

TRIMMED_FIGURES = ("goodput", "throughput", "utilisation", "loss")
"""Figures that leave the warm-up out. Others are of the whole measurement: sojourn times go from mark to mark."""

_BATCH_WINDOWS = 5
_WINDOWS_PER_S = 10**9 // WINDOW_NS


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The beginning that is left out; ``unsettled``: configurations in which the rule found none."""

    seconds: float
    rule: str  # as in study.yaml
    unsettled: tuple[int, ...] = ()


NO_WARM_UP = WarmUp(0.0, "none")


def find_warm_up(rule: str | None, runs: Mapping[int, Sequence[Path]]) -> WarmUp:
    """The warm-up of a study by its rule: MSER_5, a duration, or None for no warm-up.

    ``runs``: run directories of the first PILOT_REPETITIONS, by configuration. By MSER-5 it is the longest one of any
    configuration that leaves half of the shortest run. Raises RunDirError.
    """
    if rule is None:
        return NO_WARM_UP
    if rule != MSER_5:
        return WarmUp(Duration.parse(rule).s, rule)
    values = {number: _mean_goodput(paths) for number, paths in runs.items() if paths}
    most = min((len(series) // _BATCH_WINDOWS // 2 for series in values.values()), default=0)
    batches_of = {number: mser(each) for number, each in values.items()}
    settled = {number: batches for number, batches in batches_of.items() if batches is not None and batches <= most}
    unsettled = tuple(number for number in values if number not in settled)
    return WarmUp(max(settled.values(), default=0) * _BATCH_WINDOWS / _WINDOWS_PER_S, rule, unsettled)


def windows_of(warm_up_s: float) -> int:
    """The number of windows of 100 ms that a warm-up leaves out."""
    return round(warm_up_s * _WINDOWS_PER_S)


def whole_windows(duration_s: float) -> int:
    """The number of whole windows of 100 ms in a measurement."""
    return int(duration_s * _WINDOWS_PER_S)


def mser(values: Sequence[float], batch: int = _BATCH_WINDOWS) -> int | None:
    """The number of batches to leave out; None: more than half of them, so the values are too few to say.

    The last five batches are no candidates: the variance of so few is too uncertain (Hoad, Robinson and Davies 2010).
    """
    count = len(values) // batch
    if count < 2 * _BATCH_WINDOWS:
        return None
    means = [fmean(values[batch * number : batch * (number + 1)]) for number in range(count)]
    errors: list[float] = []  # squared standard errors of the means of the last 1, 2, ... batches; Welford (1962)
    mean = squares = 0.0
    for included, value in enumerate(reversed(means), 1):
        deviation = value - mean
        mean += deviation / included
        squares += deviation * (value - mean)
        errors.append(squares / included**2)
    candidates = errors[: _BATCH_WINDOWS - 1 : -1]
    best = candidates.index(min(candidates))
    return best if best <= count // 2 else None


def _mean_goodput(paths: Sequence[Path]) -> list[float]:
    """Bytes of new payload that reached the island in each 100 ms, averaged over runs, as far as all of them go."""
    series = [_goodput(path) for path in paths]
    return [sum(values) / len(series) for values in zip(*series, strict=False)]


@functools.cache
def _goodput(path: Path) -> tuple[int, ...]:
    run = _RunData.open(path)
    by_window = dict(run.arrived().select("window", "goodput_bytes").iter_rows())
    return tuple(by_window.get(window, 0) for window in range(run.windows))


@functools.cache
def trimmed_figures(path: Path, warm_up_s: float) -> Mapping[str, float | None]:
    """The TRIMMED_FIGURES of a run without its beginning, in the units of comparisons; None: not measured.

    They are of whole windows of 100 ms, as counted by the arrival capture and the link. Raises RunDirError if the run
    has no such tables, or is not longer than the warm-up.
    """
    run = _RunData.open(path)
    first_window = windows_of(warm_up_s)
    if first_window >= run.windows:
        measured_s = run.windows / _WINDOWS_PER_S
        raise RunDirError(
            f"{path}: the measurement of {measured_s:g} s is not longer than the warm-up of {warm_up_s:g} s"
        )
    seconds = (run.windows - first_window) / _WINDOWS_PER_S
    arrived = run.arrived().filter(pl.col("window") >= first_window)
    columns = {"goodput": "goodput_bytes", "throughput": "ip_bytes"}
    rates = {name: mbit_s(int(arrived[column].sum()), seconds) for name, column in columns.items()}
    figures = {**(rates if run.summary["arrival"] else dict.fromkeys(rates)), **_link_figures(run, first_window)}
    return {name: None if figure is None else round(figure, 9) for name, figure in figures.items()}


def _link_figures(run: "_RunData", first_window: int) -> dict[str, float | None]:
    """Utilisation and loss of the slowest link, in per cent."""
    if run.summary["bottleneck"] is None:
        return {"utilisation": None, "loss": None}
    link = run.experiment.link(run.summary["bottleneck"])
    begin_ns, end_ns = (run.summary["origin_ns"] + window * WINDOW_NS for window in (first_window, run.windows))
    names = ("in_packets", "dropped_packets", "out_bytes", "lost_after_bytes")
    counters = run.table("boxes").filter(
        (pl.col("box") == link.box) & (pl.col("part") == "to_island") & pl.col("t_ns").is_between(begin_ns, end_ns)
    )
    in_packets, dropped, sent, lost_after = (
        counters.select((pl.col(name).max() - pl.col(name).min()).alias(name) for name in names).collect().row(0)
    )
    captured = run.captured(f"link-{link.box}").filter(pl.col("window") >= first_window)
    if not captured.is_empty():
        sent = captured.select(counted_bytes(link).sum()).item()
    link_over_time = direction_over_time(run.experiment, run.events, run.summary["origin_ns"], link.box)
    capacity = capacity_bytes(link_over_time, link, Window(begin_ns, end_ns))
    used = None if sent is None else (sent + (lost_after or 0)) / capacity
    lost = dropped / in_packets if in_packets else None
    return {name: None if share is None else 100 * share for name, share in (("utilisation", used), ("loss", lost))}


@dataclass(frozen=True, slots=True)
class _RunData:
    """What is read of a run."""

    path: Path
    summary: Summary
    experiment: Experiment
    events: tuple[RecordedEvent, ...]

    @classmethod
    def open(cls, path: Path) -> "_RunData":
        run = RunDir.open(path)
        experiment = from_json(Experiment, run.manifest()["experiment"])
        return cls(path, cast("Summary", run.summary()), experiment, tuple(run.events()))

    @property
    def windows(self) -> int:
        """The number of whole windows of 100 ms in the measurement."""
        return whole_windows(self.summary["duration_s"] or 0.0)

    def table(self, name: str) -> pl.LazyFrame:
        return scan_table(self.path / "tables" / f"{name}.parquet")

    def captured(self, capture: str | None) -> pl.DataFrame:
        """Island-bound bytes of a capture by window, within the measurement."""
        within = pl.col("window").is_between(0, self.windows - 1)
        is_to_island = (pl.col("capture") == capture) & pl.col("to_island") & within
        return self.table("throughput").filter(is_to_island).collect()

    def arrived(self) -> pl.DataFrame:
        """What reached the island."""
        return self.captured(self.summary["arrival"])
