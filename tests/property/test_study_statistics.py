# SPDX-License-Identifier: Apache-2.0
"""Estimates over runs: intervals cover what they say they cover, for any distribution."""

import functools
import math
import statistics as plain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll_studies.statistics.estimates import (
    LEAST_CONTROLLED,
    LEVEL,
    Limits,
    attainable_level,
    controlled_mean,
    coverage,
    interval_ranks,
    least_runs,
    limited,
    mean_estimate,
    paired_differences,
    quantile,
    quantile_estimate,
)
from atoll_studies.statistics.stopping import Reason, Stop, decide, repeated_ranks

VALUES = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40)
SHARES = st.sampled_from([0.05, 0.25, 0.5, 0.75, 0.95])


@st.composite
def censored(draw: st.DrawFn) -> tuple[list[float], list[Limits]]:
    """Times, and what runs show that end after a time."""
    times = draw(st.lists(st.floats(0.1, 1000), min_size=1, max_size=20))
    end = draw(st.floats(0.1, 1000))
    return times, [Limits(time, time) if time <= end else Limits(end, math.inf) for time in times]


@given(censored(), SHARES)
def test_an_estimate_of_censored_times_has_that_of_all_times_within_its_limits(
    both: tuple[list[float], list[Limits]], share: float
) -> None:
    times, seen = both
    found = limited(functools.partial(quantile_estimate, share=share), seen)
    whole = quantile_estimate(times, share)
    for limits, known in zip(found.limits, (whole.value, whole.low, whole.high), strict=True):
        assert limits.least <= known <= limits.most
        assert limits.sign in "=>"
        assert not limits.is_exact or limits.least == known


@given(censored(), censored())
def test_the_difference_of_censored_times_has_that_of_all_times_within_its_limits(
    one: tuple[list[float], list[Limits]], two: tuple[list[float], list[Limits]]
) -> None:
    (baseline, seen), (other, seen_other) = ([dict(enumerate(each)) for each in both] for both in (one, two))
    found, whole = paired_differences(seen, seen_other), paired_differences(baseline, other)
    assert found is not None
    assert whole is not None
    known = (whole.median.value, whole.median.low, whole.median.high)
    for limits, value in zip(found.median.limits, known, strict=True):
        assert limits.least <= value <= limits.most
    assert (found.higher <= whole.higher, found.lower <= whole.lower, found.equal <= whole.equal) == (True,) * 3


def test_a_median_of_which_half_is_censored_is_beyond_the_middle_of_what_was_seen() -> None:
    """Of 100, 500 and twice more than 580 it is between 500 and infinity, and at least their mean."""
    beyond = Limits(580, math.inf)
    found = limited(quantile_estimate, [100, 500, beyond, beyond])
    assert found.limits == ((540, math.inf), (100, 100), (580, math.inf))
    undefined = paired_differences({1: beyond}, {1: beyond})
    assert undefined is not None
    assert undefined.median.limits[0].sign == "?"
    assert (undefined.higher, undefined.lower, undefined.equal) == (0, 0, 0)


def test_a_stop_rule_counts_a_transfer_that_did_not_finish() -> None:
    """Without those that did not finish, the others are equal and would end the study."""
    stop = Stop("transfer time", 0.1, 6, 24, 6)
    values = [5.0, Limits(58, math.inf)] * 6
    assert decide(stop, values, 12).reason is Reason.OPEN
    assert decide(stop, [5.0] * 24, 24).reason is Reason.REACHED


def test_six_runs_are_the_least_for_a_median_at_95_per_cent() -> None:
    assert least_runs() == 6
    assert attainable_level(6) == 1 - 2 / 2**6
    assert attainable_level(5) == 1 - 2 / 2**5 < LEVEL


@pytest.mark.parametrize(
    ("count", "ranks", "level"),
    # Hollander, Wolfe, Chicken, Nonparametric Statistical Methods, 3rd edition: the sign test's table, inverted.
    [(6, (1, 6), 0.9688), (8, (1, 8), 0.9922), (9, (2, 8), 0.9609), (12, (3, 10), 0.9614), (20, (6, 15), 0.9586)],
)
def test_the_ranks_of_a_median_are_those_of_the_sign_test(count: int, ranks: tuple[int, int], level: float) -> None:
    assert interval_ranks(count, 0.5) == ranks
    assert coverage(count, 0.5, *ranks) == pytest.approx(level, abs=5e-5)


@given(st.integers(1, 200), SHARES)
def test_an_interval_has_the_level_asked_for_or_is_the_widest_there_is(count: int, share: float) -> None:
    low, high = interval_ranks(count, share)
    level = coverage(count, share, low, high)
    one_sided_misses = (share**count if high == count else 0.0, (1 - share) ** count if low == 1 else 0.0)
    assert 1 <= low <= high <= count
    assert level >= LEVEL - 1e-9 - sum(one_sided_misses)
    if attainable_level(count, share) >= LEVEL and max(one_sided_misses) == 0:
        assert level >= LEVEL - 1e-9


@given(VALUES, SHARES)
def test_an_estimate_is_within_its_interval_or_beside_it_by_less_than_a_rank(values: list[float], share: float) -> None:
    estimate = quantile_estimate(values, share)
    assert min(values) <= estimate.low <= estimate.high <= max(values)
    assert min(values) <= estimate.value <= max(values)
    assert estimate.runs == len(values)


@given(VALUES)
def test_a_median_is_the_median_and_within_its_interval(values: list[float]) -> None:
    estimate = quantile_estimate(values)
    assert estimate.value == pytest.approx(plain.median(values), rel=1e-9, abs=1e-3)
    assert estimate.low <= estimate.value <= estimate.high


@given(VALUES, st.floats(-1e6, 1e6))
def test_estimates_move_with_the_values(values: list[float], by: float) -> None:
    there, moved = quantile_estimate(values), quantile_estimate([each + by for each in values])
    assert moved.low == pytest.approx(there.low + by, rel=1e-9, abs=1e-3)
    assert moved.level == there.level


@pytest.mark.parametrize("count", [6, 10, 20, 40])
@pytest.mark.parametrize("name", ["lognormal", "pareto"])
def test_intervals_of_heavy_tailed_values_cover_the_median_as_often_as_they_say(name: str, count: int) -> None:
    """20,000 studies of ``count`` runs each: the share of intervals with the true median in them."""
    random = np.random.default_rng(count)
    drawn, median = {
        "lognormal": (random.lognormal(0, 2, (20_000, count)), 1.0),
        "pareto": (random.pareto(1.1, (20_000, count)), 2 ** (1 / 1.1) - 1),
    }[name]
    low, high = interval_ranks(count, 0.5)
    ordered = np.sort(drawn, axis=1)
    covered = np.mean((ordered[:, low - 1] <= median) & (median <= ordered[:, high - 1]))
    level = coverage(count, 0.5, low, high)
    assert level >= LEVEL
    assert covered == pytest.approx(level, abs=4 * math.sqrt(level * (1 - level) / 20_000))


def test_pairs_of_shared_seeds_do_not_see_what_seeds_add() -> None:
    """Loads of seeds differ by a hundred times the effect: the paired interval excludes 0, the others overlap."""
    random = np.random.default_rng(7)
    load = {seed: float(random.lognormal(3, 1)) for seed in range(10)}
    other = {seed: value + 0.1 + float(random.normal(0, 0.01)) for seed, value in load.items()}
    paired = paired_differences(load, other)
    assert paired is not None
    assert paired.median.level >= LEVEL
    assert paired.median.low > 0
    assert (paired.higher, paired.lower) == (10, 0)
    first, second = quantile_estimate(list(load.values())), quantile_estimate(list(other.values()))
    assert first.high > second.low
    assert paired.median.high - paired.median.low < (first.high - first.low) / 2


def test_only_seeds_of_both_are_paired() -> None:
    paired = paired_differences({1: 10.0, 2: 20.0, 3: 0.0}, {2: 21.0, 3: -1.0, 4: 99.0})
    assert paired is not None
    assert (paired.median.runs, paired.median.value, paired.higher, paired.lower) == (2, 0.0, 1, 1)
    assert paired_differences({1: 1.0}, {2: 1.0}) is None


def test_too_few_pairs_have_a_lower_level() -> None:
    paired = paired_differences({1: 1.0, 2: 2.0}, {1: 2.0, 2: 3.0})
    assert paired is not None
    assert paired.median.level < LEVEL


def test_a_bootstrap_is_repeatable_and_around_the_mean() -> None:
    values = [1.0, 2.0, 2.5, 4.0, 9.0, 3.0]
    first, again, other = (mean_estimate(values, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert first.low < first.value == plain.fmean(values) < first.high
    assert mean_estimate([5.0] * 8, 1).low == mean_estimate([5.0] * 8, 1).high == 5.0
    assert mean_estimate([1.0, 3.0], 1).level == 0.0


@given(VALUES)
def test_quantiles_are_ordered(values: list[float]) -> None:
    found = [quantile(values, share) for share in (0, 0.25, 0.5, 0.75, 1)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (min(values), max(values))


def test_no_values_have_no_quantile() -> None:
    with pytest.raises(ValueError, match="no values"):
        quantile_estimate([])


@pytest.mark.filterwarnings("error")
def test_a_mean_whose_interval_is_not_finite_has_none() -> None:
    found = mean_estimate([1.0, 1.0, 1.0, 1.0000000000000002], seed=1)
    assert (found.low, found.high, found.level) == (1.0, 1.0000000000000002, 0.0)


@given(st.lists(st.integers(6, 40), min_size=1, max_size=8, unique=True).map(sorted), st.integers(0, 20))
def test_intervals_of_all_looks_together_miss_the_median_with_at_most_5_per_cent(looks: list[int], more: int) -> None:
    """Exactly, by the paths of the random walk of values below the median."""
    ranks = repeated_ranks(tuple(looks), looks[-1] + more)
    inside = {0: 1.0}
    count = 0
    for look, rank in zip(looks, ranks, strict=True):
        for _ in range(look - count):
            following: dict[int, float] = {}
            for below, share in inside.items():
                for each in (below, below + 1):
                    following[each] = following.get(each, 0.0) + share / 2
            inside = following
        count = look
        inside = {below: share for below, share in inside.items() if rank <= below <= look - rank}
    assert sum(inside.values()) >= LEVEL - 1e-9


@given(st.lists(st.floats(-100, 100), min_size=6, max_size=24), st.integers(6, 24))
def test_what_is_decided_does_not_depend_on_when_one_asks(values: list[float], ended: int) -> None:
    """A decision that was made stands however many runs there are later; an open one is not yet made with fewer."""
    stop = Stop("goodput", 0.2, least=6, most=len(values), step=3)
    final = decide(stop, values, len(values))
    earlier = decide(stop, values[:ended], min(ended, len(values)))
    assert final.reason is not Reason.OPEN
    if earlier.reason is Reason.OPEN:
        assert ended < earlier.repetitions <= final.repetitions
    else:
        assert earlier == final


def test_a_control_variate_corrects_for_the_sizes_that_the_seeds_drew() -> None:
    """The figure is a line through the control: the corrected mean is the line at the expectation."""
    controls = 2 * [1.0, 2.0, 3.0, 5.0, 8.0, 1.5, 2.5, 4.0, 6.0, 7.0]
    noise = 2 * [0.01, -0.02, 0.015, 0.0, -0.01, 0.02, -0.015, 0.01, 0.005, -0.01]
    values = [3 + 2 * control + each for control, each in zip(controls, noise, strict=True)]
    found = controlled_mean(values, controls, 3.0, seed=1)
    assert found.estimate is not None
    assert found.estimate.value == pytest.approx(9, abs=0.02)
    assert found.estimate.low < 9 < found.estimate.high
    mean = mean_estimate(values, seed=1)
    assert found.estimate.high - found.estimate.low < (mean.high - mean.low) / 20
    assert found == controlled_mean(values, controls, 3.0, seed=1)


def test_a_control_is_not_used_without_correlation_or_with_few_runs() -> None:
    random = np.random.default_rng(3)
    values, controls = random.normal(0, 1, 20), random.normal(0, 1, 20)
    unrelated = controlled_mean(list(values), list(controls), 0.0, seed=1)
    assert unrelated.estimate is None
    assert (
        abs(unrelated.correlation) < unrelated.least_correlation == pytest.approx(0.4438, abs=5e-5)
    )  # t of 18: 2.1009
    line = [float(number) + 0.1 * (number % 3) for number in range(LEAST_CONTROLLED)]
    places = list(map(float, range(LEAST_CONTROLLED)))
    assert controlled_mean(line, places, 2.0, seed=1).estimate is not None
    few = controlled_mean(line[1:], places[1:], 2.0, seed=1)
    assert few.estimate is None
    assert few.correlation > 0.99
    assert controlled_mean([1.0] * 20, list(controls), 0.0, seed=1).estimate is None
    with pytest.raises(ValueError, match="3 values and 2 controls"):
        controlled_mean([1.0, 2.0, 3.0], [1.0, 2.0], 0.0, seed=1)


@given(st.lists(st.integers(-1000, 1000), min_size=4, max_size=12), st.integers(-1000, 1000))
def test_an_interval_of_a_mean_moves_with_the_values(values: list[int], by: int) -> None:
    there, moved = mean_estimate(values, 1), mean_estimate([each + by for each in values], 1)
    if there.level and moved.level:
        assert moved.low == pytest.approx(there.low + by, rel=1e-6, abs=1e-6)
        assert moved.high == pytest.approx(there.high + by, rel=1e-6, abs=1e-6)
