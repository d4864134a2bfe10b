# SPDX-License-Identifier: Apache-2.0
"""Flows by size class: percentiles of hand-made flows, shares within the initial window, long flows."""

import polars as pl
import pytest

from atoll_analysis.figures.flows import CLASS_BOUNDS_BYTES, flow_classes, initial_window, long_flows

SECOND_NS = 10**9


def flows(*rows: tuple[int, float, float | None, str]) -> pl.LazyFrame:
    """Size in bytes, begin and end in seconds, outcome."""
    return pl.LazyFrame(
        {
            "size_bytes": [size for size, *_ in rows],
            "start_ns": [round(begin * SECOND_NS) for _, begin, _, _ in rows],
            "end_ns": [None if end is None else round(end * SECOND_NS) for _, _, end, _ in rows],
            "outcome": [outcome for *_, outcome in rows],
        },
        schema={"size_bytes": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64, "outcome": pl.String},
    )


def test_percentiles_are_of_the_completed_flows_of_each_class() -> None:
    """A bound belongs to the class below it; flows that were cut or failed count as begun alone."""
    made = flows(
        (10_000, 0, 1, "completed"),
        (500, 1, 3, "completed"),
        (10_001, 0, 4, "completed"),
        (20_000, 0, None, "failed:ECONNRESET"),
        (5_000_000, 0, 60, "cut"),
    )
    smallest, small, middle, large, largest = flow_classes(made)
    assert (smallest["above_bytes"], smallest["to_bytes"]) == (0, 10_000)
    assert (smallest["flows"], smallest["completed"], smallest["completed_bytes"]) == (2, 2, 10_500)
    assert smallest["completion_s"] == pytest.approx({"p50": 1.5, "p90": 1.9, "p95": 1.95, "p99": 1.99})
    # 80 kbit/s and 2 kbit/s
    assert smallest["rate_mbit_s"] == pytest.approx({"p50": 0.041, "p90": 0.0722, "p95": 0.0761, "p99": 0.07922})
    assert (small["flows"], small["completed"]) == (2, 1)
    assert small["completion_s"] == {"p50": 4, "p90": 4, "p95": 4, "p99": 4}
    assert (middle["flows"], middle["completion_s"]) == (0, None)
    assert (large["flows"], large["completed"], large["rate_mbit_s"]) == (1, 0, None)
    assert (largest["above_bytes"], largest["to_bytes"]) == (CLASS_BOUNDS_BYTES[-1], None)


def test_shares_within_the_initial_window_are_of_completed_flows_and_their_bytes() -> None:
    made = flows((14_480, 0, 1, "completed"), (14_481, 0, 1, "completed"), (100, 0, 9, "cut"))
    assert initial_window(made, None, 1448) == {
        "bytes": 14_480,
        "flows_share": 0.5,
        "bytes_share": pytest.approx(14_480 / 28_961),
    }
    assert initial_window(flows(), None, 1448) == {"bytes": 14_480, "flows_share": None, "bytes_share": None}
    assert initial_window(made, 40, 1448)["flows_share"] == 1


def test_long_flows_count_while_they_are_open_in_the_measurement() -> None:
    """One in the second half, one from before the measurement to its first quarter, one that never ended."""
    made = flows(
        (2_000_000, 15, 25, "completed"),
        (2_000_000, 5, 12.5, "completed"),
        (2_000_000, 10, None, "failed:ETIMEDOUT"),
        (1_000_000, 10, 20, "completed"),
    )
    assert long_flows(made, 1_000_000, 10 * SECOND_NS, 20 * SECOND_NS) == pytest.approx(0.5 + 0.25 + 1)
