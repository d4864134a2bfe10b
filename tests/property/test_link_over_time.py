# SPDX-License-Identifier: Apache-2.0
"""The capacity of a link is the integral of its rate, however its rate changes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll_core.experiment.experiment import LinkDirection, LinkTrace, TraceRow
from atoll_core.experiment.link_over_time import LinkOverTime, LinkStep, link_over_time
from atoll_core.units import Duration, Rate, Size

NS = st.integers(0, 10**13)
RATES = st.integers(1000, 10**11)
WAY = LinkDirection(Rate(8_000_000), Duration(0), Size(50_000))


@st.composite
def links(draw: st.DrawFn) -> LinkOverTime:
    instants = draw(st.lists(NS, min_size=1, max_size=8, unique=True))
    settings = st.builds(LinkStep, st.just(0), RATES.map(Rate), RATES.map(Size), st.booleans(), NS.map(Duration))
    return LinkOverTime(tuple(draw(settings)._replace(since_ns=at) for at in sorted(instants)))


@given(links(), NS, NS, NS)
def test_capacities_of_adjacent_times_add_up(link: LinkOverTime, first: int, second: int, third: int) -> None:
    begin, middle, end = sorted((first, second, third))
    parts = link.capacity_bytes(begin, middle) + link.capacity_bytes(middle, end)
    assert parts == pytest.approx(link.capacity_bytes(begin, end), rel=1e-12)


@given(links(), NS, NS)
def test_a_capacity_is_that_of_the_mean_rate_which_is_between_lowest_and_highest(
    link: LinkOverTime, first: int, second: int
) -> None:
    begin, end = sorted((first, second))
    lowest, highest = link.rate_range(begin, end)
    assert lowest <= link.mean_rate(begin, end) <= highest
    assert link.capacity_bytes(begin, end) == pytest.approx(
        link.mean_rate(begin, end).bit_s * (end - begin) / 8e9, rel=1e-3
    )
    assert lowest <= link.at(begin).rate <= highest


@given(links(), NS, st.lists(NS, max_size=6))
def test_a_capacity_is_the_sum_over_small_times_of_constant_rate(link: LinkOverTime, end: int, more: list[int]) -> None:
    cuts = sorted({0, end, *(step.since_ns for step in link.steps), *more})
    cuts = [cut for cut in cuts if cut <= end]
    bits = sum(link.at(a).rate.bit_s * (b - a) for a, b in pairwise(cuts))
    assert link.capacity_bytes(0, end) == pytest.approx(bits / 8e9, rel=1e-12)


@given(RATES, NS, NS)
def test_a_constant_rate_has_the_capacity_of_rate_times_time(rate: int, first: int, second: int) -> None:
    begin, end = sorted((first, second))
    link = LinkOverTime((LinkStep(second, Rate(rate), Size(1), blocked=False, delay=Duration(0)),))
    assert link.capacity_bytes(begin, end) == rate * (end - begin) / (8 * 10**9)
    assert link.rate_range(begin, end) == (Rate(rate), Rate(rate))
    if begin < end and rate * (end - begin) < 2**53:
        assert link.mean_rate(begin, end) == Rate(rate)


def test_a_trace_begins_at_its_instant_and_its_empty_cells_are_as_configured() -> None:
    rows = (
        TraceRow(Duration(0), rate=Rate(4_000_000)),
        TraceRow(Duration(10), delay=Duration(5)),
        TraceRow(Duration(20), delay=Duration(6)),
        TraceRow(Duration(30), blocked=True),
    )
    traced = LinkDirection(WAY.rate, WAY.delay, WAY.queue, trace=LinkTrace("t.csv", rows))
    assert link_over_time([(7, traced)], trace_ns=1000).steps == (
        LinkStep(1000, Rate(4_000_000), WAY.queue, blocked=False, delay=WAY.delay),
        LinkStep(1010, WAY.rate, WAY.queue, blocked=False, delay=Duration(5)),
        LinkStep(1020, WAY.rate, WAY.queue, blocked=False, delay=Duration(6)),
        LinkStep(1030, WAY.rate, WAY.queue, blocked=True, delay=WAY.delay),
    )


@given(links(), NS, NS)
def test_packets_catch_up_with_others_only_after_the_delay_has_fallen(
    link: LinkOverTime, first: int, second: int
) -> None:
    """Of two packets the later one can arrive as early as the other, or earlier, only within such a time."""
    earlier, later = sorted((first, second))
    arrivals = [sent + link.at(sent).delay.ns for sent in (earlier, later)]
    if earlier < later and arrivals[1] <= arrivals[0]:
        assert any(begin <= arrivals[1] <= end and arrivals[0] <= end for begin, end, _ in link.compressions())


def test_what_catches_up_is_what_is_sent_until_it_would_arrive_behind_all_others() -> None:
    def step(since_ms: int, delay_ms: int) -> LinkStep:
        delay = Duration(delay_ms * 10**6)
        return LinkStep(since_ms * 10**6, Rate(8_000_000), WAY.queue, blocked=False, delay=delay)  # 1 kB/ms

    slower = LinkOverTime((step(0, 20), step(100, 60)))
    assert list(slower.compressions()) == []
    faster = LinkOverTime((step(0, 60), step(100, 20), step(110, 30)))
    assert list(faster.compressions()) == [(120_000_000, 160_000_000, 40_000.0), (140_000_000, 160_000_000, 20_000.0)]
