# SPDX-License-Identifier: Apache-2.0
"""The cutover between two versions of an experiment's chains on the same switches.

A packet must take the old version of its chain or the new one, never a mix. So in each direction there is one cutover
point: the edge, or the last routed box of the part with which both versions begin. Behind it, frames that the two
versions forward differently must be distinguishable.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product, takewhile

from atoll_apps.compiler.flow_compiler import CompiledEntry
from atoll_apps.segments.chain_routes import BoxTraversal, ChainRoute, routes
from atoll_core.experiment.experiment import Experiment, Protocol
from atoll_core.experiment.host_groups import Sides
from atoll_core.lab.network import Network, Tap
from atoll_core.plan.tag_layout import BoxTag, Direction, GapTag, Layout

_Overlap = tuple[str, str]  # an old chain and a new one


@dataclass(frozen=True, slots=True)
class CutoverPoints:
    """The pairs of an old and a new chain whose entries match the same packets, and the cutover point of each.

    ``box_at``: the routed box (None: the edge, for frames from hosts or a delay box). ``by_host``: latencies change,
    not the chain. The cutover points are then those where packets leave their world host, and the chain towards it.
    """

    overlaps: frozenset[_Overlap]
    box_at: dict[tuple[_Overlap, Direction], str | None]
    by_host: bool

    def is_cutover(self, new: CompiledEntry, old: CompiledEntry) -> bool:
        """Whether packets change from the old entry to the new one here, at their cutover point."""
        overlap = old.segment.gap_id.chain, new.segment.gap_id.chain
        return self._is_cutover(new, overlap) and self._is_cutover(old, overlap)

    def at_cutover(self, compiled: CompiledEntry, *, new: bool) -> bool:
        """Whether an entry is at its chain's cutover point."""
        chain = compiled.segment.gap_id.chain
        return any(
            self._is_cutover(compiled, overlap) for overlap in self.overlaps if overlap[1 if new else 0] == chain
        )

    def _is_cutover(self, compiled: CompiledEntry, overlap: _Overlap) -> bool:
        segment = compiled.segment
        if self.by_host:
            from_host = segment.box is None and segment.delayed_by is None
            to_island = segment.gap_id.direction is Direction.TO_ISLAND
            return compiled.at_start and (from_host if to_island else segment.gap_id.gap == 0)
        return (
            compiled.at_start
            and segment.gap_id.gap >= 0
            and segment.box == self.box_at[overlap, segment.gap_id.direction]
        )


def cutover_points(network: Network, old: Experiment, before: Layout, new: Experiment, after: Layout) -> CutoverPoints:
    """The cutover point of each chain, for the layouts ``before`` and ``after``."""
    overlaps = overlapping_chains(network, old, new)
    if old.latency != new.latency:
        return CutoverPoints(overlaps, {}, by_host=True)
    old_routes = {route.chain: route for route in routes(network, old, before)}
    new_routes = {route.chain: route for route in routes(network, new, after)}
    box_at: dict[tuple[_Overlap, Direction], str | None] = {}
    for group in _connected(overlaps):
        paths = [(old_routes[name], before) for name in dict.fromkeys(name for name, _ in group)]
        paths += [(new_routes[name], after) for name in dict.fromkeys(name for _, name in group)]
        for direction in Direction:
            box = _cutover_box([_stations(route, layout, direction) for route, layout in paths])
            box_at |= {(overlap, direction): box for overlap in group}
    return CutoverPoints(overlaps, box_at, by_host=False)


def overlapping_chains(network: Network, old: Experiment, new: Experiment) -> frozenset[_Overlap]:
    """Pairs of an old and a new chain, the entries of one of which match packets of the other.

    In these pairs the chain of higher precedence would take packets that the other carries.
    """
    if not (old.branches or new.branches):
        return frozenset({(old.chain.name, new.chain.name)})
    overlaps: set[_Overlap] = set()
    for (world, island), protocol in product(Sides(network, old, new).blocks(), (*Protocol, None)):
        traffic = world[0].address, island[0].address, protocol
        old_chain, new_chain = old.carrier(*traffic), new.carrier(*traffic)
        for chain in new.chains:
            if chain.carries.precedence >= old_chain.carries.precedence and chain.carries.matches(*traffic):
                overlaps.add((old_chain.name, chain.name))
        for chain in old.chains:
            if chain.carries.precedence >= new_chain.carries.precedence and chain.carries.matches(*traffic):
                overlaps.add((chain.name, new_chain.name))
    return frozenset(overlaps)


def inherited_layout(network: Network, old: Experiment, layout: Layout, new: Experiment) -> Layout:
    """The part of the old layout that a new version keeps: boxes and gaps with which its chains still begin or end."""
    overlaps = overlapping_chains(network, old, new)
    old_chains = {chain.name: chain for chain in old.chains}
    box_names = {box.name for box in network.boxes}
    gaps: list[GapTag] = []
    boxes: list[BoxTag] = []
    spare: list[tuple[str, str]] = []
    for chain in new.chains:
        partners = sorted(old_name for old_name, new_name in overlaps if new_name == chain.name)
        if not partners:
            continue
        partner = old_chains[chain.name if chain.name in partners else partners[0]]
        old_boxes, new_boxes = ([hop for hop in version.hops if hop in box_names] for version in (partner, chain))
        head = _common_length(old_boxes, new_boxes)
        tail = min(_common_length(old_boxes[::-1], new_boxes[::-1]), min(len(old_boxes), len(new_boxes)) - head)
        shared_boxes = {*new_boxes[:head], *new_boxes[len(new_boxes) - tail :]}
        # Gap g is before the box of index g: it is kept if the boxes on both its sides are kept; edges always are.
        new_gaps = {-1: -1, **{gap: gap for gap in range(head)}}
        new_gaps |= {len(old_boxes) - gap: len(new_boxes) - gap for gap in range(tail)}
        if partner.hops == chain.hops:
            new_gaps |= {gap: gap for gap in range(len(new_boxes) + 1)}
        gaps += (
            GapTag(chain.name, tag.direction, new_gaps[tag.gap], tag.vlan)
            for tag in layout.gaps
            if tag.chain == partner.name and tag.gap in new_gaps
        )
        tags = (tag for tag in layout.boxes if tag.chain == partner.name and tag.box in shared_boxes)
        boxes += (BoxTag(chain.name, tag.box, tag.vlan) for tag in tags)
        spare += ((chain.name, box) for name, box in layout.spare if name == partner.name and box in shared_boxes)
    return Layout(tuple(gaps), tuple(boxes), tuple(spare))


def _common_length(a: list[str], b: list[str]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))))


def _connected(overlaps: Iterable[_Overlap]) -> list[list[_Overlap]]:
    """Groups of pairs that have chains in common, directly or through others."""
    groups: list[list[_Overlap]] = []
    for old_chain, new_chain in sorted(overlaps):
        connected = [group for group in groups if any(old_chain == old or new_chain == new for old, new in group)]
        separate = [group for group in groups if group not in connected]
        groups = [*separate, [(old_chain, new_chain), *(overlap for group in connected for overlap in group)]]
    return groups


_Station = tuple[BoxTraversal | None, int | None, tuple[Tap, ...]]


def _stations(route: ChainRoute, layout: Layout, direction: Direction) -> list[_Station]:
    """Each gap with the box behind it, in the order of the packets' path."""
    box_count = len(route.traversals)
    stations: list[_Station] = []
    for gap in range(box_count + 1) if direction is Direction.TO_ISLAND else range(box_count, -1, -1):
        index = gap if direction is Direction.TO_ISLAND else gap - 1
        box = route.traversals[index] if 0 <= index < box_count else None
        stations.append((box, layout.gap_vlan(route.chain, direction, gap), route.gaps[gap]))
    return stations


def _cutover_box(paths: list[list[_Station]]) -> str | None:
    """The last routed box of the common beginning of all paths."""
    cutover_box: str | None = None
    for stations in zip(*paths, strict=False):
        box = stations[0][0]
        if box is None or any(station != stations[0] for station in stations):
            break
        if box.routed:
            cutover_box = box.name
    return cutover_box
