# SPDX-License-Identifier: Apache-2.0
"""Paths between hosts by the description: base RTTs, and times in which a link was blocked. Pure."""

from collections.abc import Iterable, Sequence
from itertools import pairwise, product

from atoll_core.experiment.experiment import Chain, Experiment, Link, LinkDirection, Protocol
from atoll_core.experiment.residence import residence_ns
from atoll_core.lab.network import Host, Network

Interval = tuple[float, float]
"""Begin and end, in seconds from the start of the measurement."""


def base_rtts_ms(network: Network, experiment: Experiment) -> tuple[float, float] | None:
    """Return the shortest and the longest base RTT of all paths, the longest one with all that can delay a packet."""
    terrestrial = {
        delay.name: (delay.rtt.ns, 2 * delay.jitter.ns) for box in network.delay_boxes for delay in box.classes
    }
    least_ms: list[float] = []
    most_ms: list[float] = []
    for state in experiment.states:
        latency = dict(state.latency)
        for world in network.world_hosts:
            rtt_ns, jitter_ns = terrestrial.get(latency.get(world.name, ""), (0, 0))
            for chain in carriers(state, (world,), network.island_hosts, Protocol):
                directions = _directions(links_of(experiment, chain))
                boxes_ns = 2 * residence_ns(network, experiment, chain)
                least_ms.append((rtt_ns + sum(direction.delays[0].ns for direction in directions)) / 1e6)
                most_ms.append((rtt_ns + jitter_ns + boxes_ns) / 1e6 + sum(map(_longest_ms, directions)))
    return (min(least_ms), max(most_ms)) if least_ms else None


def _directions(links: Iterable[Link]) -> list[LinkDirection]:
    return [direction for link in links for direction in (link.to_island, link.to_world)]


def _longest_ms(direction: LinkDirection) -> float:
    jitter_ns = direction.jitter.bound.ns if direction.jitter else 0
    return (direction.delays[1].ns + jitter_ns + direction.full_queue.ns) / 1e6


def carriers(
    state: Experiment, worlds: Sequence[Host], islands: Sequence[Host], protocols: Iterable[Protocol]
) -> tuple[Chain, ...]:
    """Return the chains of one instant that carry packets of these protocols between some of these hosts."""
    if not state.branches:
        return (state.chain,)
    pairs = product(worlds, islands, protocols)
    return tuple(dict.fromkeys(state.carrier(world.address, island.address, kind) for world, island, kind in pairs))


def links_of(experiment: Experiment, chain: Chain) -> tuple[Link, ...]:
    """The satellite links of a chain."""
    return tuple(link for link in experiment.links_over_time if link.box in chain.hops)


def blocked_s(links: Iterable[Link], offset_s: float, end_s: float) -> tuple[Interval, ...]:
    """Return when a direction of a link was blocked by its trace, which began ``offset_s`` after the measurement."""
    blocked = [span for direction in _directions(links) for span in _blocked(direction)]
    spans = [(max(0.0, offset_s + begin), min(end_s, offset_s + end)) for begin, end in blocked]
    return tuple(sorted((begin, end) for begin, end in spans if begin < end))


def _blocked(direction: LinkDirection) -> Iterable[Interval]:
    rows = direction.trace.rows if direction.trace else ()
    for row, following in pairwise((*rows, None)):
        if row is not None and (row.blocked or row.loss == 1):
            yield row.t.s, following.t.s if following else float("inf")
