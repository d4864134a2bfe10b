# SPDX-License-Identifier: Apache-2.0
"""Arrange boxes and taps of chains in the columns of a drawing, with the lanes that each spans."""

from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_dashboards.diagram.labels import box_words, tap_words
from atoll_dashboards.diagram.svg import CardLine, card_size

_Key = tuple[str, int]  # a box or tap, and 0; or the lane whose own it is


@dataclass(frozen=True, slots=True)
class LaneColumn:
    """A box or a tap: its label, and the runs of neighbouring lanes (first, last) that pass it."""

    box: bool
    lines: list[CardLine]
    width: float
    height: float
    runs: list[tuple[int, int]]


def arrange(network: Network, experiment: Experiment) -> list[LaneColumn]:
    """The columns from world to island.

    A chain that passes boxes in another order than those before it has columns of its own.
    """
    lanes = [chain.hops for chain in (experiment.chain, *experiment.branches)]
    keys: list[list[_Key]] = []
    for lane, hops in enumerate(lanes):
        shared = [*keys, [(hop, 0) for hop in hops]]
        keys = shared if _order(shared) is not None else [*keys, [(hop, lane) for hop in hops]]
    boxes = {box.name: box for box in network.boxes}
    columns: list[LaneColumn] = []
    for key in _order(keys) or ():
        lines = box_words(boxes[key[0]], experiment) if key[0] in boxes else tap_words(network.tap(key[0]))
        width, height = card_size(lines, margin=8)
        passing = [lane for lane, hops in enumerate(keys) if key in hops]
        columns.append(LaneColumn(key[0] in boxes, lines, width, height, _runs(passing)))
    return columns


def _order(lanes: Iterable[list[_Key]]) -> list[_Key] | None:
    """All keys in an order that every lane has; None when there is none."""
    before: dict[_Key, dict[_Key, None]] = {}  # ordered sets: the same drawing in every process
    for hops in lanes:
        for hop in hops:
            before.setdefault(hop, {})
        for one, other in pairwise(hops):
            before[other][one] = None
    try:
        return list(TopologicalSorter(before).static_order())
    except CycleError:
        return None


def _runs(lanes: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for lane in lanes:
        if runs and runs[-1][1] == lane - 1:
            runs[-1] = (runs[-1][0], lane)
        else:
            runs.append((lane, lane))
    return runs
