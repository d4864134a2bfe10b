# SPDX-License-Identifier: Apache-2.0
"""Steer a new version of the chains while the old one is active, with packets of both in flight.

Where the two versions forward equal packets differently, except at a cutover point (``cutover``), their frames are
distinguished: on trunks and in transparent boxes by a VLAN tag, in routed boxes by the other pair of ports.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from atoll_apps.compiler.flow_compiler import CompiledEntry
from atoll_apps.compiler.tag_allocation import (
    by_ingress,
    entry_with_match,
    ingress_text,
    overlapping_pairs,
    unused_vlan,
    with_gap,
)
from atoll_apps.cutover import CutoverPoints, cutover_points, inherited_layout
from atoll_apps.segments.segment import GapId
from atoll_apps.steering import Compiler, Steering, with_drop_entries
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.tag_layout import BoxTag, Layout

_IMMEDIATE = "if packets may be lost, use `atoll apply EXPERIMENT --immediate`"


def steer_transition(
    network: Network, old: Experiment, current: Steering, new: Experiment
) -> tuple[Steering, CutoverPoints]:
    """The new version's steering, and the cutover points, the only places where both versions match the same frames.

    Raises PlanError with the entries that cannot be distinguished and the remedy, or as ``steering.steer``.
    """
    compiler = Compiler(network, new)
    layout = inherited_layout(network, old, current.layout, new)
    tried: set[_Choice] = set()
    while True:
        steering = compiler.steer(layout, current.layout.vlans)
        cutover = cutover_points(network, old, current.layout, new, steering.layout)
        conflict = next(_conflicts(current.compiled, steering.compiled, cutover), None)
        if conflict is None:
            return with_drop_entries(new, steering), cutover
        candidates = _candidates(network, current.layout, steering.layout, conflict[0])
        untried = (pair for pair in candidates if pair[1] != steering.layout and pair[0] not in tried)
        choice, layout = next(untried, (None, layout))
        if choice is None:
            raise PlanError(_refusal(network, *conflict))
        tried.add(choice)


def _conflicts(
    current: Iterable[CompiledEntry], upcoming: Iterable[CompiledEntry], cutover: CutoverPoints
) -> Iterator[tuple[CompiledEntry, CompiledEntry]]:
    """Pairs of a new and an old entry that match the same packets, except at cutover points."""
    # The old version's drop entries are removed before the new version is installed.
    old, new = (by_ingress(item for item in version if item.entry.actions) for version in (current, upcoming))
    for ingress in sorted(new.keys() & old.keys(), key=str):
        for old_chain, new_chain in sorted(cutover.overlaps):
            new_entries, old_entries = _of_chain(new[ingress], new_chain), _of_chain(old[ingress], old_chain)
            yield from (pair for pair in overlapping_pairs(new_entries, old_entries) if not cutover.is_cutover(*pair))


def _of_chain(compiled: list[CompiledEntry], chain: str) -> list[CompiledEntry]:
    return [item for item in compiled if item.segment.gap_id.chain == chain]


_Choice = tuple[GapId | tuple[str, str], bool]
"""A gap, or a chain and a box; whether its frames get a tag, or pass the spare ports."""


def _candidates(
    network: Network, current: Layout, layout: Layout, new_entry: CompiledEntry
) -> Iterator[tuple[_Choice, Layout]]:
    """Layouts in which an entry of the new version may be distinct from the old version's, in the order to try them.

    First without a tag where the old version has one, then with an unused tag.
    """
    gap_id, box = new_entry.segment.gap_id, network.box(new_entry.segment.box) if new_entry.segment.box else None
    tags = {end.name: layout.box_vlan(gap_id.chain, end.name) for end in new_entry.segment.targets}
    ends = [name for name, vlan in tags.items() if vlan]
    if not new_entry.at_start and new_entry.entry.match.vlan in [tags[name] for name in ends]:
        yield from _box_tags(network, current, layout, (gap_id.chain, ends[0]))  # the tag is that on the trunks, too
    elif not new_entry.at_start:
        gap_key = (gap_id.chain, gap_id.direction, gap_id.gap)
        kept = tuple(tag for tag in layout.gaps if (tag.chain, tag.direction, tag.gap) != gap_key)
        untagged = replace(layout, gaps=kept)
        yield (gap_id, False), untagged
        yield (gap_id, True), with_gap(untagged, gap_id, unused_vlan(network, layout, current.vlans))
    elif box and box.routed and box.spare:
        passage = gap_id.chain, box.name
        kept = tuple(pair for pair in layout.spare if pair != passage)
        is_spare = passage in layout.spare
        yield (passage, not is_spare), replace(layout, spare=kept if is_spare else (*kept, passage))
    elif box and not box.routed:
        yield from _box_tags(network, current, layout, (gap_id.chain, box.name))


def _box_tags(
    network: Network, current: Layout, layout: Layout, passage: tuple[str, str]
) -> Iterator[tuple[_Choice, Layout]]:
    """Layouts without a tag, and with an unused tag, for a chain in a transparent box."""
    kept = tuple(tag for tag in layout.boxes if (tag.chain, tag.box) != passage)
    yield (passage, False), replace(layout, boxes=kept)
    tag = BoxTag(*passage, unused_vlan(network, layout, current.vlans))
    yield (passage, True), replace(layout, boxes=(*kept, tag))


def _refusal(network: Network, new_entry: CompiledEntry, old_entry: CompiledEntry) -> str:
    box, chain = new_entry.segment.box, new_entry.segment.gap_id.chain
    old, new = entry_with_match(old_entry), entry_with_match(new_entry)
    pair = f"{old} of the old version and {new} of the new one at {ingress_text(new_entry)}"
    if box is None or not network.box(box).routed:
        return f"chain {chain!r} cannot change under traffic: nothing distinguishes {pair}; {_IMMEDIATE}"
    spare, remedy = "it has no spare ports", "either give it 'spare: {world: .., island: ..}' in the lab; or, "
    if network.box(box).spare:
        spare, remedy = "both of its port pairs are in use", ""
    return (
        f"chain {chain!r} cannot change under traffic: packets of both versions leave routed box {box!r} by the same "
        f"port without a tag, {spare}, and no version in between helps ({pair}); {remedy}{_IMMEDIATE}"
    )
