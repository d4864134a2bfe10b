# SPDX-License-Identifier: Apache-2.0
"""Channels are fair to each other, whatever their number; a naive client's are not. Run with -s, figures are printed.

On loopback the clients are what is slow, which is where the trap bites. Over a satellite link in virtual time, where
computing takes no time, it bites as soon as the naive client is given less of it than it needs; and what is left of
unfairness otherwise is TCP's own. More, and longer: ``make bench-traffic ARGS=--fairness``.
"""

from pathlib import Path

import pytest

from tests.guests.channels_guest import Trial
from tests.support.channel_trials import in_real_time, in_virtual_time, room_for_all
from tests.support.loopback_channels import FLOWS, on_loopback
from tests.support.traffic_job import jain

CHANNELS = 4000
FLOW_S = 0.25  # two round trips: connection, then request and answer; what is sent takes 0.3 ms besides


@pytest.mark.parametrize("channels", [20, 200])
def test_channels_get_equal_shares_where_a_naive_client_starves_most(channels: int, tmp_path: Path) -> None:
    """That the naive client starves channels here shows that the machine is one to show fairness on."""
    naive, ours = on_loopback(channels, tmp_path)
    for name, one in (("ours", ours), ("naive", naive)):
        print(f"{channels} channels, {name}: Jain's index {jain(one.flows):.5f}, at least {min(one.flows)} flows, ")
        print(f"a ready channel waited at most {one.longest_wait_s * 1e3:.1f} ms; by itself {one.fairness}")
    assert min(ours.flows) >= FLOWS
    assert jain(ours.flows) >= 0.99
    assert jain(naive.flows) < 0.6
    # What our client says of itself: all flows have one size, so that its index is that of the flows.
    assert ours.fairness is not None
    assert abs(ours.fairness - jain(ours.flows)) < 0.01
    if channels >= 200:
        assert naive.longest_wait_s > 1, "of two seconds, and ours is compared where no other load can delay it"


@pytest.mark.lab
@pytest.mark.figures
def test_one_process_on_one_core_sustains_four_thousand_channels_on_a_fast_link() -> None:
    """MEO, 320 Mbit/s, four fifths used: 99 % of the channels complete a flow of 10 kB in each 10 s.

    Without a pause between flows the link would be overbooked and TCP's time-outs would decide (docs/benchmarks.md).
    """
    found = in_real_time(Trial(CHANNELS, 30, link="engine", think_ms=1060), limit_s=100)
    share = found.client_cpu_s / 30
    print(f"{CHANNELS} channels: {sum(found.flows)} flows, served in each 10 s {found.served}, {share:.2f} of a core")
    assert found.failed == 0
    assert sum(found.flows) >= 4 * CHANNELS * 3, "four times what a flow of each channel in 10 s makes"
    assert min(found.served) >= 0.99
    assert share < 0.7


@pytest.mark.virtual
def test_four_thousand_channels_fill_a_fast_link_and_none_is_forgotten(tmp_path: Path) -> None:
    """Where the queue has room for a flow of each, TCP loses nothing and the link alone sets the pace."""
    found = in_virtual_time(Trial(CHANNELS, 10, queue_bytes=room_for_all(CHANNELS)), tmp_path, 250)
    assert (found.failed, found.lost, found.served) == (0, 0, [1.0])
    assert max(found.flows) - min(found.flows) <= 1


@pytest.mark.virtual
@pytest.mark.parametrize("channels", [20, 200])
def test_channels_get_equal_shares_of_a_fast_link_in_virtual_time(channels: int, tmp_path: Path) -> None:
    """Every channel completes what two round trips a flow leave time for, to the flow where the link is nearly idle."""
    seconds = 54
    found = in_virtual_time(Trial(channels, seconds, queue_bytes=room_for_all(channels)), tmp_path, 250)
    print(f"{channels} channels: Jain's index {jain(found.flows):.5f}, {min(found.flows)} to {max(found.flows)} flows")
    assert (found.failed, found.lost) == (0, 0)
    assert min(found.flows) >= FLOWS
    assert max(found.flows) < seconds / FLOW_S
    assert jain(found.flows) >= 0.9999
    assert found.longest_wait_s < 0.01
    if channels == 20:
        assert set(found.flows) == {int(seconds / (FLOW_S + 0.0005))}


@pytest.mark.virtual
@pytest.mark.parametrize("channels", [20, 200])
def test_a_naive_client_starves_channels_of_a_satellite_link_once_computing_takes_time(
    channels: int, tmp_path: Path
) -> None:
    """Given all the time it wants it is fair; given half of it, a fifth of its channels and more wait for ever."""
    needed_us = round(FLOW_S * 1e6 / channels / 3)  # at least three turns a flow: to ask, to read, to see the end
    for work_us, fair in ((0, True), (2 * needed_us, False)):
        found = in_virtual_time(Trial(channels, 10, naive_work_us=work_us), tmp_path / str(work_us), 100)
        print(f"{channels} channels, {work_us} us a turn: {jain(found.flows):.5f}, {found.flows.count(0)} starved")
        assert (jain(found.flows) > 0.99) == fair
        assert (found.longest_wait_s < 1) == fair
        assert (found.flows.count(0) >= channels / 5) != fair
