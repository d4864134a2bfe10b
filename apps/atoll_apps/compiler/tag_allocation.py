# SPDX-License-Identifier: Apache-2.0
"""Telling frames apart: finding legs whose frames look alike at a port, and the tag that makes the difference.

Within one chain only trunks can be shared (a box is passed once): the later stretch gets a tag on its trunks.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from atoll_apps.compiler.flow_compiler import CompiledEntry
from atoll_apps.compiler.overlap import overlapping
from atoll_apps.segments.segment import SegmentId
from atoll_core.errors import PlanError
from atoll_core.lab.network import Network, PortRef
from atoll_core.plan.flow_entry import FlowEntry, Vlan, describe_actions
from atoll_core.plan.tag_layout import GapTag, Layout

_LAST_VLAN = 4094

Place = tuple[str, int, int | Vlan | None]  # switch, ingress port, VLAN condition


def place_of(entry: FlowEntry) -> Place:
    """Where an entry looks for its frames: entries of different places never meet."""
    return entry.switch, entry.match.in_port, entry.match.vlan


def entry_of(laid: CompiledEntry) -> FlowEntry:
    """The entry alone."""
    return laid.entry


def by_place(laid: Iterable[CompiledEntry]) -> dict[tuple[str, Place], list[CompiledEntry]]:
    """What is laid, by chain and place: frames of different chains are told apart by headers and priority."""
    places: dict[tuple[str, Place], list[CompiledEntry]] = defaultdict(list)
    for each in laid:
        places[each.leg.stretch.chain, place_of(each.entry)].append(each)
    return places


def ambiguous_pairs(laid: Iterable[CompiledEntry]) -> Iterator[tuple[CompiledEntry, CompiledEntry]]:
    """Pairs of one chain that one frame could match and that ask for different actions.

    OpenFlow 1.3.5, 6.4: which of them applies is undefined.
    """
    for same in by_place(laid).values():
        if len(same) > 1:  # most host ports have one entry a chain
            yield from overlapping(same, same, entry_of)


def tag_segment(
    network: Network, layout: Layout, one: CompiledEntry, other: CompiledEntry, taken: frozenset[int]
) -> Layout:
    """The layout that tells two legs of one chain apart where they meet.

    Raises PlanError when no tag can: they lie in one stretch, or there is no VLAN id left.
    """
    tagged = {(tag.chain, tag.direction, tag.gap) for tag in layout.gaps}
    stretches = sorted({each.leg.stretch for each in (one, other) if not each.first}, key=lambda each: -each.gap)
    free = [each for each in stretches if (each.chain, each.direction, each.gap) not in tagged]
    if one.leg.stretch == other.leg.stretch or not free:
        raise PlanError(_cannot_tell_apart(one, other))
    return with_gap(layout, free[0], fresh_vlan(network, layout, taken))


def with_gap(layout: Layout, stretch: SegmentId, vlan: int) -> Layout:
    """The layout with one more tag on the trunks of a stretch."""
    return replace(layout, gaps=(*layout.gaps, GapTag(stretch.chain, stretch.direction, stretch.gap, vlan)))


def tap_vlans(network: Network) -> dict[str, int]:
    """The tag of copies on their way to each tap: the highest ids without a latency class, the same in every plan."""
    used = _class_vlans(network)
    free = (vlan for vlan in range(_LAST_VLAN, 0, -1) if vlan not in used)
    return {tap.name: vlan for tap, vlan in zip(network.taps, free, strict=False)}


def fresh_vlan(network: Network, layout: Layout, taken: frozenset[int]) -> int:
    """The highest VLAN id that neither a latency class, a tap, the layout, nor ``taken`` uses. Raises PlanError."""
    used = _class_vlans(network) | {*tap_vlans(network).values()} | layout.vlans | taken
    found = next((vlan for vlan in range(_LAST_VLAN, 0, -1) if vlan not in used), None)
    if found is None:
        raise PlanError("no VLAN id from 1 to 4094 is left to tell frames apart; use fewer latency classes")
    return found


def _class_vlans(network: Network) -> set[int]:
    return {known.vlan for box in network.delay_boxes for known in box.classes}


def entry_text(laid: CompiledEntry) -> str:
    """An entry by its reason, what it matches and what it does."""
    entry = laid.entry
    return f"'{entry.why}' ({entry.match.ipv4_src} -> {entry.match.ipv4_dst}; {describe_actions(entry.actions)})"


def where(laid: CompiledEntry) -> str:
    """The port an entry's frames come by, and as what."""
    vlan = laid.entry.match.vlan
    tag = "untagged" if vlan is Vlan.UNTAGGED else f"with VLAN tag {vlan}"
    return f"{PortRef(laid.entry.switch, laid.entry.match.in_port)} {tag}"


def _cannot_tell_apart(one: CompiledEntry, other: CompiledEntry) -> str:
    return (
        f"two legs cannot be told apart: {entry_text(one)} and {entry_text(other)}: both arrive at {where(one)}; "
        "attach boxes and taps that follow one another in the chain to one switch, "
        "or order them so that frames of one direction never cross a trunk twice"
    )
