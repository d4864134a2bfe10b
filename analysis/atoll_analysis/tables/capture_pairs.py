# SPDX-License-Identifier: Apache-2.0
"""Neighbouring captures of a chain between which all boxes conserve packets, and the boxes between them."""

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import NamedTuple

from atoll_analysis.tables.run_data import RunData
from atoll_core.experiment.experiment import Chain, Link


class CapturePair(NamedTuple):
    """Two captures, from world to island, and the boxes that packets pass between them."""

    first: str
    last: str
    boxes: tuple[str, ...]


def capture_pairs(data: RunData, captures: Collection[str]) -> Iterator[CapturePair]:
    """Return pairs of ``captures`` with the boxes between them, all of which conserve packets.

    If one chain carries everything, all neighbouring captures. Otherwise each sees the packets of several chains, and
    only both ports of a link see the same.
    """
    chains = {chain.hops for chain in data.topology.chains}
    if len(chains) > 1:
        for link in data.topology.links:
            if {f"into-{link.box}", f"link-{link.box}"} <= set(captures):
                yield CapturePair(f"into-{link.box}", f"link-{link.box}", (link.box,))
        return
    conserving = {box.name for box in data.network.boxes if box.conserves}
    for (first, _), (last, boxes) in pairwise(_observers(data, data.topology.chains[0], captures)):
        if conserving.issuperset(boxes):
            yield CapturePair(first, last, boxes)


def around_links(data: RunData, captures: Collection[str]) -> Iterator[tuple[Link, CapturePair]]:
    """Return the links that are the only one between two such captures, each with its pair."""
    links = {link.box: link for link in data.topology.links}
    for pair in capture_pairs(data, captures):
        passed = [links[box] for box in pair.boxes if box in links]
        if len(passed) == 1:
            yield passed[0], pair


def _observers(data: RunData, chain: Chain, captures: Collection[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The captures on a chain, from world to island, each with the boxes since the one before."""
    boxes = {box.name for box in data.network.boxes}
    links = {link.box for link in data.topology.links}
    stations: list[str] = []
    for hop in chain.hops:
        stations += [f"into-{hop}", hop, f"link-{hop}"] if hop in links else [data.topology.tap_captures.get(hop, hop)]
    passed: list[str] = []
    for station in stations:
        if station in boxes:
            passed.append(station)
        elif station in captures:
            yield station, tuple(passed)
            passed = []
