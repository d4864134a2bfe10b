# SPDX-License-Identifier: Apache-2.0
"""Channels dealt to clients of any capacities: as even as whole channels allow, and never worse for having more."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from atoll_core.experiment.traffic import allocate_channels

CAPACITY = st.one_of(
    st.integers(1, 64).map(float), st.sampled_from([0.1, 0.3, 0.5, 1.5]), st.floats(1e-3, 1e6, allow_subnormal=False)
)
CAPACITIES = st.lists(CAPACITY, min_size=1, max_size=12)
CHANNELS = st.integers(0, 400)


def counts(channels: int, capacities: list[float]) -> list[int]:
    return [len(part) for part in allocate_channels(channels, capacities)]


def exact(capacities: list[float]) -> list[Fraction]:
    return [Fraction(str(capacity)) for capacity in capacities]


@given(CHANNELS, CAPACITIES)
def test_every_channel_is_dealt_once(channels: int, capacities: list[float]) -> None:
    dealt = allocate_channels(channels, capacities)
    assert len(dealt) == len(capacities)
    assert sorted(channel for part in dealt for channel in part) == list(range(channels))


@given(CHANNELS, st.integers(1, 12), CAPACITY)
def test_equal_capacities_are_served_in_turn(channels: int, clients: int, capacity: float) -> None:
    assert allocate_channels(channels, [capacity] * clients) == tuple(
        tuple(range(index, channels, clients)) for index in range(clients)
    )


@given(CHANNELS, CAPACITIES)
def test_no_channel_would_be_better_placed_elsewhere(channels: int, capacities: list[float]) -> None:
    """What defines Sainte-Laguë: the last channel of any client had no claim that another's next one exceeds."""
    given_, exactly = counts(channels, capacities), exact(capacities)
    last = [(2 * count - 1) / capacity for count, capacity in zip(given_, exactly, strict=True) if count]
    due = [(2 * count + 1) / capacity for count, capacity in zip(given_, exactly, strict=True)]
    assert not last or max(last) <= min(due)


@given(CHANNELS, CAPACITIES)
def test_no_two_clients_could_both_come_nearer_to_their_share(channels: int, capacities: list[float]) -> None:
    """Balinski and Young's "near quota".

    Nobody can promise more: a rule that always keeps within one of the share takes channels away from clients when
    there are more channels.
    """
    given_, exactly = counts(channels, capacities), exact(capacities)
    off = [count - channels * one / sum(exactly) for count, one in zip(given_, exactly, strict=True)]
    assert not (max(off) > Fraction(1, 2) and min(off) < Fraction(-1, 2))


@given(CHANNELS, st.lists(CAPACITY, min_size=1, max_size=3))
def test_up_to_three_clients_get_their_share_within_one(channels: int, capacities: list[float]) -> None:
    exactly = exact(capacities)
    for count, one in zip(counts(channels, capacities), exactly, strict=True):
        assert abs(count - channels * one / sum(exactly)) < 1


@given(CHANNELS, CAPACITIES, st.data())
def test_more_capacity_never_takes_a_channel_away(channels: int, capacities: list[float], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(capacities) - 1))
    more = [*capacities]
    more[index] = data.draw(st.floats(capacities[index], 1e7))
    assert counts(channels, more)[index] >= counts(channels, capacities)[index]


@given(CHANNELS, CAPACITIES)
def test_more_channels_move_none(channels: int, capacities: list[float]) -> None:
    """Channel c stays where it is, so that runs of different loads can be compared channel by channel."""
    fewer, more = allocate_channels(channels, capacities), allocate_channels(channels + 1, capacities)
    assert all(part == grown[: len(part)] for part, grown in zip(fewer, more, strict=True))


def test_decimals_mean_what_they_say() -> None:
    """0.1 and 0.3 are one to three, though no binary fraction is: ties go to the first."""
    assert allocate_channels(4, [0.1, 0.3]) == allocate_channels(4, [1.0, 3.0]) == ((1,), (0, 2, 3))
