# SPDX-License-Identifier: Apache-2.0
"""Losses of a link by burst length, and the fate of its packets one after another."""

from collections.abc import Iterator
from typing import TypedDict

import polars as pl

from atoll_analysis.tables.capture_pairs import CapturePair, around_links
from atoll_analysis.tables.lost_packets import sent_in_measurement
from atoll_analysis.tables.probe_filter import of_changes
from atoll_analysis.tables.run_data import RunData
from atoll_analysis.tables.tables import Tables

GAP_PACKETS = 16
"""Gmin of RFC 3611, section 4.7.2: so many packets between two losses separate two bursts. A drop-tail queue that
overflows still takes small packets, and every packet that just fits, so that its losses are not all consecutive."""


class LossBursts(TypedDict):
    """What a link lost of the packets to the island that came to it within the measurement."""

    first: str  # the captures before and behind it, which show this
    last: str
    packets: int  # that came to the link
    lost: int
    lengths: list[list[int]]  # consecutive packets lost and how often, ascending
    longest: int
    mean: float | None  # of the lengths; None: nothing was lost
    burst_share: float | None  # of the lost packets: in bursts of at least two as RFC 3611 delimits them


def loss_bursts(tables: Tables, facts: RunData) -> dict[str, LossBursts]:
    """Return the bursts of every link whose captures show them."""
    probes = of_changes(facts) if facts.changes else None
    found: dict[str, LossBursts] = {}
    for link, pair in around_links(facts, tables.decoded):
        sent = sent_in_measurement(tables.packets(pair.first), facts, probes)
        count = sent.select(pl.len()).collect(engine="streaming").item()
        numbers = tables.scan("losses").filter(pl.col("link") == link.box).select("number").collect()["number"]
        found[link.box] = bursts(numbers, count, pair)
    return found


def bursts(numbers: pl.Series, packets: int, pair: CapturePair) -> LossBursts:
    """Return the bursts of lost packets. ``numbers``: theirs, ascending, of so many packets."""
    received = numbers.diff() - 1  # between a lost packet and the one before
    begins = (received != 0).fill_null(value=True)
    lengths = begins.cast(pl.Int64).cum_sum().value_counts().group_by("count").len().sort("count")
    near = (received < GAP_PACKETS).fill_null(value=False)
    in_bursts = near | near.shift(-1, fill_value=False)
    lost = len(numbers)
    return LossBursts(
        first=pair.first,
        last=pair.last,
        packets=packets,
        lost=lost,
        lengths=[list(row) for row in lengths.iter_rows()],
        longest=max(lengths["count"], default=0),
        mean=lost / int(begins.sum()) if lost else None,
        burst_share=int(in_bursts.sum()) / lost if lost else None,
    )


def fates(numbers: pl.Series, packets: int) -> Iterator[bool]:
    """Return of each of so many packets, in their order, whether it was lost; ``numbers`` as above."""
    lost = iter(numbers)
    following = next(lost, None)
    for number in range(packets):
        is_lost = number == following
        yield is_lost
        if is_lost:
            following = next(lost, None)
