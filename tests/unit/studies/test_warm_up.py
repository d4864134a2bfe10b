# SPDX-License-Identifier: Apache-2.0
"""Warm-up: MSER-5 finds the end of a transient, and figures without it are of the rest alone."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll_analysis.run_directory import RunDir
from atoll_core.codec import to_json
from atoll_core.description.loader import load_experiment
from atoll_core.errors import RunDirError
from atoll_studies.statistics.warm_up import WarmUp, find_warm_up, mser, trimmed_figures
from tests.support.sandbox import QUICK

ORIGIN_NS = 10**18
WINDOWS = 200
RAMP = 50  # windows with half the goodput of the others


def run(folder: Path, goodput: list[int]) -> Path:
    """A run with this payload in each 100 ms; of 100 packets in each the link dropped 10 in the ramp."""
    network, experiment = load_experiment(QUICK)
    (link,) = experiment.links
    (folder / "tables").mkdir(parents=True)
    made = RunDir(folder)
    made.write_manifest({"experiment": to_json(experiment), "network": to_json(network)})
    summary = {"duration_s": len(goodput) / 10, "origin_ns": ORIGIN_NS, "arrival": "island", "bottleneck": link.box}
    (folder / "summary.json").write_text(json.dumps(summary))
    rows = {
        "capture": "island",
        "window": list(range(len(goodput))),
        "to_island": True,
        "packets": 1,
        "ip_bytes": [2 * each for each in goodput],
        "goodput_bytes": goodput,
    }
    pl.DataFrame(rows).write_parquet(folder / "tables/throughput.parquet")
    ends = range(len(goodput) + 1)
    counters = {
        "box": link.box,
        "part": "to_island",
        "t_ns": [ORIGIN_NS + window * 10**8 for window in ends],
        "in_packets": [100 * window for window in ends],
        "dropped_packets": [10 * min(window, RAMP) for window in ends],
        "out_bytes": [1000 * window for window in ends],
        "lost_after_bytes": [0 for _ in ends],
    }
    pl.DataFrame(counters).write_parquet(folder / "tables/boxes.parquet")
    return folder


@pytest.fixture
def ramped(tmp_path: Path) -> Path:
    return run(tmp_path / "run", [500] * RAMP + [1000] * (WINDOWS - RAMP))


def test_mser_leaves_out_the_transient() -> None:
    random = np.random.default_rng(1)
    for end in (0, 40, 80):
        values = np.r_[np.linspace(0, 10, end, endpoint=False), random.normal(10, 0.5, 200 - end)]
        found = mser(list(values))
        assert found is not None
        assert abs(5 * found - end) <= 20


def test_mser_is_the_least_standard_error_of_the_rest() -> None:
    """By hand: batches 0, 0 and then 2, 4 alternating; without the first two the error is least."""
    batches = [0.0, 0.0] + [2.0, 4.0] * 10
    errors = [np.var(batches[d:]) / len(batches[d:]) for d in range(len(batches) - 5)]
    assert mser([value for value in batches for _ in range(5)]) == int(np.argmin(errors)) == 2


def test_a_ramp_before_a_constant_is_left_out_whatever_the_magnitude() -> None:
    """5 s of ramp, then 40 s of one value, at which sums of squares differ by rounding errors alone."""
    for value in (0.1, 1234.7, 251_234.7, 1e9 + 0.3):
        assert mser([value * min(1, window / 50) for window in range(450)]) == 10


@given(st.lists(st.integers(0, 10**6), min_size=50, max_size=100), st.sampled_from([1, 10**9]))
def test_mser_is_as_good_as_in_exact_arithmetic(values: list[int], offset: int) -> None:
    exact = [Fraction(offset + value) for value in values]
    means = [sum(exact[at : at + 5], Fraction(0)) / 5 for at in range(0, len(exact) - 4, 5)]

    def error(first: int) -> Fraction:
        rest = means[first:]
        mean = sum(rest, Fraction(0)) / len(rest)
        squares = sum(((each - mean) * (each - mean) for each in rest), Fraction(0))
        return squares / len(rest) ** 2

    errors = [error(first) for first in range(len(means) - 5)]
    found = mser([float(each) for each in exact])
    if found is None:
        found = min(range(len(means) // 2 + 1, len(errors)), key=errors.__getitem__)
    assert float(errors[found]) <= float(min(errors)) * (1 + 1e-4)


def test_a_series_that_does_not_settle_has_no_warm_up() -> None:
    assert mser([float(each) for each in range(200)]) is None
    assert mser([1.0] * 49) is None


def test_the_longest_warm_up_of_any_configuration_is_that_of_the_study(ramped: Path, tmp_path: Path) -> None:
    steady = run(tmp_path / "steady", [1000] * WINDOWS)
    rising = run(tmp_path / "rising", list(range(WINDOWS)))
    assert find_warm_up("mser-5", {0: [ramped], 1: [steady], 2: [rising]}) == WarmUp(5.0, "mser-5", (2,))
    assert find_warm_up("2.5 s", {0: [ramped]}).seconds == 2.5
    assert find_warm_up(None, {}).seconds == 0


def test_a_warm_up_leaves_half_of_the_shortest_run(ramped: Path, tmp_path: Path) -> None:
    """5 s of a run of 20 s are none for runs of 5 s, nor for those of 9 s; they are for those of 10 s."""
    for windows, found in (
        (50, WarmUp(0, "mser-5", (0,))),
        (90, WarmUp(0, "mser-5", (0,))),
        (100, WarmUp(5, "mser-5")),
    ):
        short = run(tmp_path / str(windows), [1000] * windows)
        assert find_warm_up("mser-5", {0: [ramped], 1: [short]}) == found
        trimmed_figures(short, found.seconds)


def test_figures_without_the_warm_up_are_of_the_rest(ramped: Path) -> None:
    _, experiment = load_experiment(QUICK)
    rate = experiment.links[0].to_island.rate.bit_s
    whole, rest = trimmed_figures(ramped, 0.0), trimmed_figures(ramped, 5.0)
    assert whole["goodput"] == pytest.approx(8e-6 * (500 * RAMP + 1000 * 150) / 20)
    assert rest["goodput"] == pytest.approx(8e-6 * 1000 * 10)
    assert rest["throughput"] == pytest.approx(2 * 8e-6 * 1000 * 10)
    assert (whole["loss"], rest["loss"]) == (pytest.approx(100 * 10 * RAMP / 20_000), 0)
    assert rest["utilisation"] == pytest.approx(100 * 8 * 1000 * 10 / rate)


def test_a_run_that_cannot_be_trimmed_is_one_line(ramped: Path, tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match="not longer than the warm-up"):
        trimmed_figures(ramped, 20.0)
    bare = run(tmp_path / "bare", [1] * 10)
    (bare / "tables/boxes.parquet").unlink()
    with pytest.raises(RunDirError, match=r"boxes.parquet: there is no such table; `atoll report"):
        trimmed_figures(bare, 0.1)
