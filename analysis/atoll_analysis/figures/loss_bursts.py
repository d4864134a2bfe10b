# SPDX-License-Identifier: Apache-2.0
"""Losses of a link, and of the packets that coders could not recover, by burst length."""

from typing import TypedDict

import polars as pl

from atoll_analysis.tables.directions import TO_ISLAND, Direction, direction_of
from atoll_analysis.tables.lost_packets import longest_transit_ns, lost_packets, sent_in_measurement
from atoll_analysis.tables.probe_filter import is_change_probe
from atoll_analysis.tables.run_data import RunData
from atoll_analysis.tables.tables import Tables, with_chains
from atoll_analysis.tables.topology import CapturePair
from atoll_core.experiment.residence import residence_ns

GAP_PACKETS = 16
"""Gmin of RFC 3611, section 4.7.2: so many packets between two losses separate two bursts. A drop-tail queue that
overflows still takes small packets, and every packet that just fits, so that its losses are not all consecutive."""


class LossBursts(TypedDict):
    """What a link lost of the packets in one direction that came to it within the measurement."""

    first: str  # the capture before the link
    last: str  # the capture behind the link
    packets: int  # packets that came to the link
    lost: int  # packets that are missing in the capture behind it
    lengths: list[list[int]]  # pairs of a burst length (packets lost in a row) and how often it occurred, ascending
    longest: int  # longest burst, in packets
    mean: float | None  # mean burst length; None: nothing was lost
    # share of lost packets in bursts of at least two, as RFC 3611 delimits them; None: nothing was lost
    burst_share: float | None


def loss_bursts(tables: Tables, data: RunData, direction: Direction = TO_ISLAND) -> dict[str, LossBursts]:
    """Return the bursts of every link whose captures show them."""
    probes = is_change_probe(data) if data.changes else None
    by_link: dict[str, LossBursts] = {}
    for link, pair in data.topology.links_between_captures(tables.captures, direction):
        sent = sent_in_measurement(tables.packets(pair.first), data, probes, direction)
        numbers = (
            tables.scan("losses", direction).filter(pl.col("link") == link.box).select("number").collect()["number"]
        )
        by_link[link.box] = bursts(numbers, sent.select(pl.len()).collect(engine="streaming").item(), pair)
    return by_link


def residual_bursts(tables: Tables, data: RunData, direction: Direction = TO_ISLAND) -> dict[str, LossBursts]:
    """Return the bursts of packets that stayed lost behind the coders of each chain, by its name.

    Packets are compared at the taps outside the coders, so those that were recovered are none of them, and those that
    were lost uncoded are. Only of chains that no other box changes packets of, and that did not change.
    """
    ends = data.topology.ends(tables.captures, direction)
    if len(data.topology.periods) > 1 or data.window is None or ends is None:
        return {}
    by_chain: dict[str, LossBursts] = {}
    pair = CapturePair(*ends, ())
    for chain in filter(data.topology.is_coded, data.topology.chains):
        of_chain = pl.col("chain") == chain.name
        entered, arrived = (with_chains(tables, data, capture, direction).filter(of_chain) for capture in ends)
        sent = sent_in_measurement(entered, data, None, direction)
        longest_ns = sum(longest_transit_ns(direction_of(link, direction)) for link in data.topology.links_of(chain))
        longest_ns += residence_ns(data.network, data.experiment, chain)
        lost = [packets["number"] for packets in lost_packets(sent, arrived, longest_ns)]
        numbers = pl.concat([pl.Series("number", [], pl.Int64), *lost]).sort()
        by_chain[chain.name] = bursts(numbers, sent.select(pl.len()).collect(engine="streaming").item(), pair)
    return by_chain


def bursts(numbers: pl.Series, packets: int, pair: CapturePair) -> LossBursts:
    """Return the bursts of lost packets. ``numbers``: of the lost ones, ascending; ``packets``: of all."""
    received_between = numbers.diff() - 1  # between a lost packet and the one before
    is_begin = (received_between != 0).fill_null(value=True)
    lengths = is_begin.cast(pl.Int64).cum_sum().value_counts().group_by("count").len().sort("count")
    is_near = (received_between < GAP_PACKETS).fill_null(value=False)
    in_bursts = is_near | is_near.shift(-1, fill_value=False)
    lost = len(numbers)
    return LossBursts(
        first=pair.first,
        last=pair.last,
        packets=packets,
        lost=lost,
        lengths=[list(row) for row in lengths.iter_rows()],
        longest=max(lengths["count"], default=0),
        mean=lost / int(is_begin.sum()) if lost else None,
        burst_share=int(in_bursts.sum()) / lost if lost else None,
    )
