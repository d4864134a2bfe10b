# SPDX-License-Identifier: Apache-2.0
"""Find flow entries that match the same frames, without comparing each entry with each.

The entries of one port mostly differ in a host's address. So they are grouped by shape (protocol and prefix lengths),
of which there are few. Two shapes are compared by the bits that both have.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Network
from typing import TypeVar

from atoll_core.plan.flow_entry import FlowEntry, Match

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
