# SPDX-License-Identifier: Apache-2.0
"""The lower half of a drawing: switches with what is attached to them, and the trunks between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from atoll_core.lab.network import Network, Switch
from atoll_core.lab.port_ref import PortRef
from atoll_dashboards.diagram.labels import name_ranges, wrapped
from atoll_dashboards.diagram.svg import GREY, INK, PAPER, CardLine, Drawing, card_size, grey_line

_CARD_GAP = 36.0  # cards of one column, with room for a trunk's label
_TRUNK_DISTANCE = 24.0  # the distance of a trunk from the cards that it passes
_LINE_CHARACTERS = 46
_LEAST_TRUNK_WIDTH = 96.0  # least room for a trunk and its label


@dataclass(frozen=True, slots=True)
class _Card:
    """A switch with its position."""

    switch: Switch
    lines: list[CardLine]
    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> tuple[float, float]:
        """Where trunks lead to."""
        return self.x + self.width / 2, self.y + self.height / 2


def draw_fabric(
    drawing: Drawing, network: Network, notes: Mapping[str, Sequence[str]], left: float, top: float, right: float
) -> tuple[float, float]:
    """Draw the switches below ``top`` and from ``left`` to about ``right``; how far they reach.

    ``notes``: lines about switches, by name.
    """
    columns = [column for column in _sides(network) if column]
    lines = {
        switch.name: [*_lines(network, switch), *map(grey_line, notes.get(switch.name, ()))]
        for switch in network.switches
    }
    sizes = {name: card_size(text) for name, text in lines.items()}
    widths = [max(sizes[switch.name][0] for switch in column) for column in columns]
    heights = [sum(sizes[switch.name][1] + _CARD_GAP for switch in column) - _CARD_GAP for column in columns]
    free_width = right - left - sum(widths)
    gap = max(_LEAST_TRUNK_WIDTH, free_width / (len(columns) - 1)) if len(columns) > 1 else 0
    cards: dict[str, _Card] = {}
    x = left
    for column, width, height in zip(columns, widths, heights, strict=True):
        y = top + (max(heights) - height) / 2
        for switch in column:
            card_height = sizes[switch.name][1]
            cards[switch.name] = _Card(switch, lines[switch.name], x, y, width, card_height)
            y += card_height + _CARD_GAP
        x += width + gap
    _trunks(drawing, network, cards)
    for card in cards.values():
        drawing.card(card.x, card.y, card.width, card.height, card.lines, rim=INK, fill="#f3f5f7")
    return max(right, x - gap), top + max(heights)


def _sides(network: Network) -> tuple[list[Switch], list[Switch], list[Switch]]:
    """Switches with world hosts alone, those between, and those with island hosts alone."""
    attached_sides: dict[str, set[bool]] = {switch.name: set() for switch in network.switches}
    for host in network.hosts:
        attached_sides[host.interface.attached.switch].add(host.role.is_world)
    for legs in (legs for box in network.boxes for legs in box.pairs):
        attached_sides[legs.world.attached.switch] |= {True, False}
        attached_sides[legs.island.attached.switch] |= {True, False}
    sides: tuple[list[Switch], list[Switch], list[Switch]] = ([], [], [])
    for switch in network.switches:
        sides[{frozenset({True}): 0, frozenset({False}): 2}.get(frozenset(attached_sides[switch.name]), 1)].append(
            switch
        )
    return sides


def _lines(network: Network, switch: Switch) -> list[CardLine]:
    def is_here(port: PortRef) -> bool:
        return port.switch == switch.name

    hosts = [host.name for host in network.hosts if is_here(host.interface.cable_end)]
    learning = [
        (
            f"{learning_switch.name} ({learning_switch.uplink.port}, {learning_switch.rate}): ",
            [host.name for host in network.hosts_behind(learning_switch.name)],
        )
        for learning_switch in network.learning_switches
        if is_here(learning_switch.uplink)
    ]
    boxes = [
        box.name
        for box in network.boxes
        if any(is_here(leg.attached) for legs in box.pairs for leg in (legs.world, legs.island))
    ]
    delays = [box.name for box in network.delay_boxes if any(is_here(leg.attached) for leg in box.interfaces)]
    taps = [tap.name for tap in network.taps if is_here(tap.interface.attached) and not tap.physical]
    lines = [CardLine(switch.name, 12, bold=True), grey_line(f"{switch.driver}, dpid {switch.dpid}")]
    control = [f"port {network.control.port.port}"] if network.control and is_here(network.control.port) else []
    parts = (("", hosts), ("boxes: ", boxes), ("delay boxes: ", delays), ("taps: ", taps), ("control: ", control))
    for title, names in (*(part for part in parts if part[1]), *learning):
        lines += [CardLine(line, 10) for line in wrapped(title + name_ranges(names), _LINE_CHARACTERS)]
    return lines


def _trunks(drawing: Drawing, network: Network, cards: dict[str, _Card]) -> None:
    for trunk in network.trunks:
        start, end = cards[trunk.a.switch], cards[trunk.b.switch]
        label = [grey_line(f"{trunk.rate}"), grey_line(f"{trunk.a.port} - {trunk.b.port}")]
        points, (x, y) = _route(start, end, list(cards.values()))
        drawing.line(points, GREY, 1.6)
        width = max(line.width for line in label)
        drawing.card(x - width / 2 - 3, y - 14, width + 6, 28, label, rim=PAPER)


_Point = tuple[float, float]


def _route(start: _Card, end: _Card, cards: list[_Card]) -> tuple[list[_Point], _Point]:
    """Return the points of a trunk's line and the position of its label."""
    near, far = sorted((start, end), key=lambda card: (card.x, card.y))
    if near.x != far.x:
        x = (near.x + near.width + far.x) / 2
        fraction = (x - near.middle[0]) / (far.middle[0] - near.middle[0])
        return [near.middle, far.middle], (x, near.middle[1] + fraction * (far.middle[1] - near.middle[1]))
    if not any(card.x == near.x and near.y < card.y < far.y for card in cards):
        return [near.middle, far.middle], (near.middle[0], (near.y + near.height + far.y) / 2)
    bypass_x = near.x + near.width + _TRUNK_DISTANCE
    points = [near.middle, (bypass_x, near.middle[1]), (bypass_x, far.middle[1]), far.middle]
    return points, (bypass_x, (near.middle[1] + far.middle[1]) / 2)
