# SPDX-License-Identifier: Apache-2.0
"""Labels of a drawing for hosts, classes, chains and boxes."""

import re
from collections.abc import Iterable
from itertools import groupby

from atoll_core.experiment.experiment import Chain, Experiment
from atoll_core.lab.network import ChainBox, Host, HostRole, Network, Tap
from atoll_core.lab.port_ref import PortRef
from atoll_dashboards.diagram.svg import GREY, CardLine

_ROLES = {
    HostRole.WORLD_SERVER: ("server", "servers"),
    HostRole.ISLAND_CLIENT: ("client", "clients"),
    HostRole.WORLD_SPECIAL: ("special", "special"),
    HostRole.WORLD_WHISTLE: ("whistle", "whistles"),
    HostRole.ISLAND_SPECIAL: ("special", "special"),
}
_SMALL = 9.0


def name_ranges(names: Iterable[str]) -> str:
    """Format names, consecutive ones as a range with an en dash."""
    numbered = [
        (found[1], int(found[2])) if (found := re.fullmatch(r"(.*?)([0-9]+)", name)) else (name, -1) for name in names
    ]
    words: list[str] = []
    for (stem, _), run in groupby(enumerate(numbered), key=lambda each: (each[1][0], each[1][1] - each[0])):
        numbers = [number for _, (_, number) in run]
        if numbers[0] < 0:
            words.append(stem)
        else:
            first, last = f"{stem}{numbers[0]}", f"{stem}{numbers[-1]}"
            words.append(
                first
                if first == last
                else f"{first}\u2013{last}"
                if numbers[-1] - numbers[0] > 1
                else f"{first}, {last}"
            )
    return ", ".join(words)


def wrapped(words: str, most: int) -> list[str]:
    """Wrap words to lines of a maximum length, broken behind commas."""
    lines: list[str] = []
    for word in words.split(", "):
        if lines and len(lines[-1]) + len(word) + 2 <= most:
            lines[-1] += f", {word}"
        else:
            lines.append(word)
    return [f"{line}," for line in lines[:-1]] + lines[-1:]


def hosts_words(hosts: Iterable[Host]) -> list[CardLine]:
    """Format the number of hosts of each role: ``22 servers``."""
    listed = list(hosts)
    lines: list[CardLine] = []
    for role, (one, many) in _ROLES.items():
        named = [host.name for host in listed if host.role is role]
        if named:
            alone = len(named) == 1
            lines.append(CardLine(f"{one} {named[0]}" if alone else f"{len(named)} {many}", 10))
            lines += [] if alone else [CardLine(line, _SMALL, colour=GREY) for line in wrapped(name_ranges(named), 16)]
    return lines


def delay_words(network: Network, experiment: Experiment) -> list[CardLine]:
    """Format the delay boxes in use: number of classes, range of latencies."""
    used = {name for _, name in experiment.latency}
    lines: list[CardLine] = []
    for box in network.delay_boxes:
        classes = [known for known in box.classes if known.name in used]
        if classes:
            least, most = (choose(known.rtt for known in classes) for choose in (min, max))
            span = f"RTT {least}" if least == most else f"RTT {least} to {most}"
            several = f"{len(classes)} classes" if len(classes) > 1 else "1 class"
            lines += [CardLine(box.name, 12, bold=True), CardLine(several, 10), CardLine(span, 10)]
            ports = [leg.attached for leg in box.interfaces]
            several = f"{ports[0]} to {ports[-1]}" if len(ports) > 1 else f"{ports[0]}"
            lines.append(CardLine(several, _SMALL, colour=GREY))
    return lines


def carried_words(chain: Chain, experiment: Experiment) -> CardLine:
    """Format the traffic of a chain, if there are several chains."""
    if not experiment.branches:
        return CardLine("", 11)
    return CardLine(f"{chain.name}: {chain.carries}", 11, bold=True)


def box_words(box: ChainBox, experiment: Experiment) -> list[CardLine]:
    """Format a box: name, function, ports."""
    lines = [CardLine(box.name, 12, bold=True)]
    link = next((link for link in experiment.links if link.box == box.name), None)
    if link is None:
        lines.append(CardLine(box.kind.name, 10))
    elif link.to_island.rate == link.to_world.rate and link.to_island.delay == link.to_world.delay:
        lines += [CardLine(str(link.to_island.rate), 10), CardLine(str(link.to_island.delay), 10)]
    else:
        lines += [
            CardLine(f"{way.rate}, {way.delay} {sign}", 10)
            for way, sign in ((link.to_island, "→"), (link.to_world, "←"))
        ]
    return [*lines, CardLine(_ports(box.world.attached, box.island.attached), _SMALL, colour=GREY)]


def tap_words(tap: Tap) -> list[CardLine]:
    """Format a tap: name, capture host, port."""
    where = f"in cable {tap.interface.attached}" if tap.physical else str(tap.interface.attached)
    seen = [CardLine("to the island only", _SMALL, colour=GREY)] if tap.to_island_only else []
    return [
        CardLine(tap.name, 10),
        CardLine(tap.host, _SMALL, colour=GREY),
        CardLine(where, _SMALL, colour=GREY),
        *seen,
    ]


def _ports(one: PortRef, other: PortRef) -> str:
    return f"{one}, {other.port}" if one.switch == other.switch else f"{one}, {other}"
