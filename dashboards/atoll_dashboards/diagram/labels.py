# SPDX-License-Identifier: Apache-2.0
"""Labels of a drawing for hosts, classes, chains and boxes."""

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network
from itertools import groupby

from atoll_core.experiment.experiment import Chain, Experiment
from atoll_core.lab.network import ChainBox, Host, HostRole, Network, Tap
from atoll_dashboards.diagram.svg import CardLine, grey_line

_ROLES = {
    HostRole.WORLD_SERVER: ("server", "servers"),
    HostRole.ISLAND_CLIENT: ("client", "clients"),
    HostRole.WORLD_SPECIAL: ("special", "special"),
    HostRole.WORLD_WHISTLE: ("whistle", "whistles"),
    HostRole.ISLAND_SPECIAL: ("special", "special"),
}


def name_ranges(names: Iterable[str]) -> str:
    """Format names, consecutive ones as a range with an en dash."""
    numbered = [
        (match[1], int(match[2])) if (match := re.fullmatch(r"(.*?)([0-9]+)", name)) else (name, -1) for name in names
    ]
    ranges: list[str] = []
    for _, group in groupby(enumerate(numbered), key=lambda item: (item[1][0], item[1][1] - item[0])):
        members = [stem if number < 0 else f"{stem}{number}" for _, (stem, number) in group]
        ranges += [f"{members[0]}\u2013{members[-1]}"] if len(members) > 2 else members
    return ", ".join(ranges)


def wrapped(text: str, most_characters: int) -> list[str]:
    """Wrap a text to lines of a maximum length, broken behind commas."""
    lines: list[str] = []
    for part in text.split(", "):
        if lines and len(lines[-1]) + len(part) + 2 <= most_characters:
            lines[-1] += f", {part}"
        else:
            lines.append(part)
    return [f"{line}," for line in lines[:-1]] + lines[-1:]


def end_label(title: str, hosts: Sequence[Host], prefix: IPv4Network) -> list[CardLine]:
    """Format one end of the lab: the number of hosts of each role (``22 servers``), and the network."""
    lines = [CardLine(title, 13, bold=True)]
    for role, (singular, plural) in _ROLES.items():
        names = [host.name for host in hosts if host.role is role]
        if len(names) == 1:
            lines.append(CardLine(f"{singular} {names[0]}", 10))
        elif names:
            lines.append(CardLine(f"{len(names)} {plural}", 10))
            lines += [grey_line(line) for line in wrapped(name_ranges(names), 16)]
    return [*lines, grey_line(str(prefix))]


def delay_label(network: Network, experiment: Experiment) -> list[CardLine]:
    """Format the delay boxes in use: number of classes, range of latencies."""
    used_classes = {name for _, name in experiment.latency}
    lines: list[CardLine] = []
    for box in network.delay_boxes:
        classes = [latency_class for latency_class in box.classes if latency_class.name in used_classes]
        if classes:
            least, most = (choose(latency_class.rtt for latency_class in classes) for choose in (min, max))
            rtts = f"RTT {least}" if least == most else f"RTT {least} to {most}"
            count = f"{len(classes)} classes" if len(classes) > 1 else "1 class"
            ports = [leg.attached for leg in box.interfaces]
            port_range = f"{ports[0]} to {ports[-1]}" if len(ports) > 1 else f"{ports[0]}"
            lines += [CardLine(box.name, 12, bold=True), CardLine(count, 10), CardLine(rtts, 10), grey_line(port_range)]
    return lines


def chain_label(chain: Chain, experiment: Experiment) -> CardLine:
    """Format the traffic of a chain, if there are several chains."""
    return CardLine(f"{chain.name}: {chain.carries}" if experiment.branches else "", 11, bold=True)


def box_label(box: ChainBox, experiment: Experiment) -> list[CardLine]:
    """Format a box: name, function, ports."""
    lines = [CardLine(box.name, 12, bold=True)]
    link = next((link for link in experiment.links if link.box == box.name), None)
    if link is None:
        lines.append(CardLine(box.kind.name, 10))
    elif link.to_island.rate == link.to_world.rate and link.to_island.delay == link.to_world.delay:
        lines += [CardLine(str(link.to_island.rate), 10), CardLine(str(link.to_island.delay), 10)]
    else:
        directions = ((link.to_island, "→"), (link.to_world, "←"))
        lines += [CardLine(f"{direction.rate}, {direction.delay} {sign}", 10) for direction, sign in directions]
    world, island = box.world.attached, box.island.attached
    return [*lines, grey_line(f"{world}, {island.port if world.switch == island.switch else island}")]


def tap_label(tap: Tap) -> list[CardLine]:
    """Format a tap: name, capture host, port."""
    position = f"in cable {tap.interface.attached}" if tap.physical else str(tap.interface.attached)
    direction = ["to the island only"] if tap.to_island_only else []
    return [CardLine(tap.name, 10), *map(grey_line, (tap.host, position, *direction))]
