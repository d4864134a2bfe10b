# SPDX-License-Identifier: Apache-2.0
"""Steer a new version of the chains while the old one is active, with packets of both in flight.

Where the two versions forward equal packets differently, except at a cutover point (``cutover``), their frames are
distinguished: on trunks and in transparent boxes by a VLAN tag, in routed boxes by the other pair of ports.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from atoll_apps.compiler.flow_compiler import CompiledEntry
from atoll_apps.compiler.tag_allocation import by_ingress, entry_with_match, fresh_vlan, overlapping, where, with_gap
from atoll_apps.cutover import CutoverPoints, cutover_points, inherited
from atoll_apps.segments.segment import GapId
from atoll_apps.steering import Compiler, Steering, with_drop_entries
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import ChainBox, Network
from atoll_core.plan.tag_layout import BoxTag, Layout

_NO_LOAD = "if packets may be lost, use `atoll apply EXPERIMENT --immediate`"


def steer_transition(
    network: Network, old: Experiment, current: Steering, new: Experiment
) -> tuple[Steering, CutoverPoints]:
    """The new version's steering, and the cutover points, the only places where both versions match the same frames.

    Raises PlanError with the entries that cannot be distinguished and the remedy, or as ``steering.steer``.
    """
    search, compiler = _Search(network, current.layout), Compiler(network, new)
    layout = inherited(network, old, current.layout, new)
    while True:
        steering = compiler.steer(layout, current.layout.vlans)
        layout = steering.layout
        cutover = cutover_points(network, old, current.layout, new, layout)
        clash = next(_clashes(current.compiled, steering.compiled, cutover), None)
        if clash is None:
            return with_drop_entries(new, steering), cutover
        layout = search.resolved(layout, *clash)


def _clashes(
    current: Iterable[CompiledEntry], upcoming: Iterable[CompiledEntry], cutover: CutoverPoints
) -> Iterator[tuple[CompiledEntry, CompiledEntry]]:
    """Pairs of a new and an old entry that match the same packets, except at cutover points."""
    # The old version's drop entries are removed before the new version is installed.
    old, new = (by_ingress(one for one in version if one.entry.actions) for version in (current, upcoming))
    for ingress in sorted(new.keys() & old.keys(), key=str):
        for before, after in sorted(cutover.overlaps):
            mine, others = _of_chain(new[ingress], after), _of_chain(old[ingress], before)
            yield from (pair for pair in overlapping(mine, others) if not cutover.is_cutover(*pair))


def _of_chain(compiled: list[CompiledEntry], chain: str) -> list[CompiledEntry]:
    return [one for one in compiled if one.segment.gap_id.chain == chain]


class _Search:
    """The search for a layout: first without a tag where the old version has one, then with an unused tag."""

    def __init__(self, network: Network, current: Layout) -> None:
        self._network = network
        self._current = current
        self._tried: set[tuple[GapId | tuple[str, str], bool]] = set()

    def resolved(self, layout: Layout, mine: CompiledEntry, other: CompiledEntry) -> Layout:
        """The next layout that may distinguish these two entries. Raises PlanError when all were tried."""
        box = self._network.box(mine.segment.box) if mine.segment.box else None
        chain, found = mine.segment.gap_id.chain, None
        towards = [target.name for target in mine.segment.targets if layout.box_vlan(chain, target.name)]
        if not mine.first and mine.entry.match.vlan in [layout.box_vlan(chain, name) for name in towards]:
            found = self._box(layout, chain, towards[0])  # on trunks, too, frames have the tag of the box at their end
        elif not mine.first:
            found = self._gap(layout, mine.segment.gap_id)
        elif box and box.routed:
            found = self._ports(layout, chain, box)
        elif box:
            found = self._box(layout, chain, box.name)
        if found is None:
            raise PlanError(_refusal(self._network, mine, other))
        return found

    def _gap(self, layout: Layout, gap_id: GapId) -> Layout | None:
        own = (gap_id.chain, gap_id.direction, gap_id.gap)
        others = tuple(tag for tag in layout.gaps if (tag.chain, tag.direction, tag.gap) != own)
        bare = replace(layout, gaps=others)
        if bare != layout and self._once(gap_id, False):
            return bare
        return with_gap(bare, gap_id, self._fresh(layout)) if self._once(gap_id, True) else None

    def _box(self, layout: Layout, chain: str, box: str) -> Layout | None:
        others = tuple(tag for tag in layout.boxes if (tag.chain, tag.box) != (chain, box))
        bare = replace(layout, boxes=others)
        if bare != layout and self._once((chain, box), False):
            return bare
        tag = BoxTag(chain, box, self._fresh(layout))
        return replace(layout, boxes=(*others, tag)) if self._once((chain, box), True) else None

    def _ports(self, layout: Layout, chain: str, box: ChainBox) -> Layout | None:
        own = (chain, box.name)
        others = tuple(each for each in layout.spare if each != own)
        change = replace(layout, spare=others if own in layout.spare else (*others, own))
        return change if box.spare and self._once(own, own not in layout.spare) else None

    def _once(self, what: GapId | tuple[str, str], tagged: bool) -> bool:
        """Whether this is tried for the first time."""
        fresh = (what, tagged) not in self._tried
        self._tried.add((what, tagged))
        return fresh

    def _fresh(self, layout: Layout) -> int:
        return fresh_vlan(self._network, layout, self._current.vlans)


def _refusal(network: Network, mine: CompiledEntry, other: CompiledEntry) -> str:
    box = mine.segment.box
    what = f"{entry_with_match(other)} of the old version and {entry_with_match(mine)} of the new one at {where(mine)}"
    if box is None or not network.box(box).routed:
        chain = mine.segment.gap_id.chain
        return f"chain {chain!r} cannot change under traffic: nothing distinguishes {what}; {_NO_LOAD}"
    spare, remedy = "it has no spare ports", "either give it 'spare: {world: .., island: ..}' in the lab; or, "
    if network.box(box).spare:
        spare, remedy = "both of its port pairs are in use", ""
    return (
        f"chain {mine.segment.gap_id.chain!r} cannot change under traffic: packets of both versions leave routed box "
        f"{box!r} by the same port without a tag, {spare}, and no version in between helps ({what}); {remedy}{_NO_LOAD}"
    )
