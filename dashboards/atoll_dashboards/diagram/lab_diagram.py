# SPDX-License-Identifier: Apache-2.0
"""Draw a laboratory and its chains as SVG, fit for a paper. Pure.

Above, a lane for each chain, from the world to the island: boxes in order, taps on the line, delay classes before it.
A box that several chains share spans their lanes. Below, the switches with what is attached to them, and the trunks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_dashboards.diagram.fabric_diagram import draw_fabric
from atoll_dashboards.diagram.labels import box_label, chain_label, delay_label, end_label, name_ranges, tap_label
from atoll_dashboards.diagram.svg import FAINT, GREY, LANES, CardLine, Drawing, card_size

_MARGIN = 24.0
_LANE_HEIGHT, _CAPTIONED_LANE_HEIGHT = 84.0, 112.0  # height of a lane alone, and of one that has a caption
_COLUMN_GAP = 26.0
_TAP_RADIUS = 6.0

_HopKey = tuple[str, int]  # a box or tap, and 0; or the lane that has it alone


@dataclass(frozen=True, slots=True)
class _Column:
    """A box or a tap: its label, and the runs of neighbouring lanes (first, last) that pass it."""

    is_box: bool
    lines: list[CardLine]
    width: float
    height: float
    lane_ranges: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _LaneArea:
    """The area of the lanes."""

    left: float
    right: float
    top: float
    lane: float  # height of each

    def y(self, lane: int) -> float:
        """The middle of a lane."""
        return self.top + self.lane * (lane + 0.5)


def graph(network: Network, experiment: Experiment, on_switches: Mapping[str, Sequence[str]] | None = None) -> str:
    """Return the drawing as SVG text. ``on_switches``: lines about switches by name, as of their entries."""
    drawing = Drawing(f"Experiment {experiment.name}, lab {network.name}")
    chains = (experiment.chain, *experiment.branches)
    columns = _arrange(network, experiment)
    world = end_label("World", network.world_hosts, network.world)
    island = end_label("Island", network.island_hosts, network.island)
    delay = delay_label(network, experiment)
    sides = [card_size(lines)[0] for lines in (world, delay, island)]
    captions = [chain_label(chain, experiment) for chain in chains]
    free_width = max(caption.width for caption in captions) - sum(column.width for column in columns)
    gap = max(_COLUMN_GAP, free_width / (len(columns) + 1))
    left = _MARGIN + sides[0] + (_COLUMN_GAP + sides[1] if delay else 0)
    right = left + sum(column.width + gap for column in columns) + gap
    tallest = max(card_size(lines)[1] for lines in (world, delay, island))
    lane = _CAPTIONED_LANE_HEIGHT if experiment.branches else _LANE_HEIGHT
    height = max(lane * len(chains), tallest)
    middle = _MARGIN + 34 + height / 2
    area = _LaneArea(left, right, middle - lane * len(chains) / 2, lane)

    drawing.text(_MARGIN, _MARGIN + 12, CardLine(drawing.title, 15, bold=True))
    for number, caption in enumerate(captions):
        y, colour = area.y(number), LANES[number % len(LANES)]
        drawing.line([(_MARGIN + sides[0], y), (right, y)], colour, 2.6)
        drawing.text(left + 8, y - 42, replace(caption, colour=colour))
    _draw_columns(drawing, columns, area, gap)
    for lines, x, width in (
        (world, _MARGIN, sides[0]),
        (delay, _MARGIN + sides[0] + _COLUMN_GAP, sides[1]),
        (island, right, sides[2]),
    ):
        if lines:
            drawing.card(x, middle - height / 2, width, height, lines)
    bottom = middle + height / 2 + 18
    used_hops = {hop for chain in experiment.chains for hop in chain.hops}
    if unused := [hop.name for hop in (*network.boxes, *network.taps) if hop.name not in used_hops]:
        drawing.text(left, bottom, CardLine(f"in no chain: {name_ranges(unused)}", 10, colour=GREY))
        bottom += 14
    drawing.line([(_MARGIN, bottom), (right + sides[2], bottom)], FAINT, 1)
    width, height = draw_fabric(drawing, network, on_switches or {}, _MARGIN, bottom + 14, right + sides[2])
    return drawing.render(width + _MARGIN, height + _MARGIN)


def _arrange(network: Network, experiment: Experiment) -> list[_Column]:
    """The columns from world to island.

    A chain that passes boxes in another order than those before it has columns of its own.
    """
    keys: list[list[_HopKey]] = []
    for lane, hops in enumerate(chain.hops for chain in (experiment.chain, *experiment.branches)):
        shared = [*keys, [(hop, 0) for hop in hops]]
        keys = shared if _order(shared) is not None else [*keys, [(hop, lane) for hop in hops]]
    boxes = {box.name: box for box in network.boxes}
    columns: list[_Column] = []
    for key in _order(keys) or ():
        lines = box_label(boxes[key[0]], experiment) if key[0] in boxes else tap_label(network.tap(key[0]))
        width, height = card_size(lines, margin=8)
        passing = [lane for lane, hops in enumerate(keys) if key in hops]
        columns.append(_Column(key[0] in boxes, lines, width, height, _lane_ranges(passing)))
    return columns


def _order(lanes: Iterable[list[_HopKey]]) -> list[_HopKey] | None:
    """All keys in an order that every lane has; None when there is none."""
    predecessors: dict[_HopKey, dict[_HopKey, None]] = {}  # ordered sets: the same drawing in every process
    for hops in lanes:
        for hop in hops:
            predecessors.setdefault(hop, {})
        for hop, next_hop in pairwise(hops):
            predecessors[next_hop][hop] = None
    try:
        return list(TopologicalSorter(predecessors).static_order())
    except CycleError:
        return None


def _lane_ranges(lanes: list[int]) -> list[tuple[int, int]]:
    lane_ranges: list[tuple[int, int]] = []
    for lane in lanes:
        if lane_ranges and lane_ranges[-1][1] == lane - 1:
            lane_ranges[-1] = (lane_ranges[-1][0], lane)
        else:
            lane_ranges.append((lane, lane))
    return lane_ranges


def _draw_columns(drawing: Drawing, columns: list[_Column], area: _LaneArea, gap: float) -> None:
    x = area.left + gap
    for column in columns:
        for first, last in column.lane_ranges:
            if column.is_box:
                width, height = column.width, max(column.height, area.lane * (last - first) + column.height)
                top = (area.y(first) + area.y(last)) / 2 - height / 2
                drawing.card(x, top, width, height, column.lines)
            else:
                for lane in range(first, last + 1):
                    drawing.circle(x + column.width / 2, area.y(lane), _TAP_RADIUS, LANES[lane % len(LANES)])
                    y = area.y(lane) + _TAP_RADIUS + 3
                    for line in column.lines:
                        y += line.height
                        drawing.text(x + column.width / 2, y - line.height * 0.28, line, anchor="middle")
        x += column.width + gap
