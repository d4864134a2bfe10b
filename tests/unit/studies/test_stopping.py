# SPDX-License-Identifier: Apache-2.0
"""Sequential stopping: what looks decide, and that interruptions and later runs change nothing of it."""

import pytest

from atoll_studies.statistics.estimates import interval_ranks
from atoll_studies.statistics.stopping import Reason, Stop, decide, repeated_median, repeated_ranks

STOP = Stop("goodput", 0.05, least=6, most=12, step=2)
NARROW = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 100.1, 99.9, 100.3, 99.7, 100.4, 99.6]
WIDE = [50.0, 150.0, 100.0, 60.0, 140.0, 90.0, 110.0, 80.0, 120.0, 70.0, 130.0, 95.0]


def test_one_look_has_the_ranks_of_a_fixed_number_of_runs() -> None:
    for runs in range(6, 60):
        assert repeated_ranks((runs,), runs) == (interval_ranks(runs, 0.5)[0],)


def test_ranks_of_several_looks_are_those_of_the_random_walk() -> None:
    """By hand: at 6 of 12 runs 2.5 % may be spent, and the extremes miss with 2/64; at 8, 3.3 %, with 2/256."""
    assert repeated_ranks((6, 8), 12) == (0, 1)
    assert repeated_ranks((6,), 6) == (1,)
    # after the first look has spent 2/64 at 6 of 6.5 runs, 9 more of 1000 paths would be too many
    assert repeated_ranks((5, 5, 9), 9) == (0, 0, 2)


def test_a_combination_ends_at_the_first_look_at_which_its_interval_is_narrow() -> None:
    found = decide(STOP, NARROW, 12)
    assert (found.repetitions, found.reason) == (8, Reason.REACHED)
    assert found.estimate is not None
    assert (found.estimate.low, found.estimate.high, found.estimate.level) == (99.0, 101.0, 0.95)
    assert found.half_width == pytest.approx(0.01, abs=1e-4)


def test_a_wide_one_ends_with_the_most_repetitions() -> None:
    found = decide(STOP, WIDE, 12)
    assert (found.repetitions, found.reason) == (12, Reason.MOST)
    assert found.half_width is not None
    assert found.half_width > 0.05


def test_a_look_waits_for_all_repetitions_before_it() -> None:
    assert decide(STOP, [], 0).repetitions == 6
    assert decide(STOP, WIDE[:5], 5).reason is Reason.OPEN
    assert decide(STOP, WIDE[:7], 7).repetitions == 8
    assert decide(STOP, NARROW[:7], 7).repetitions == 8


def test_a_look_uses_no_repetition_after_it() -> None:
    """A sweep that is resumed with more runs than it needs decides as one that made them one by one."""
    late = [*NARROW[:8], 1e6, -1e6, 1e6, -1e6]
    assert decide(STOP, late, 12) == decide(STOP, NARROW, 8)


def test_runs_that_did_not_measure_the_figure_are_left_out() -> None:
    values: list[float | None] = [None, None, *NARROW[:10]]
    found = decide(STOP, values, 12)
    assert (found.repetitions, found.reason) == (10, Reason.REACHED)
    assert found.estimate is not None
    assert found.estimate.runs == 8
    nothing = decide(STOP, [None] * 12, 12)
    assert (nothing.repetitions, nothing.reason, nothing.estimate) == (12, Reason.MOST, None)


def test_a_median_of_zero_is_known_once_nothing_varies() -> None:
    assert decide(STOP, [0.0] * 12, 12).reason is Reason.REACHED
    assert decide(STOP, [-1.0, 1.0] * 6, 12).reason is Reason.MOST


def test_while_there_is_no_interval_its_level_is_0() -> None:
    found = repeated_median([1.0, 2.0, 3.0], [3], 30)
    assert (found.value, found.low, found.high, found.level) == (2.0, 1.0, 3.0, 0.0)
