# SPDX-License-Identifier: Apache-2.0
"""Codes that would have recovered the losses of a run."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll_analysis.figures.code_design import CodeDesign, CodeDesigns, code_designs, recovered_share

RATE = 16_000_000


def numbers(*lost: int) -> np.ndarray:
    return np.array(lost, dtype=np.int64)


def share_by_packet(lost: list[int], size: int, repairs: int, depth: int, packets: int) -> float:
    """The definition, packet after packet."""
    where = [(at // ((size + repairs) * depth), at % depth) for at in range(packets)]
    missing = Counter(where[at] for at in lost)
    sources = [at for at in lost if at % ((size + repairs) * depth) // depth < size]
    return sum(missing[where[at]] <= repairs for at in sources) / len(sources) if sources else 1.0


@given(
    lost=st.sets(st.integers(0, 499), min_size=1).map(sorted),
    size=st.integers(2, 30),
    repairs=st.integers(1, 10),
    depth=st.sampled_from([1, 2, 4, 8]),
)
def test_a_generation_recovers_up_to_w_losses(lost: list[int], size: int, repairs: int, depth: int) -> None:
    expected = share_by_packet(lost, size, repairs, depth, 500)
    assert recovered_share(numbers(*lost), size, repairs, depth) == pytest.approx(expected)


def test_a_burst_needs_as_many_repair_packets_or_is_spread_over_generations() -> None:
    burst = numbers(*range(1000, 1008))
    assert recovered_share(burst, 16, 4, 1) < 1
    assert recovered_share(burst, 16, 8, 1) == 1
    assert recovered_share(burst, 16, 1, 8) == 1
    assert recovered_share(burst, 16, 1, 4) < 1


def test_repair_packets_are_lost_as_well_but_do_not_count_as_lost_packets() -> None:
    # Packets 16 and 17 of a block of 18 are the repair packets.
    assert recovered_share(numbers(16, 17), 16, 2, 1) == 1.0
    assert recovered_share(numbers(3, 16, 17), 16, 2, 1) == 0.0


def test_the_design_of_each_target_and_size_has_the_least_overhead_that_is_in_time() -> None:
    # Every 200th packet, and 1 % of these begin a burst of six: 99 % do without the bursts.
    lost = list(range(0, 200_000, 200))
    lost += [at + after for at in range(0, 200_000, 20_000) for after in range(1, 6)]
    found = list(code_designs(np.sort(numbers(*lost)), RATE, packets_per_s=2000, sizes=(16, 64)))
    assert [(each.target, each.packets) for each in found] == [(0.99, 16), (0.99, 64), (0.999, 16), (0.999, 64)]
    for each in found:
        assert each.recovered >= each.target
        assert each.recovered == recovered_share(np.sort(numbers(*lost)), each.packets, each.repairs, each.interleaving)
        assert each.span_s == each.packets * each.interleaving / 2000
        assert each.in_time == (each.packets * each.interleaving <= 400)
        assert each.cap_bit_s == pytest.approx(RATE / (1 + each.repairs / each.packets))
    small = found[2]
    assert (small.repairs, small.interleaving, small.in_time) == (1, 8, True)
    # 64 x 8 packets take 256 ms: a shorter span needs more repair packets, and is preferred.
    assert found[3].in_time
    assert found[3].interleaving <= 4


def test_without_losses_there_is_nothing_to_design_and_what_cannot_be_recovered_has_no_design() -> None:
    assert not [*code_designs(numbers(), RATE, 1000)]
    assert not [*code_designs(numbers(*range(10_000)), RATE, 1000)], "all is lost"


def design(target: float, repairs: int, depth: int, *, in_time: bool | None) -> CodeDesign:
    return CodeDesign(target, 16, repairs, depth, repairs / 16, target, 0.1, in_time, RATE / (1 + repairs / 16))


def test_the_best_design_is_in_time_if_one_is() -> None:
    designs = (design(0.99, 1, 64, in_time=False), design(0.99, 4, 2, in_time=True), design(0.999, 2, 1, in_time=False))
    found = CodeDesigns("sat", 1000, 1000, 10, RATE, 0.1, designs)
    assert found.best(0.99) == designs[1]
    assert found.best(0.999) == designs[2]
    assert found.best(0.5) is None


def test_repair_packets_that_exceed_the_spare_rate_are_told() -> None:
    found = CodeDesigns("sat", 1000, 1000, 10, RATE, 0.2, ())
    assert not found.exceeds_spare(design(0.99, 4, 1, in_time=True))  # 0.25 of the 0.8 that were used
    assert found.exceeds_spare(design(0.99, 5, 1, in_time=True))
    assert not CodeDesigns("sat", 1, 1, 1, RATE, None, ()).exceeds_spare(design(0.99, 16, 1, in_time=True))
