# SPDX-License-Identifier: Apache-2.0
"""Find segments whose frames are indistinguishable at a port, and allocate VLAN tags that distinguish them.

Segments of one chain can share only trunks, as a box is passed once: the later gap gets a tag on its trunks.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from ipaddress import IPv4Network

from atoll_apps.compiler.flow_compiler import CompiledEntry
from atoll_apps.segments.segment import GapId
from atoll_core.errors import PlanError
from atoll_core.lab.network import Network
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.flow_entry import Vlan, describe_actions
from atoll_core.plan.tag_layout import GapTag, Layout

_LAST_VLAN = 4094

Ingress = tuple[str, int, int | Vlan | None]
"""Switch, ingress port and VLAN condition: entries of different ones never match the same frame."""


def by_ingress(compiled: Iterable[CompiledEntry]) -> dict[Ingress, list[CompiledEntry]]:
    """The entries of each ingress."""
    entries: dict[Ingress, list[CompiledEntry]] = defaultdict(list)
    for one in compiled:
        entries[one.entry.switch, one.entry.match.in_port, one.entry.match.vlan].append(one)
    return entries


def ambiguous_pairs(compiled: Iterable[CompiledEntry]) -> Iterator[tuple[CompiledEntry, CompiledEntry]]:
    """Pairs of entries of one chain that match the same frames with different actions.

    OpenFlow 1.3.5, 6.4: which of them applies is undefined.
    """
    for entries in by_ingress(compiled).values():
        if len(entries) > 1:  # most host ports have one entry a chain
            yield from overlapping_pairs(entries, entries)


def tag_segment(
    network: Network, layout: Layout, one: CompiledEntry, other: CompiledEntry, reserved: frozenset[int]
) -> tuple[GapId, Layout]:
    """The gap that gets a tag to distinguish two segments of one chain, and the layout with that tag.

    Raises PlanError when there is no such tag: they are in one gap, or all VLAN ids are in use.
    """
    gap_ids = {compiled.segment.gap_id for compiled in (one, other) if not compiled.at_start}
    untagged = [each for each in gap_ids if layout.gap_vlan(each.chain, each.direction, each.gap) is None]
    if one.segment.gap_id == other.segment.gap_id or not untagged:
        raise PlanError(
            f"frames of two segments are indistinguishable: {entry_with_match(one)} and {entry_with_match(other)} both "
            f"match at {ingress_text(one)}; attach consecutive boxes and taps of the chain to one switch, or order "
            "them so that frames of one direction cross a trunk only once"
        )
    gap_id = max(untagged, key=lambda each: each.gap)
    return gap_id, with_gap(layout, gap_id, fresh_vlan(network, layout, reserved))


def with_gap(layout: Layout, gap_id: GapId, vlan: int) -> Layout:
    """The layout with one more tag on the trunks of a gap."""
    return replace(layout, gaps=(*layout.gaps, GapTag(gap_id.chain, gap_id.direction, gap_id.gap, vlan)))


def tap_vlans(network: Network) -> dict[str, int]:
    """The tag of copies for each tap: the highest ids without a latency class, equal in every plan."""
    return {tap.name: vlan for tap, vlan in zip(network.taps, _free_vlans(network), strict=False)}


def fresh_vlan(network: Network, layout: Layout, reserved: frozenset[int]) -> int:
    """The highest VLAN id that neither a latency class, a tap, the layout, nor ``reserved`` uses. Raises PlanError."""
    used = {*tap_vlans(network).values()} | layout.vlans | reserved
    for vlan in _free_vlans(network):
        if vlan not in used:
            return vlan
    raise PlanError("no VLAN id from 1 to 4094 is left to distinguish frames; use fewer latency classes")


def _free_vlans(network: Network) -> Iterator[int]:
    """The ids that no latency class uses, the highest first."""
    used = {latency_class.vlan for box in network.delay_boxes for latency_class in box.classes}
    return (vlan for vlan in range(_LAST_VLAN, 0, -1) if vlan not in used)


def entry_with_match(compiled: CompiledEntry) -> str:
    """An entry as text: its reason, match and actions."""
    entry = compiled.entry
    return f"'{entry.why}' ({entry.match.ipv4_src} -> {entry.match.ipv4_dst}; {describe_actions(entry.actions)})"


def ingress_text(compiled: CompiledEntry) -> str:
    """The ingress port of an entry, and its VLAN condition."""
    vlan = compiled.entry.match.vlan
    tag = "untagged" if vlan is Vlan.UNTAGGED else f"with VLAN tag {vlan}"
    return f"{PortRef(compiled.entry.switch, compiled.entry.match.in_port)} {tag}"


_Shape = tuple[int | None, int, int]  # protocol, prefix lengths of source and destination


def overlapping_pairs(
    mine: Iterable[CompiledEntry], others: Iterable[CompiledEntry]
) -> Iterator[tuple[CompiledEntry, CompiledEntry]]:
    """Pairs of entries that match the same frames with different actions; of equal pairs one.

    All entries must be of one ingress.
    """
    my_shapes, other_shapes = _by_shape(mine), _by_shape(others)
    for shape, ours in my_shapes.items():
        for other, theirs in other_shapes.items():
            if shape[0] == other[0] or None in (shape[0], other[0]):
                yield from _conflicting_pairs(ours, theirs, min(shape[1], other[1]), min(shape[2], other[2]))


def _conflicting_pairs(
    ours: list[CompiledEntry], theirs: list[CompiledEntry], src_bits: int, dst_bits: int
) -> Iterator[tuple[CompiledEntry, CompiledEntry]]:
    by_prefixes: dict[tuple[int, int], dict[object, CompiledEntry]] = defaultdict(dict)
    for other in theirs:
        by_prefixes[_prefixes(other, src_bits, dst_bits)].setdefault(other.entry.actions, other)
    for one in ours:
        for actions, other in by_prefixes.get(_prefixes(one, src_bits, dst_bits), {}).items():
            if actions != one.entry.actions:
                yield one, other


def shadowed_pairs(compiled: Iterable[CompiledEntry]) -> Iterator[tuple[CompiledEntry, CompiledEntry]]:
    """Entries that no frame reaches, with one of higher priority that matches all their frames.

    All entries must be of one ingress.
    """
    shapes = _by_shape(compiled)
    highest = {
        shape: {_prefixes(one, *shape[1:]): one for one in sorted(entries, key=lambda one: one.entry.priority)}
        for shape, entries in shapes.items()
    }
    for shape, entries in shapes.items():
        wider_shapes = [
            (other, by_prefixes)
            for other, by_prefixes in highest.items()
            if other[0] in (None, shape[0]) and other[1] <= shape[1] and other[2] <= shape[2]
        ]
        for low in entries:
            covering = (by_prefixes.get(_prefixes(low, *other[1:])) for other, by_prefixes in wider_shapes)
            high = next((one for one in covering if one and one.entry.priority > low.entry.priority), None)
            if high is not None:
                yield low, high


def _by_shape(compiled: Iterable[CompiledEntry]) -> dict[_Shape, list[CompiledEntry]]:
    shapes: dict[_Shape, list[CompiledEntry]] = defaultdict(list)
    for one in compiled:
        match = one.entry.match
        src, dst = (0 if prefix is None else prefix.prefixlen for prefix in (match.ipv4_src, match.ipv4_dst))
        shapes[match.ip_proto, src, dst].append(one)
    return shapes


def _prefixes(compiled: CompiledEntry, src_bits: int, dst_bits: int) -> tuple[int, int]:
    """The first bits of the addresses that an entry matches."""
    match = compiled.entry.match
    return _first_bits(match.ipv4_src, src_bits), _first_bits(match.ipv4_dst, dst_bits)


def _first_bits(prefix: IPv4Network | None, count: int) -> int:
    return 0 if prefix is None else int(prefix.network_address) >> (32 - count)
