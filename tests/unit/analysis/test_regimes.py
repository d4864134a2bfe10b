# SPDX-License-Identifier: Apache-2.0
"""Queue intervals, standing queue, concurrency and regime of hand-made counters."""

from typing import Any

import polars as pl
import pytest

from atoll_analysis.figures.flows import concurrency
from atoll_analysis.figures.regimes import (
    BURSTY_SHARE,
    HIGH_UTILISATION,
    LOW_LOSS,
    SWINGING_SHARE,
    Regime,
    regime,
    share_of_swinging_spans,
)
from atoll_analysis.figures.standing_queue import standing_queue
from atoll_analysis.tables.queue_intervals import queue_intervals
from atoll_core.experiment.link_over_time import LinkOverTime, LinkStep
from atoll_core.units import Duration, Rate, Size

STEP_NS = 100_000_000
LINK = LinkOverTime(
    (LinkStep(0, Rate(16_000_000), Size(100_000), blocked=False, delay=Duration(0)),)
)  # 200 kB in 100 ms
FALLING = LinkOverTime(
    (*LINK.steps, LinkStep(2 * STEP_NS, Rate(4_000_000), Size(30_000), blocked=False, delay=Duration(0)))
)
COUNTERS = ("in_bytes", "dropped_bytes", "dropped_queue_packets", "lost_after_bytes", "queue_bytes", "queue_max_bytes")


def counters(*rows: tuple[int, ...], idle_ns: list[int] | None = None) -> pl.LazyFrame:
    """Counters of every 100 ms in the order of COUNTERS, of the kernel's tc unless there is idle time."""
    found: dict[str, Any] = {name: [row[at] for row in rows] for at, name in enumerate(COUNTERS)}
    idle = idle_ns or [None] * len(rows)
    times = [STEP_NS * number for number in range(len(rows))]
    return pl.LazyFrame(
        {"t_ns": times, "idle_ns": idle, **found}, schema=dict.fromkeys(("t_ns", "idle_ns", *COUNTERS), pl.Int64)
    )


def test_an_interval_is_idle_if_less_left_the_queue_than_the_rate_allows() -> None:
    """Nothing came; 250 kB came, 50 kB remain; 200 kB more, half lost at the receiver; a drop; the queue empties."""
    rows = queue_intervals(
        counters(
            (0, 0, 0, 0, 0, 0),
            (0, 0, 0, 0, 0, 0),
            (250_000, 0, 0, 0, 50_000, 60_000),
            (450_000, 100_000, 0, 100_000, 50_000, 70_000),
            (660_000, 101_500, 1, 100_000, 58_500, 80_000),
            (660_000, 101_500, 1, 100_000, 0, 58_500),
        ),
        LINK,
        1500,
        0.2,
    )
    assert rows["idle"].to_list() == [True, False, False, False, True]
    assert rows["full"].to_list() == [False, False, False, True, False]
    assert rows["least_bytes"].to_list() == [0, 0, 50_000, 50_000, 0]
    assert rows["most_bytes"].to_list() == [0, 60_000, 70_000, 80_000, 58_500]
    assert rows["seconds"].to_list() == [0.1] * 5
    # Spans of two intervals: the third and the fourth kept 50 kB.
    assert rows["floor_bytes"].to_list() == [0, 0, 50_000, 50_000, 0]


def test_a_link_that_measures_idle_time_says_when_it_was_idle() -> None:
    same = (200_000, 0, 0, 0, 99_000, 99_000)
    rows = queue_intervals(counters(same, same, same, idle_ns=[5, 6, 6]), LINK, 1500, 1.0)
    assert rows["idle"].to_list() == [True, False]
    assert rows["full"].to_list() == [True, True]
    assert rows["floor_bytes"].to_list() == [None, None]  # no second in them


def test_counters_without_a_row_give_no_interval() -> None:
    assert queue_intervals(counters(), LINK, 1500, 1.0).is_empty()


def intervals(floor: list[int | None], full: str = "", idle: str = "") -> pl.DataFrame:
    """``full`` and ``idle``: an x for each interval that is."""
    return pl.DataFrame(
        {
            "t_ns": [STEP_NS * (number + 1) for number in range(len(floor))],
            "seconds": [0.1] * len(floor),
            "floor_bytes": floor,
            "full": [mark == "x" for mark in full.ljust(len(floor))],
            "idle": [mark == "x" for mark in idle.ljust(len(floor))],
        },
        schema={
            "t_ns": pl.Int64,
            "seconds": pl.Float64,
            "floor_bytes": pl.Int64,
            "full": pl.Boolean,
            "idle": pl.Boolean,
        },
    )


def test_a_standing_queue_is_a_share_of_time_and_a_height() -> None:
    """5 ms at 16 Mbit/s are 10 kB, which a standing queue exceeds."""
    found = standing_queue(intervals([0, 10_000, 20_000, 40_000, 0, 30_000, None]), LINK, 1500, 1.0)
    assert found is not None
    assert (found["window_s"], found["least_bytes"]) == (1.0, 10_000)
    assert (found["share"], found["longest_s"]) == (pytest.approx(0.5), pytest.approx(0.2))
    assert (found["mean_bytes"], found["max_bytes"]) == (pytest.approx(30_000), 40_000)
    assert (found["mean_ms"], found["max_ms"]) == (pytest.approx(15), pytest.approx(20))
    none = standing_queue(intervals([0, 10_000]), LINK, 1500, 1.0)
    assert none is not None
    assert (none["share"], none["longest_s"], none["mean_bytes"], none["max_bytes"]) == (0, 0, None, 0)
    assert standing_queue(intervals([None, None]), LINK, 1500, 1.0) is None


def test_idle_and_full_are_relative_to_rate_and_queue_of_the_instant() -> None:
    """50 kB leave in 100 ms: of 200 kB that could at first, of 50 kB later; 29 kB wait, of 30 kB that may later."""
    rows = queue_intervals(
        counters(*((50_000 * number + 29_000, 0, 0, 0, 29_000, 29_000) for number in range(5))), FALLING, 1500, 0.2
    )
    assert rows["idle"].to_list() == [True, True, False, False]
    assert rows["full"].to_list() == [False, True, True, True]  # the counters of the second one are of the change


def test_a_standing_queue_takes_the_time_of_the_rate_of_the_instant() -> None:
    """20 kB take 10 ms at 16 Mbit/s, 40 ms at 4; 5 ms are 10 kB at first, 2.5 kB later."""
    found = standing_queue(intervals([9_000, 20_000, 20_000, 9_000]), FALLING, 1500, 1.0)
    assert found is not None
    assert (found["share"], found["least_bytes"]) == (pytest.approx(0.75), 10_000)
    assert found["mean_ms"] == pytest.approx((10 + 40 + 18) / 3)
    assert found["max_ms"] == pytest.approx(40)


def test_a_queue_swings_in_spans_in_which_it_is_both_full_and_empty() -> None:
    """Spans of three: full at 3, idle at 5 and 9; the spans 3 to 5 and no others."""
    swings = intervals([0] * 10, full="   x", idle="     x   x")
    assert share_of_swinging_spans(swings, 0.3) == pytest.approx(1 / 8)
    assert share_of_swinging_spans(swings, 0.2) == 0
    assert share_of_swinging_spans(intervals([0] * 2), 0.3) is None
    assert share_of_swinging_spans(intervals([]), 0.3) is None


def decided(**changes: Any) -> str | None:
    """The regime of an oscillating link, but for some figures."""
    usual: dict[str, Any] = {"utilisation": 0.5, "queue_loss": 0.02, "burst_share": 0.9}
    usual |= {"swinging_share": 0.4, "span_s": 1.5, "concurrency_grows": None}
    return regime(**{**usual, **changes})["regime"]


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({}, Regime.OSCILLATION),
        ({"swinging_share": SWINGING_SHARE}, Regime.OSCILLATION),
        ({"swinging_share": SWINGING_SHARE - 0.001}, Regime.PRE_OSCILLATION),
        ({"queue_loss": LOW_LOSS / 2, "burst_share": None}, Regime.PRE_OSCILLATION),
        ({"queue_loss": LOW_LOSS / 2, "utilisation": HIGH_UTILISATION}, Regime.OTHER),
        ({"utilisation": HIGH_UTILISATION}, Regime.CONGESTION),
        ({"burst_share": BURSTY_SHARE - 0.01}, Regime.OTHER),
        ({"burst_share": BURSTY_SHARE - 0.01, "utilisation": 1.0}, Regime.OTHER),
        ({"concurrency_grows": True, "utilisation": 0.3}, Regime.CONGESTION),
        ({"concurrency_grows": False}, Regime.OSCILLATION),
        ({"burst_share": None}, None),
        ({"utilisation": None}, None),
        ({"swinging_share": None}, None),
        ({"queue_loss": None}, None),
    ],
)
def test_the_regime_follows_from_the_criteria_of_the_documents(figures: dict[str, Any], expected: str | None) -> None:
    assert decided(**figures) == expected


def test_a_regime_says_what_decided() -> None:
    found = regime(
        utilisation=0.5, queue_loss=0.02, burst_share=0.9, swinging_share=0.4, span_s=1.5, concurrency_grows=None
    )
    assert found["because"] == (
        "2.00% lost to a full queue, 90% of the losses in bursts, utilisation 50%; "
        "queue both full and empty within 3 RTTs 40% of the time"
    )
    assert (found["swinging_share"], found["span_s"]) == (0.4, 1.5)


def windows(open_: list[int]) -> pl.LazyFrame:
    return pl.LazyFrame({"window": range(len(open_)), "open": open_}, schema={"window": pl.Int64, "open": pl.Int64})


def test_concurrency_grows_if_each_part_has_more_open_flows_than_the_one_before() -> None:
    """The first fifth does not count."""
    growing = concurrency(windows([90, 90, 10, 10, 11, 11, 12, 12, 13, 13]), 10)
    assert growing is not None
    assert (growing["parts"], growing["grows"]) == ([10, 11, 12, 13], True)
    assert (growing["mean"], growing["p50"]) == (pytest.approx(27.2), 12)
    dipping = concurrency(windows([0, 0, 10, 10, 30, 30, 29, 29, 40, 40]), 10)
    assert dipping is not None
    assert not dipping["grows"]
    slowly = concurrency(windows([0, 0, 100, 100, 101, 101, 102, 102, 103, 103]), 10)
    assert slowly is not None
    assert not slowly["grows"]


def test_windows_without_a_row_have_no_open_flow_and_short_runs_no_figures() -> None:
    found = concurrency(windows([4, 4]), 10)
    assert found is not None
    assert (found["mean"], found["parts"]) == (pytest.approx(0.8), [0, 0, 0, 0])
    assert concurrency(windows([1, 1, 1, 1]), 4) is None
    assert concurrency(windows([]), 100) is None
