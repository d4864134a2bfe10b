# SPDX-License-Identifier: Apache-2.0
"""Figures of long runs draw few rows, and show each peak and each gap all the same."""

from dataclasses import replace
from typing import cast

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll_analysis import analyse
from atoll_analysis.summary import Summary
from atoll_dashboards.report.downsampling import SEGMENTS, extremes, scatter_points, share_points
from atoll_dashboards.report.plot_style import image
from atoll_dashboards.report.plots import PLOTS
from atoll_dashboards.report.report_data import Sources, read_sources
from atoll_hosts.binary import find_binary
from tests.support.synthetic_run import simulate

HOURS_4 = 4 * 36_000
PEAK, GAP = 100_001, 50_000


@given(st.integers(0, 2**32 - 1), st.integers(1, 40 * SEGMENTS))
def test_every_stretch_keeps_its_least_and_its_greatest_row(seed: int, count: int) -> None:
    random = np.random.default_rng(seed)
    rows = pl.DataFrame({"t_s": np.arange(count) / 10, "a": random.pareto(1.0, count), "b": random.normal(size=count)})
    thin = extremes(rows, "a", "b")
    assert thin["t_s"].is_sorted()
    assert len(thin) <= 16 * SEGMENTS
    assert thin.row(0) == rows.row(0)
    assert thin.row(-1) == rows.row(-1)
    length = count // SEGMENTS
    if length <= 8:
        assert thin.equals(rows)
        return
    stretch = (pl.col("t_s") * 10).round().cast(pl.Int64) // length
    ends = [pl.col("a", "b").min().name.suffix("_min"), pl.col("a", "b").max().name.suffix("_max")]
    before, after = (frame.group_by(stretch=stretch).agg(ends).sort("stretch") for frame in (rows, thin))
    assert after.equals(before)


def test_an_extreme_lasts_no_longer_than_it_did() -> None:
    """A figure of steps holds a row until the next one."""
    busy = np.full(HOURS_4, 16.0)
    busy[GAP] = 0.0
    thin = extremes(pl.DataFrame({"t_s": np.arange(HOURS_4), "a": busy}), "a")
    lasts = np.diff(thin["t_s"].to_numpy())
    assert lasts[thin["a"].to_numpy()[:-1] == 0].tolist() == [1]


def test_a_scatter_plot_keeps_a_few_points_of_each_place_and_all_that_are_alone() -> None:
    random = np.random.default_rng(1)
    x, y = random.lognormal(8, 0.3, 50_000), random.lognormal(1, 0.3, 50_000)
    x[:2], y[:2] = (1.0, 1e9), (1e-3, 1e3)
    kept = scatter_points(x, y)
    assert {0, 1} <= set(kept.tolist())
    assert len(kept) < 20_000
    assert (np.diff(kept) > 0).all()
    assert len(scatter_points(np.ones(50_000), np.ones(50_000))) == 4


def test_shares_are_exact_where_they_are_drawn() -> None:
    sizes = np.sort(np.random.default_rng(1).pareto(1.1, 100_000) + 1)
    kept = share_points(sizes)
    assert len(kept) <= SEGMENTS
    assert kept[-1] == len(sizes) - 1
    drawn = np.searchsorted(sizes, np.geomspace(sizes[0], sizes[-1], SEGMENTS), side="right")
    assert set(kept + 1) == set(drawn)


@pytest.fixture(scope="module")
def four_hours(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """A short run whose tables were replaced by some of four hours, with one peak and one gap."""
    run = simulate(tmp_path_factory.mktemp("long"), seconds=1)
    analyse(run, find_binary())
    sources = read_sources(run)
    summary = cast("Summary", {**sources.summary, "duration_s": HOURS_4 / 10})
    window = np.arange(HOURS_4)
    random = np.random.default_rng(1)
    octets = random.integers(100_000, 200_000, HOURS_4)
    octets[PEAK], octets[GAP] = 400_000, 0
    t_ns = summary["origin_ns"] + (window + 1) * 10**8
    tables = {
        "throughput": {"capture": summary["arrival"], "to_island": True, "window": window, "ip_bytes": octets,
                       "goodput_bytes": octets},
        "concurrent": {"window": window, "open": octets // 1000, "receiving": octets // 2000},
        "boxes": {"box": "sat", "part": "to_island", "t_ns": t_ns, "queue_bytes": octets // 4,
                  "queue_max_bytes": octets // 2, "dropped_packets": np.cumsum(octets == octets[PEAK]),
                  "dropped_queue_packets": np.cumsum(octets == octets[PEAK])},
        "pings": {"target": "is", "seq": window, "sent_ns": t_ns, "rtt_ns": octets * 5000},
    }  # fmt: skip
    for name, columns in tables.items():
        pl.DataFrame(columns).write_parquet(run.tables / f"{name}.parquet")
    return replace(sources, summary=summary)


def drawn(sources: Sources, name: str) -> list[float]:
    """The ordinates of what a figure draws."""
    figure = next(plot for plot in PLOTS if plot.name == name).figure(sources)
    assert figure is not None
    assert len(image(figure, ".svg")) < 1_500_000
    lines = [np.asarray(line.get_ydata(), float) for axes in figure.axes for line in axes.get_lines()]
    areas = [
        np.asarray(path.vertices)[:, 1]
        for axes in figure.axes
        for each in axes.collections
        for path in each.get_paths()
    ]
    return np.unique(np.concatenate([*lines, *areas]).round(6)).tolist()


def test_a_report_of_hours_shows_a_peak_and_a_gap_of_one_window(four_hours: Sources) -> None:
    assert {32.0, 0.0} <= set(drawn(four_hours, "rates"))
    assert {400.0, 0.0, 200.0} <= set(drawn(four_hours, "concurrent"))
    base_ms = four_hours.summary["base_rtt_ms"] or 0.0
    assert {round(2000.0 - base_ms, 6), round(-base_ms, 6), 200.0, 100.0, 0.0} <= set(drawn(four_hours, "queue"))
    assert 1.0 in drawn(four_hours, "loss")
