# SPDX-License-Identifier: Apache-2.0
"""Lost packets are found one by one between two captures, whatever the slices in which these are read."""

from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll_analysis.figures.loss_bursts import bursts
from atoll_analysis.tables.lost_packets import lost_packets
from atoll_analysis.tables.topology import CapturePair

MS = 10**6
DELAY_NS = 250 * MS
HEADERS = ("src", "dst", "proto", "sport", "dport", "seq", "ack", "ip_id", "payload_bytes", "tcp_flags")
PAIR = CapturePair("world", "link-sat", ("sat",))


def capture(packets: list[tuple[int, int]], delay_ns: int = 0) -> pl.LazyFrame:
    """Packets by instant in ms and IPv4 identification; all other headers are alike."""
    return pl.LazyFrame(
        {
            "t_ns": [t_ms * MS + delay_ns for t_ms, _ in packets],
            "ip_bytes": [1500] * len(packets),
            **{name: [7] * len(packets) for name in HEADERS},
            "ip_id": [ip_id for _, ip_id in packets],
        },
        schema={"t_ns": pl.Int64, "ip_bytes": pl.UInt32, **dict.fromkeys(HEADERS, pl.UInt32)},
    )


def lost(first: pl.LazyFrame, last: pl.LazyFrame, longest_ns: int = 400 * MS, at_once: int = 100) -> list[int]:
    return pl.concat(lost_packets(first, last, longest_ns, at_once))["number"].to_list()


def test_a_packet_that_did_not_come_out_is_lost() -> None:
    sent = [(0, 1), (1, 2), (2, 3), (3, 4)]
    (found,) = (each for each in lost_packets(capture(sent), capture([(0, 1), (3, 4)], DELAY_NS), MS) if len(each))
    assert found.rows() == [(1, MS, 1500), (2, 2 * MS, 1500)]


def test_of_packets_that_are_alike_the_order_says_which_was_lost() -> None:
    """0 and 0: the second one left after packet 5, which came between them."""
    sent = [(0, 0), (1, 5), (2, 0), (3, 6)]
    assert lost(capture(sent), capture([(1, 5), (2, 0), (3, 6)], DELAY_NS)) == [0]
    assert lost(capture(sent), capture([(0, 0), (1, 5), (3, 6)], DELAY_NS)) == [2]


def test_packets_whose_fate_the_capture_does_not_show_are_left_out() -> None:
    """None behind the last arrival: they may be in flight. Nor is a packet lost that only came later than others."""
    assert lost(capture([(0, 1), (1, 2), (2, 3)]), capture([(0, 1)], DELAY_NS)) == []
    assert lost(capture([(0, 1), (1, 2)]), capture([(1, 2), (2, 1)], DELAY_NS)) == []


def test_captures_without_packets_show_no_loss() -> None:
    assert list(lost_packets(capture([]), capture([(0, 1)]), MS)) == []
    assert list(lost_packets(capture([(0, 1)]), capture([]), MS)) == []


def test_packets_that_only_the_second_capture_has_are_no_losses() -> None:
    assert lost(capture([(0, 1), (5, 2)]), capture([(0, 1), (3, 9), (5, 2)], DELAY_NS)) == []


@given(
    fates=st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.booleans()), min_size=2, max_size=120),
    at_once=st.integers(1, 50),
)
def test_losses_of_a_queue_are_found_exactly_in_slices_of_any_size(
    fates: list[tuple[int, bool, bool]], at_once: int
) -> None:
    """Gaps in ms, whether lost, whether the packet is like others. The last one always arrives."""
    fates[-1] = (fates[-1][0], False, False)
    t_ms = 0
    sent: list[tuple[int, int]] = []
    for number, (gap_ms, _, is_alike) in enumerate(fates, start=1):
        t_ms += gap_ms
        sent.append((t_ms, 0 if is_alike else number))
    arrived = [packet for packet, (_, is_lost, _) in zip(sent, fates, strict=True) if not is_lost]
    found = lost(capture(sent), capture(arrived, 20 * MS), 30 * MS, at_once)
    really = [number for number, (_, is_lost, _) in enumerate(fates) if is_lost]
    assert len(found) == len(really)
    apart = {number for number, (_, _, is_alike) in enumerate(fates) if not is_alike}
    assert apart.intersection(found) == apart.intersection(really)


@given(st.lists(st.integers(0, 200), unique=True))
def test_bursts_add_up_to_the_losses(numbers: list[int]) -> None:
    numbers.sort()
    found = bursts(pl.Series("number", numbers, pl.Int64), 201, PAIR)
    assert sum(length * often for length, often in found["lengths"]) == found["lost"] == len(numbers)
    successive = sum(later - earlier == 1 for earlier, later in pairwise(numbers))
    assert sum(often for _, often in found["lengths"]) == len(numbers) - successive


def test_bursts_are_losses_in_succession_and_those_of_rfc_3611() -> None:
    """5, 6, 7 and 9 are one burst of RFC 3611; 25 is 15 received packets behind it, 42 has 16 before it."""
    found = bursts(pl.Series("number", [5, 6, 7, 9, 25, 42], pl.Int64), 100, PAIR)
    assert (found["lengths"], found["longest"], found["mean"]) == ([[1, 3], [3, 1]], 3, 1.5)
    assert found["burst_share"] == pytest.approx(5 / 6)
    none = bursts(pl.Series("number", [], pl.Int64), 100, PAIR)
    assert (none["lengths"], none["longest"], none["mean"], none["burst_share"]) == ([], 0, None, None)
