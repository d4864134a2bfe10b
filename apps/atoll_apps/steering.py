# SPDX-License-Identifier: Apache-2.0
"""Steering: the segments of all apps, compiled to one flow table a switch."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain as joined

from atoll_apps.compiler.flow_compiler import CompiledEntry, compile_segment
from atoll_apps.compiler.tag_allocation import (
    EntryPlace,
    ambiguous_pairs,
    entry_of,
    place_of,
    shadowed,
    tag_segment,
    tap_vlans,
)
from atoll_apps.control import control_entries
from atoll_apps.segments import chain, delivery, latency
from atoll_apps.segments.chain_routes import BoxTraversal, ChainRoute, routes
from atoll_apps.segments.segment import App, GapId, Segment
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.lab.shortest_paths import Topology
from atoll_core.plan.flow_entry import FlowEntry, Match, sort_key
from atoll_core.plan.tag_layout import UNTAGGED, Layout

_NAMED = 2  # reasons of an entry that are written out
_APPS = (delivery, latency, chain)


@dataclass(frozen=True, slots=True)
class Steering:
    """The compiled entries of an experiment, and the tags that they use; ``control``: those of in-band control."""

    compiled: tuple[CompiledEntry, ...]
    layout: Layout
    control: tuple[FlowEntry, ...] = ()

    @property
    def entries(self) -> tuple[FlowEntry, ...]:
        """The flow entries, each once, sorted by switch, priority (highest first) and match."""
        same: dict[tuple[str, int, Match], list[FlowEntry]] = defaultdict(list)
        for each in self.compiled:
            same[each.entry.switch, each.entry.priority, each.entry.match].append(each.entry)
        return tuple(sorted((*map(_merge, same.values()), *self.control), key=sort_key))


def flow_entries(network: Network, experiment: Experiment, layout: Layout = UNTAGGED) -> tuple[FlowEntry, ...]:
    """Every flow entry of the experiment, sorted by switch, priority (highest first) and match.

    Raises PlanError when frames of two segments cannot be distinguished, when there is no path, or when a chain takes
    all frames of another one's entry.
    """
    return steer(network, experiment, layout).entries


def steer(network: Network, experiment: Experiment, layout: Layout, taken: frozenset[int] = frozenset()) -> Steering:
    """Compile every segment of every chain; tag frames of a chain where they are indistinguishable.

    ``taken``: VLAN ids that are not available. Given the layout that it returned, it returns the same steering.
    Raises PlanError as :func:`flow_entries`.
    """
    return with_drop_entries(experiment, Compiler(network, experiment).steer(layout, taken))


def with_drop_entries(experiment: Experiment, steering: Steering) -> Steering:
    """The steering with drop entries for its branches. Raises PlanError for entries that no frame reaches."""
    if not experiment.branches:
        return steering
    _refuse_shadowed(experiment, steering.compiled)
    return replace(steering, compiled=(*steering.compiled, *_drop_entries(steering.compiled)))


def _drop_entries(compiled: Iterable[CompiledEntry]) -> Iterator[CompiledEntry]:
    """An entry that drops, just below those of its chain, wherever another chain has a lower priority at that place.

    Where a chain's frames are forwarded host by host, frames for other addresses match no entry of that chain. Entries
    of a chain of lower priority at the same port would take them, possibly in a loop.
    """
    lowest: dict[EntryPlace, int] = {}
    found: dict[EntryPlace, dict[FlowEntry, CompiledEntry]] = defaultdict(dict)
    for each in compiled:
        entry, stream, place = each.entry, each.segment.stream, place_of(each.entry)
        lowest[place] = min(entry.priority, lowest.get(place, entry.priority))
        if entry.match.ipv4_dst != stream.dst:
            match = replace(entry.match, ipv4_dst=stream.dst)
            why = f"{each.segment.origin}: chain {each.segment.gap_id.chain}, to none of its hosts"
            drop = replace(entry, match=match, actions=(), priority=entry.priority - 1, why=why)
            found[place][drop] = replace(each, entry=drop)
    for place, drops in found.items():
        yield from (each for each in drops.values() if each.entry.priority > lowest[place])


class Compiler:
    """Compiles the segments of one experiment for several layouts, as the search for a layout tries many.

    Common parts of layouts are compiled once: the segments of a chain with equal traversals of its boxes, and their
    entries where the tag on the trunks is equal, too.
    """

    def __init__(self, network: Network, experiment: Experiment) -> None:
        self._network = network
        self._experiment = experiment
        self._topology = Topology.of(network)
        self._taps = tap_vlans(network)
        self._control = control_entries(network)
        self._segments: dict[tuple[str, tuple[BoxTraversal, ...]], dict[GapId, list[Segment]]] = {}
        self._compiled: dict[tuple[GapId, int | None], tuple[list[Segment], list[CompiledEntry]]] = {}
        self._unambiguous: dict[str, list[list[CompiledEntry]]] = {}  # by chain: the last entries without a clash

    def steer(self, layout: Layout, taken: frozenset[int]) -> Steering:
        """As :func:`steer`, without drop entries, which only a complete plan needs."""
        found: list[CompiledEntry] = []
        for route in routes(self._network, self._experiment, layout):
            segments = self._segments_of(route)
            compiled = {gap_id: self._compile(gap_id, each, layout) for gap_id, each in segments.items()}
            while clash := self._clash(route.chain, list(compiled.values())):
                layout = tag_segment(self._network, layout, *clash, taken)
                tag = layout.gaps[-1]
                gap_id = GapId(tag.chain, tag.direction, tag.gap)
                compiled[gap_id] = self._compile(gap_id, segments[gap_id], layout)
            found += joined.from_iterable(compiled.values())
        return Steering(tuple(found), layout, self._control)

    def _clash(self, chain: str, compiled: list[list[CompiledEntry]]) -> tuple[CompiledEntry, CompiledEntry] | None:
        """Two entries of a chain that match the same frames; None if there are none."""
        if self._unambiguous.get(chain) == compiled:
            return None
        clash = next(ambiguous_pairs(joined.from_iterable(compiled)), None)
        if clash is None:
            self._unambiguous[chain] = compiled
        return clash

    def _segments_of(self, route: ChainRoute) -> dict[GapId, list[Segment]]:
        """The segments of a chain by gap. Only the traversals of a route depend on the layout."""
        key = route.chain, route.traversals
        if key not in self._segments:
            found: dict[GapId, list[Segment]] = defaultdict(list)
            for app in _APPS if route.blocks else ():
                for segment in app.segments(self._network, self._experiment, route):
                    found[segment.gap_id].append(segment)
            self._segments[key] = found
        return self._segments[key]

    def _compile(self, gap_id: GapId, segments: list[Segment], layout: Layout) -> list[CompiledEntry]:
        carry = layout.gap_vlan(gap_id.chain, gap_id.direction, gap_id.gap)
        known, compiled = self._compiled.get((gap_id, carry), ([], []))
        if known != segments:
            compiled = [
                each for segment in segments for each in compile_segment(segment, self._topology, carry, self._taps)
            ]
            self._compiled[gap_id, carry] = segments, compiled
        return compiled


def _merge(same: list[FlowEntry]) -> FlowEntry:
    """One entry for several segments: with all their reasons and the lowest of their cookies."""
    reasons = list(dict.fromkeys(entry.why for entry in same))
    more = len(reasons) - _NAMED
    why = "; ".join(reasons[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
    return replace(same[0], cookie=min(entry.cookie for entry in same), why=why)


def _refuse_shadowed(experiment: Experiment, compiled: Iterable[CompiledEntry]) -> None:
    """Refuse entries that no frame reaches, because one of higher priority takes all of theirs; a line each."""
    places: dict[object, list[CompiledEntry]] = defaultdict(list)
    for each in compiled:
        places[place_of(each.entry)].append(each)
    lines = {chain.name: f"{experiment.file}:{chain.line}" for chain in experiment.chains}
    refused = dict.fromkeys(line for same in places.values() for line in _shadowed(same, lines))
    if refused:
        raise PlanError("\n".join(refused))


def _shadowed(same: list[CompiledEntry], lines: dict[str, str]) -> Iterator[str]:
    for low, high in shadowed(same, entry_of):
        one, other = high.segment.gap_id.chain, low.segment.gap_id.chain
        yield (
            f"{lines[other]}: entry '{low.entry.why}' of {_app(low)} on {low.entry.switch} is never reached: "
            f"entry '{high.entry.why}' ({_app(high)}) of chain {one!r} ({lines[one]}) has a higher priority and "
            f"matches the same frames; narrow `carries` of {one!r}, or change `carries` of {other!r}"
        )


def _app(compiled: CompiledEntry) -> str:
    return f"app {App(compiled.entry.cookie >> 48 & 0xFF).name.lower()}"
