# SPDX-License-Identifier: Apache-2.0
"""Steering a new version beside the one that stands, so that packets of both can be under way at the same time.

Wherever the two would send packets of the same look on differently, and these do not turn there (``versions``), they
are told apart: on trunks and in transparent boxes by a VLAN tag, in routed boxes by the other pair of legs.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from atoll_apps.compiler.flow_compiler import CompiledEntry
from atoll_apps.compiler.overlap import overlapping
from atoll_apps.compiler.tag_allocation import Place, entry_of, entry_text, fresh_vlan, place_of, where, with_gap
from atoll_apps.cutover import CutoverPoints, cutover_points, inherited
from atoll_apps.segments.segment import SegmentId
from atoll_apps.steering import Layer, Steering, guarded
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import ChainBox, Network
from atoll_core.plan.tag_layout import BoxTag, Layout

_NO_LOAD = "with no traffic to spare, `atoll apply EXPERIMENT --immediate` does it"


def steer_transition(
    network: Network, old: Experiment, standing: Steering, new: Experiment
) -> tuple[Steering, CutoverPoints]:
    """The new version's steering and where packets turn to it; nothing else of the two meets.

    Raises PlanError naming what cannot be told apart and the remedy, or as ``steering.steer``.
    """
    search, layer = _Search(network, standing.layout), Layer(network, new)
    layout = inherited(network, old, standing.layout, new)
    while True:
        steering = layer.steer(layout, standing.layout.vlans)
        layout = steering.layout
        turns = cutover_points(network, old, standing.layout, new, layout)
        clash = next(_clashes(standing.laid, steering.laid, turns), None)
        if clash is None:
            return guarded(new, steering), turns
        layout = search.resolved(layout, *clash)


def _clashes(
    standing: Iterable[CompiledEntry], coming: Iterable[CompiledEntry], turns: CutoverPoints
) -> Iterator[tuple[CompiledEntry, CompiledEntry]]:
    """Pairs of a new and an old entry that the same packets could match where those do not turn."""
    old, new = _by_place(standing), _by_place(coming)
    for place in sorted(new.keys() & old.keys(), key=str):
        for before, after in sorted(turns.meetings):
            for mine, other in overlapping(new[place].get(after, ()), old[place].get(before, ()), entry_of):
                if not turns.turns(mine, other):
                    yield mine, other


def _by_place(laid: Iterable[CompiledEntry]) -> dict[Place, dict[str, list[CompiledEntry]]]:
    """What sends frames on, by place and chain."""
    places: dict[Place, dict[str, list[CompiledEntry]]] = defaultdict(lambda: defaultdict(list))
    for each in laid:
        if each.entry.actions:  # guards: the old version's go before the new one comes
            places[place_of(each.entry)][each.leg.stretch.chain].append(each)
    return places


class _Search:
    """One try after the other at telling apart: without a tag where the old version has one, then with a fresh tag."""

    def __init__(self, network: Network, standing: Layout) -> None:
        self._network = network
        self._standing = standing
        self._tried: set[tuple[SegmentId | tuple[str, str], bool]] = set()

    def resolved(self, layout: Layout, mine: CompiledEntry, other: CompiledEntry) -> Layout:
        """The layout with what tells these two apart. Raises PlanError when there is nothing left to try."""
        box = self._network.box(mine.leg.box) if mine.leg.box else None
        found = None
        if not mine.first:
            found = self._gap(layout, mine.leg.stretch)
        elif box and box.routed:
            found = self._legs(layout, mine.leg.stretch.chain, box)
        elif box:
            found = self._box(layout, mine.leg.stretch.chain, box.name)
        if found is None:
            raise PlanError(_refusal(self._network, mine, other))
        return found

    def _gap(self, layout: Layout, stretch: SegmentId) -> Layout | None:
        own = (stretch.chain, stretch.direction, stretch.gap)
        others = tuple(tag for tag in layout.gaps if (tag.chain, tag.direction, tag.gap) != own)
        bare = replace(layout, gaps=others)
        if bare != layout and self._once(stretch, False):
            return bare
        return with_gap(bare, stretch, self._fresh(layout)) if self._once(stretch, True) else None

    def _box(self, layout: Layout, chain: str, box: str) -> Layout | None:
        others = tuple(tag for tag in layout.boxes if (tag.chain, tag.box) != (chain, box))
        bare = replace(layout, boxes=others)
        if bare != layout and self._once((chain, box), False):
            return bare
        tag = BoxTag(chain, box, self._fresh(layout))
        return replace(layout, boxes=(*others, tag)) if self._once((chain, box), True) else None

    def _legs(self, layout: Layout, chain: str, box: ChainBox) -> Layout | None:
        own = (chain, box.name)
        others = tuple(each for each in layout.spare if each != own)
        change = replace(layout, spare=others if own in layout.spare else (*others, own))
        return change if box.spare and self._once(own, own not in layout.spare) else None

    def _once(self, what: SegmentId | tuple[str, str], tagged: bool) -> bool:
        """Whether this has not been tried yet."""
        fresh = (what, tagged) not in self._tried
        self._tried.add((what, tagged))
        return fresh

    def _fresh(self, layout: Layout) -> int:
        return fresh_vlan(self._network, layout, self._standing.vlans)


def _refusal(network: Network, mine: CompiledEntry, other: CompiledEntry) -> str:
    box = mine.leg.box
    what = f"{entry_text(other)} of the old version and {entry_text(mine)} of the new one at {where(mine)}"
    if box is None or not network.box(box).routed:
        return f"chain {mine.leg.stretch.chain!r} cannot change under traffic: nothing tells {what} apart; {_NO_LOAD}"
    spare = "both its pairs of legs are in use" if network.box(box).spare else "it has no spare legs"
    return (
        f"chain {mine.leg.stretch.chain!r} cannot change under traffic: packets of both versions leave routed box "
        f"{box!r} alike, which keeps no tag, and {spare}: {what}; give it 'spare: {{world: .., island: ..}}' in the "
        f"lab, change what is before it and what is behind it one after the other, or {_NO_LOAD}"
    )
