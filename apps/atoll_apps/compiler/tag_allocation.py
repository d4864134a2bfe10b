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

_MAX_VLAN = 4094

Ingress = tuple[str, int, int | Vlan | None]
"""Switch, ingress port and VLAN condition: entries of different ones never match the same frame."""


def by_ingress(compiled: Iterable[CompiledEntry]) -> dict[Ingress, list[CompiledEntry]]:
    """The entries of each ingress."""
    entries: dict[Ingress, list[CompiledEntry]] = defaultdict(list)
    for item in compiled:
        entries[item.entry.switch, item.entry.match.in_port, item.entry.match.vlan].append(item)
    return entries


def ambiguous_pairs(compiled: Iterable[CompiledEntry]) -> Iterator[tuple[CompiledEntry, CompiledEntry]]:
    """Pairs of entries of one chain that match the same frames with different actions.

    OpenFlow 1.3.5, 6.4: which of them applies is undefined.
    """
    for entries in by_ingress(compiled).values():
        if len(entries) > 1:  # most host ports have one entry a chain
            yield from overlapping_pairs(entries, entries)


def tag_segment(
    network: Network, layout: Layout, first: CompiledEntry, second: CompiledEntry, reserved: frozenset[int]
) -> tuple[GapId, Layout]:
    """The gap that gets a tag to distinguish two segments of one chain, and the layout with that tag.

    Raises PlanError when there is no such tag: they are in one gap, or all VLAN ids are in use.
    """
    gap_ids = {compiled.segment.gap_id for compiled in (first, second) if not compiled.at_start}
    untagged = [gap_id for gap_id in gap_ids if layout.gap_vlan(gap_id.chain, gap_id.direction, gap_id.gap) is None]
    if first.segment.gap_id == second.segment.gap_id or not untagged:
        raise PlanError(
            f"frames of two segments are indistinguishable: {entry_with_match(first)} and {entry_with_match(second)} "
            f"both match at {ingress_text(first)}; attach consecutive boxes and taps of the chain to one switch, or "
            "order them so that frames of one direction cross a trunk only once"
        )
    gap_id = max(untagged, key=lambda gap_id: gap_id.gap)
    return gap_id, with_gap(layout, gap_id, unused_vlan(network, layout, reserved))


def with_gap(layout: Layout, gap_id: GapId, vlan: int) -> Layout:
    """The layout with one more tag on the trunks of a gap."""
    return replace(layout, gaps=(*layout.gaps, GapTag(gap_id.chain, gap_id.direction, gap_id.gap, vlan)))


def tap_vlans(network: Network) -> dict[str, int]:
    """The tag of copies for each tap: the highest ids without a latency class, equal in every plan."""
    return {tap.name: vlan for tap, vlan in zip(network.taps, _free_vlans(network), strict=False)}


def unused_vlan(network: Network, layout: Layout, reserved: frozenset[int]) -> int:
    """The highest VLAN id that neither a latency class, a tap, the layout, nor ``reserved`` uses. Raises PlanError."""
    used = {*tap_vlans(network).values()} | layout.vlans | reserved
    for vlan in _free_vlans(network):
        if vlan not in used:
            return vlan
    raise PlanError("no VLAN id from 1 to 4094 is left to distinguish frames; use fewer latency classes")


def _free_vlans(network: Network) -> Iterator[int]:
    """The ids that no latency class uses, the highest first."""
    used = {latency_class.vlan for box in network.delay_boxes for latency_class in box.classes}
    return (vlan for vlan in range(_MAX_VLAN, 0, -1) if vlan not in used)


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
    first: Iterable[CompiledEntry], second: Iterable[CompiledEntry]
) -> Iterator[tuple[CompiledEntry, CompiledEntry]]:
    """Pairs of entries that match the same frames with different actions; of equal pairs one.

    All entries must be of one ingress.
    """
    first_shapes, second_shapes = _by_shape(first), _by_shape(second)
    for a, entries in first_shapes.items():
        for b, other_entries in second_shapes.items():
            if a[0] == b[0] or None in (a[0], b[0]):
                yield from _conflicting_pairs(entries, other_entries, min(a[1], b[1]), min(a[2], b[2]))


def _conflicting_pairs(
    entries: list[CompiledEntry], other_entries: list[CompiledEntry], src_bits: int, dst_bits: int
) -> Iterator[tuple[CompiledEntry, CompiledEntry]]:
    by_prefixes: dict[tuple[int, int], dict[object, CompiledEntry]] = defaultdict(dict)
    for other_entry in other_entries:
        by_prefixes[_prefixes(other_entry, src_bits, dst_bits)].setdefault(other_entry.entry.actions, other_entry)
    for entry in entries:
        for actions, other_entry in by_prefixes.get(_prefixes(entry, src_bits, dst_bits), {}).items():
            if actions != entry.entry.actions:
                yield entry, other_entry


def shadowed_pairs(compiled: Iterable[CompiledEntry]) -> Iterator[tuple[CompiledEntry, CompiledEntry]]:
    """Entries that no frame reaches, with one of higher priority that matches all their frames.

    All entries must be of one ingress.
    """
    shapes = _by_shape(compiled)
    highest = {
        shape: {_prefixes(item, *shape[1:]): item for item in sorted(entries, key=lambda item: item.entry.priority)}
        for shape, entries in shapes.items()
    }
    for shape, entries in shapes.items():
        wider_shapes = [
            (wider, by_prefixes)
            for wider, by_prefixes in highest.items()
            if wider[0] in (None, shape[0]) and wider[1] <= shape[1] and wider[2] <= shape[2]
        ]
        for low in entries:
            covering = (by_prefixes.get(_prefixes(low, *wider[1:])) for wider, by_prefixes in wider_shapes)
            high = next((item for item in covering if item and item.entry.priority > low.entry.priority), None)
            if high is not None:
                yield low, high


def _by_shape(compiled: Iterable[CompiledEntry]) -> dict[_Shape, list[CompiledEntry]]:
    shapes: dict[_Shape, list[CompiledEntry]] = defaultdict(list)
    for item in compiled:
        match = item.entry.match
        src, dst = (0 if prefix is None else prefix.prefixlen for prefix in (match.ipv4_src, match.ipv4_dst))
        shapes[match.ip_proto, src, dst].append(item)
    return shapes


def _prefixes(compiled: CompiledEntry, src_bits: int, dst_bits: int) -> tuple[int, int]:
    """The first bits of the addresses that an entry matches."""
    match = compiled.entry.match
    return _first_bits(match.ipv4_src, src_bits), _first_bits(match.ipv4_dst, dst_bits)


def _first_bits(prefix: IPv4Network | None, count: int) -> int:
    return 0 if prefix is None else int(prefix.network_address) >> (32 - count)
