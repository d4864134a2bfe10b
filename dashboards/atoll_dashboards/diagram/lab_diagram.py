# SPDX-License-Identifier: Apache-2.0
"""Draw a laboratory and its chains as SVG, fit for a paper. Pure.

Above, a lane for each chain, from the world to the island: boxes in order, taps on the line, delay classes before it.
A box that several chains share spans their lanes. Below, the switches with what is attached to them, and the trunks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_dashboards.diagram.fabric_diagram import draw_fabric
from atoll_dashboards.diagram.labels import carried_words, delay_words, hosts_words, name_ranges
from atoll_dashboards.diagram.lanes import LaneColumn, arrange
from atoll_dashboards.diagram.svg import FAINT, GREY, LANES, CardLine, Drawing, card_size

_MARGIN = 24.0
_LANE, _LANES = 84.0, 112.0  # height of a lane alone, and of one that has a caption
_GAP = 26.0  # between columns
_TAP = 6.0  # radius


@dataclass(frozen=True, slots=True)
class _Room:
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
    columns = arrange(network, experiment)
    world = [
        CardLine("World", 13, bold=True),
        *hosts_words(network.world_hosts),
        CardLine(str(network.world), 9, colour=GREY),
    ]
    island = [
        CardLine("Island", 13, bold=True),
        *hosts_words(network.island_hosts),
        CardLine(str(network.island), 9, colour=GREY),
    ]
    delay = delay_words(network, experiment)
    sides = [card_size(lines)[0] for lines in (world, delay, island)]
    notes = [carried_words(chain, experiment) for chain in chains]
    gap = max(
        _GAP,
        (max((note.width for note in notes), default=0) - sum(each.width for each in columns)) / (len(columns) + 1),
    )
    left = _MARGIN + sides[0] + (_GAP + sides[1] if delay else 0)
    right = left + sum(column.width + gap for column in columns) + gap
    tallest = max(card_size(lines)[1] for lines in (world, delay, island))
    lane = _LANES if experiment.branches else _LANE
    height = max(lane * len(chains), tallest)
    middle = _MARGIN + 34 + height / 2
    room = _Room(left, right, middle - lane * len(chains) / 2, lane)

    drawing.text(_MARGIN, _MARGIN + 12, CardLine(drawing.title, 15, bold=True))
    for number, note in enumerate(notes):
        colour = LANES[number % len(LANES)]
        drawing.line([(_MARGIN + sides[0], room.y(number)), (right, room.y(number))], colour, 2.6)
        drawing.text(left + 8, room.y(number) - 42, CardLine(note.text, note.size, bold=True, colour=colour))
    _columns(drawing, columns, room, gap)
    for lines, x, width in (
        (world, _MARGIN, sides[0]),
        (delay, _MARGIN + sides[0] + _GAP, sides[1]),
        (island, right, sides[2]),
    ):
        if lines:
            drawing.card(x, middle - height / 2, width, height, lines)
    unused = _unused(network, experiment)
    bottom = middle + height / 2 + 18
    if unused:
        drawing.text(left, bottom, CardLine(unused, 10, colour=GREY))
        bottom += 14
    drawing.line([(_MARGIN, bottom), (right + sides[2], bottom)], FAINT, 1)
    width, height = draw_fabric(drawing, network, on_switches or {}, _MARGIN, bottom + 14, right + sides[2])
    return drawing.render(width + _MARGIN, height + _MARGIN)


def _columns(drawing: Drawing, columns: list[LaneColumn], room: _Room, gap: float) -> None:
    x = room.left + gap
    for column in columns:
        for first, last in column.runs:
            if column.box:
                width, height = column.width, max(column.height, room.lane * (last - first) + column.height)
                top = (room.y(first) + room.y(last)) / 2 - height / 2
                drawing.card(x, top, width, height, column.lines)
            else:
                for lane in range(first, last + 1):
                    drawing.circle(x + column.width / 2, room.y(lane), _TAP, LANES[lane % len(LANES)])
                    y = room.y(lane) + _TAP + 3
                    for line in column.lines:
                        y += line.height
                        drawing.text(x + column.width / 2, y - line.height * 0.28, line, anchor="middle")
        x += column.width + gap


def _unused(network: Network, experiment: Experiment) -> str:
    """Return boxes and taps of the lab that no chain uses."""
    used = {hop for chain in experiment.chains for hop in chain.hops}
    idle = [each.name for each in (*network.boxes, *network.taps) if each.name not in used]
    return f"in no chain: {name_ranges(idle)}" if idle else ""
