# SPDX-License-Identifier: Apache-2.0
"""Two versions of an experiment's chains on the same switches: which traffic moves, and where its packets turn.

A packet must see the old version of its chain or the new one, never a mix. So in each direction there is one place
where packets turn from one to the other: the edge, or the last routed box of the part both versions begin with. Behind
it, whatever the two send on differently must be told apart.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product, takewhile

from atoll_apps.compiler.flow_compiler import CompiledEntry
from atoll_apps.segments.chain_routes import BoxTraversal, ChainRoute, routes
from atoll_core.experiment.experiment import Chain, Experiment, Protocol
from atoll_core.lab.host_groups import Sides
from atoll_core.lab.network import Network, Tap
from atoll_core.plan.tag_layout import BoxTag, Direction, GapTag, Layout

_Meeting = tuple[str, str]  # an old chain and a new one


@dataclass(frozen=True, slots=True)
class CutoverPoints:
    """Which old and new chains' entries may meet the same packets, and where those turn.

    ``at``: by which routed box (None: at the edge, coming from hosts or a delay box). ``by_host``: instead, packets
    turn where they leave their world host, and where they leave the chain for it: its latency changes, not the chain.
    """

    meetings: frozenset[_Meeting]
    at: dict[tuple[_Meeting, Direction], str | None]
    by_host: bool

    def turns(self, new: CompiledEntry, old: CompiledEntry) -> bool:
        """Whether this is where packets turn from the old entry to the new one."""
        meeting = old.leg.stretch.chain, new.leg.stretch.chain
        return self._stands_at_turn(new, meeting) and self._stands_at_turn(old, meeting)

    def at_turn(self, laid: CompiledEntry, *, new: bool) -> bool:
        """Whether an entry takes packets at the place where its chain's packets turn."""
        chain = laid.leg.stretch.chain
        return any(
            self._stands_at_turn(laid, meeting) for meeting in self.meetings if meeting[1 if new else 0] == chain
        )

    def _stands_at_turn(self, laid: CompiledEntry, meeting: _Meeting) -> bool:
        leg = laid.leg
        if self.by_host:
            from_host = leg.box is None and leg.vlan is None
            return laid.first and (from_host if leg.stretch.direction is Direction.TO_ISLAND else leg.stretch.gap == 0)
        return laid.first and leg.stretch.gap >= 0 and leg.box == self.at[meeting, leg.stretch.direction]


def cutover_points(network: Network, old: Experiment, before: Layout, new: Experiment, after: Layout) -> CutoverPoints:
    """Where the packets of each chain turn, the two versions being laid out so."""
    meetings = meeting_chains(network, old, new)
    if old.latency != new.latency:
        return CutoverPoints(meetings, {}, by_host=True)
    old_routes = {route.chain: route for route in routes(network, old, before)}
    new_routes = {route.chain: route for route in routes(network, new, after)}
    at: dict[tuple[_Meeting, Direction], str | None] = {}
    for group in _connected(meetings):
        ways = [(old_routes[name], before) for name in dict.fromkeys(one for one, _ in group)]
        ways += [(new_routes[name], after) for name in dict.fromkeys(other for _, other in group)]
        for direction in Direction:
            turn = _turn([_stations(route, layout, direction) for route, layout in ways])
            at |= {(meeting, direction): turn for meeting in group}
    return CutoverPoints(meetings, at, by_host=False)


def meeting_chains(network: Network, old: Experiment, new: Experiment) -> frozenset[_Meeting]:
    """Old and new chains of which one's entries could match the other's packets.

    Those are pairs of which the chain of higher precedence would take something that the other carries.
    """
    if not (old.branches or new.branches):
        return frozenset({(old.chain.name, new.chain.name)})
    found: set[_Meeting] = set()
    for (world, island), kind in product(Sides(network, old, new).blocks(), (*Protocol, None)):
        traffic = world[0].address, island[0].address, kind
        one, other = old.carrier(*traffic), new.carrier(*traffic)
        for chain in new.chains:
            if chain.carries.precedence >= one.carries.precedence and chain.carries.matches(*traffic):
                found.add((one.name, chain.name))
        for chain in old.chains:
            if chain.carries.precedence >= other.carries.precedence and chain.carries.matches(*traffic):
                found.add((chain.name, other.name))
    return frozenset(found)


def inherited(network: Network, old: Experiment, layout: Layout, new: Experiment) -> Layout:
    """What a new version keeps of the layout: that of the boxes and gaps its chains begin and end with as before."""
    meetings = meeting_chains(network, old, new)
    known = {chain.name: chain for chain in old.chains}
    boxes = {box.name for box in network.boxes}
    found = Layout()
    for chain in new.chains:
        partners = sorted(one for one, other in meetings if other == chain.name)
        if partners:
            partner = chain.name if chain.name in partners else partners[0]
            found = _inherit(found, layout, known[partner], chain, boxes)
    return found


def _inherit(found: Layout, layout: Layout, old: Chain, new: Chain, boxes: set[str]) -> Layout:
    before, after = ([hop for hop in chain.hops if hop in boxes] for chain in (old, new))
    head = _common(before, after)
    tail = min(_common(before[::-1], after[::-1]), min(len(before), len(after)) - head)
    kept = {*after[:head], *after[len(after) - tail :]}
    # Gap g lies before the box of index g: it is kept where the boxes on both its sides are, edges being kept.
    gaps = {-1: -1, **{gap: gap for gap in range(head)}}
    gaps |= {len(before) - gap: len(after) - gap for gap in range(tail)}
    if old.hops == new.hops:
        gaps |= {gap: gap for gap in range(len(after) + 1)}
    return Layout(
        gaps=(
            *found.gaps,
            *(
                GapTag(new.name, tag.direction, gaps[tag.gap], tag.vlan)
                for tag in layout.gaps
                if tag.chain == old.name and tag.gap in gaps
            ),
        ),
        boxes=(
            *found.boxes,
            *(BoxTag(new.name, tag.box, tag.vlan) for tag in layout.boxes if tag.chain == old.name and tag.box in kept),
        ),
        spare=(*found.spare, *((new.name, box) for chain, box in layout.spare if chain == old.name and box in kept)),
    )


def _common(one: list[str], other: list[str]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def _connected(meetings: Iterable[_Meeting]) -> list[list[_Meeting]]:
    """Meetings that have chains in common, directly or through others."""
    groups: list[list[_Meeting]] = []
    for one, other in sorted(meetings):
        touching = [group for group in groups if any(one == old or other == new for old, new in group)]
        rest = [group for group in groups if group not in touching]
        groups = [*rest, [(one, other), *(meeting for group in touching for meeting in group)]]
    return groups


_Station = tuple[BoxTraversal | None, int | None, tuple[Tap, ...]]


def _stations(route: ChainRoute, layout: Layout, direction: Direction) -> list[_Station]:
    """Gap after gap with the box behind it, in the order in which packets of a direction meet them."""
    last = len(route.passages)
    found: list[_Station] = []
    for gap in range(last + 1) if direction is Direction.TO_ISLAND else range(last, -1, -1):
        behind = gap if direction is Direction.TO_ISLAND else gap - 1
        box = route.passages[behind] if 0 <= behind < last else None
        found.append((box, layout.gap_vlan(route.chain, direction, gap), route.gaps[gap]))
    return found


def _turn(ways: list[list[_Station]]) -> str | None:
    """The last routed box of what all ways begin with."""
    turn: str | None = None
    for stations in zip(*ways, strict=False):
        box = stations[0][0]
        if box is None or any(station != stations[0] for station in stations):
            break
        if box.routed:
            turn = box.name
    return turn
