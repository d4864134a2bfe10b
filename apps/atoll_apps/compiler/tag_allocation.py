# SPDX-License-Identifier: Apache-2.0
"""Find segments whose frames are indistinguishable at a port, and allocate VLAN tags that distinguish them.

Segments of one chain can share only trunks, as a box is passed once: the later gap gets a tag on its trunks.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from ipaddress import IPv4Network
from typing import TypeVar

from atoll_apps.compiler.flow_compiler import CompiledEntry
from atoll_apps.segments.segment import GapId
from atoll_core.errors import PlanError
from atoll_core.lab.network import Network
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.flow_entry import FlowEntry, Match, Vlan, describe_actions
from atoll_core.plan.tag_layout import GapTag, Layout

_LAST_VLAN = 4094

EntryPlace = tuple[str, int, int | Vlan | None]  # switch, ingress port, VLAN condition


def place_of(entry: FlowEntry) -> EntryPlace:
    """The place of an entry: entries of different places never match the same frame."""
    return entry.switch, entry.match.in_port, entry.match.vlan


def entry_of(compiled: CompiledEntry) -> FlowEntry:
    """The entry alone."""
    return compiled.entry


def by_place(compiled: Iterable[CompiledEntry]) -> dict[tuple[str, EntryPlace], list[CompiledEntry]]:
    """Entries by chain and place: frames of different chains are distinguished by headers and priority."""
    places: dict[tuple[str, EntryPlace], list[CompiledEntry]] = defaultdict(list)
    for each in compiled:
        places[each.segment.gap_id.chain, place_of(each.entry)].append(each)
    return places


def ambiguous_pairs(compiled: Iterable[CompiledEntry]) -> Iterator[tuple[CompiledEntry, CompiledEntry]]:
    """Pairs of entries of one chain that match the same frames with different actions.

    OpenFlow 1.3.5, 6.4: which of them applies is undefined.
    """
    for same in by_place(compiled).values():
        if len(same) > 1:  # most host ports have one entry a chain
            yield from overlapping(same, same, entry_of)


def tag_segment(
    network: Network, layout: Layout, one: CompiledEntry, other: CompiledEntry, taken: frozenset[int]
) -> Layout:
    """The layout with a tag that distinguishes two segments of one chain.

    Raises PlanError when there is no such tag: they are in one gap, or all VLAN ids are in use.
    """
    tagged = {(tag.chain, tag.direction, tag.gap) for tag in layout.gaps}
    gap_ids = sorted({each.segment.gap_id for each in (one, other) if not each.first}, key=lambda each: -each.gap)
    free = [each for each in gap_ids if (each.chain, each.direction, each.gap) not in tagged]
    if one.segment.gap_id == other.segment.gap_id or not free:
        raise PlanError(_refusal(one, other))
    return with_gap(layout, free[0], fresh_vlan(network, layout, taken))


def with_gap(layout: Layout, gap_id: GapId, vlan: int) -> Layout:
    """The layout with one more tag on the trunks of a gap."""
    return replace(layout, gaps=(*layout.gaps, GapTag(gap_id.chain, gap_id.direction, gap_id.gap, vlan)))


def tap_vlans(network: Network) -> dict[str, int]:
    """The tag of copies for each tap: the highest ids without a latency class, equal in every plan."""
    used = _class_vlans(network)
    free = (vlan for vlan in range(_LAST_VLAN, 0, -1) if vlan not in used)
    return {tap.name: vlan for tap, vlan in zip(network.taps, free, strict=False)}


def fresh_vlan(network: Network, layout: Layout, taken: frozenset[int]) -> int:
    """The highest VLAN id that neither a latency class, a tap, the layout, nor ``taken`` uses. Raises PlanError."""
    used = _class_vlans(network) | {*tap_vlans(network).values()} | layout.vlans | taken
    found = next((vlan for vlan in range(_LAST_VLAN, 0, -1) if vlan not in used), None)
    if found is None:
        raise PlanError("no VLAN id from 1 to 4094 is left to distinguish frames; use fewer latency classes")
    return found


def _class_vlans(network: Network) -> set[int]:
    return {known.vlan for box in network.delay_boxes for known in box.classes}


def entry_with_match(compiled: CompiledEntry) -> str:
    """An entry as text: its reason, match and actions."""
    entry = compiled.entry
    return f"'{entry.why}' ({entry.match.ipv4_src} -> {entry.match.ipv4_dst}; {describe_actions(entry.actions)})"


def where(compiled: CompiledEntry) -> str:
    """The ingress port of an entry, and its VLAN condition."""
    vlan = compiled.entry.match.vlan
    tag = "untagged" if vlan is Vlan.UNTAGGED else f"with VLAN tag {vlan}"
    return f"{PortRef(compiled.entry.switch, compiled.entry.match.in_port)} {tag}"


def _refusal(one: CompiledEntry, other: CompiledEntry) -> str:
    return (
        f"frames of two segments are indistinguishable: {entry_with_match(one)} and {entry_with_match(other)}"
        " both match at "
        f"{where(one)}; "
        "attach consecutive boxes and taps of the chain to one switch, or order them so that frames of one "
        "direction cross a trunk only once"
    )


T = TypeVar("T")
_Shape = tuple[int | None, int, int]  # protocol, prefix lengths of source and destination


def overlapping(mine: Iterable[T], others: Iterable[T], entry_of: Callable[[T], FlowEntry]) -> Iterator[tuple[T, T]]:
    """Pairs of entries that match the same frames with different actions; of equal pairs one.

    All entries must be of one switch, ingress port and VLAN condition.
    """
    of_mine, of_others = _by_shape(mine, entry_of), _by_shape(others, entry_of)
    for shape, ours in of_mine.items():
        for other, theirs in of_others.items():
            if shape[0] == other[0] or None in (shape[0], other[0]):
                yield from _meeting(ours, theirs, min(shape[1], other[1]), min(shape[2], other[2]), entry_of)


def shadowed(items: Iterable[T], entry_of: Callable[[T], FlowEntry]) -> Iterator[tuple[T, T]]:
    """Entries that no frame reaches, each with one of higher priority that matches all its frames.

    All entries must be of one switch, ingress port and VLAN condition.
    """
    shapes = _by_shape(items, entry_of)
    highest: dict[_Shape, dict[tuple[int, int], T]] = {}
    for shape, alike in shapes.items():
        there = highest[shape] = {}
        for item in sorted(alike, key=lambda item: entry_of(item).priority):
            there[_key(entry_of(item).match, *shape[1:])] = item
    for shape, alike in shapes.items():
        wider = [
            (other, there)
            for other, there in highest.items()
            if other[0] in (None, shape[0]) and other[1] <= shape[1] and other[2] <= shape[2]
        ]
        for item in alike:
            entry = entry_of(item)
            found = (there.get(_key(entry.match, *other[1:])) for other, there in wider)
            above = next((each for each in found if each and entry_of(each).priority > entry.priority), None)
            if above is not None:
                yield item, above


def _meeting(
    ours: list[T], theirs: list[T], src_bits: int, dst_bits: int, entry_of: Callable[[T], FlowEntry]
) -> Iterator[tuple[T, T]]:
    there: dict[tuple[int, int], dict[object, T]] = defaultdict(dict)
    for item in theirs:
        entry = entry_of(item)
        there[_key(entry.match, src_bits, dst_bits)].setdefault(entry.actions, item)
    for item in ours:
        entry = entry_of(item)
        for actions, other in there.get(_key(entry.match, src_bits, dst_bits), {}).items():
            if actions != entry.actions:
                yield item, other


def _by_shape(items: Iterable[T], entry_of: Callable[[T], FlowEntry]) -> dict[_Shape, list[T]]:
    shapes: dict[_Shape, list[T]] = defaultdict(list)
    for item in items:
        match = entry_of(item).match
        shapes[match.ip_proto, _length(match.ipv4_src), _length(match.ipv4_dst)].append(item)
    return shapes


def _key(match: Match, src_bits: int, dst_bits: int) -> tuple[int, int]:
    return _bits(match.ipv4_src, src_bits), _bits(match.ipv4_dst, dst_bits)


def _bits(prefix: IPv4Network | None, count: int) -> int:
    return 0 if prefix is None else int(prefix.network_address) >> (32 - count)


def _length(prefix: IPv4Network | None) -> int:
    return 0 if prefix is None else prefix.prefixlen
