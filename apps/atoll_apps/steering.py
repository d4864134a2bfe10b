# SPDX-License-Identifier: Apache-2.0
"""Steering: the segments of all apps, compiled to one flow table a switch."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from atoll_apps.compiler.flow_compiler import CompiledEntry, compile_segment
from atoll_apps.compiler.tag_allocation import ambiguous_pairs, by_ingress, shadowed_pairs, tag_segment, tap_vlans
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

_MAX_REASONS = 2  # reasons of an entry that are written out
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
        entries_by_key: dict[tuple[str, int, Match], list[FlowEntry]] = defaultdict(list)
        for entry in (item.entry for item in self.compiled):
            entries_by_key[entry.switch, entry.priority, entry.match].append(entry)
        return tuple(sorted((*map(_merge, entries_by_key.values()), *self.control), key=sort_key))


def flow_entries(network: Network, experiment: Experiment, layout: Layout = UNTAGGED) -> tuple[FlowEntry, ...]:
    """Every flow entry of the experiment, sorted by switch, priority (highest first) and match.

    Raises PlanError when frames of two segments cannot be distinguished, when there is no path, or when a chain takes
    all frames of another one's entry.
    """
    return steer(network, experiment, layout).entries


def steer(network: Network, experiment: Experiment, layout: Layout, reserved: frozenset[int] = frozenset()) -> Steering:
    """Compile every segment of every chain; tag frames of a chain where they are indistinguishable.

    ``reserved``: VLAN ids that are not available. Given the layout that it returned, it returns the same steering.
    Raises PlanError as :func:`flow_entries`.
    """
    return with_drop_entries(experiment, Compiler(network, experiment).steer(layout, reserved))


def with_drop_entries(experiment: Experiment, steering: Steering) -> Steering:
    """The steering with drop entries for its branches. Raises PlanError for entries that no frame reaches."""
    if not experiment.branches:
        return steering
    _refuse_shadowed(experiment, steering.compiled)
    return replace(steering, compiled=(*steering.compiled, *_drop_entries(steering.compiled)))


def _drop_entries(compiled: Iterable[CompiledEntry]) -> Iterator[CompiledEntry]:
    """An entry that drops, just below those of its chain, wherever another chain has a lower priority at that ingress.

    Where a chain's frames are forwarded host by host, frames for other addresses match no entry of that chain. Entries
    of a chain of lower priority at the same port would take them, possibly in a loop.
    """
    for entries in by_ingress(compiled).values():
        lowest = min(item.entry.priority for item in entries)
        drops: dict[FlowEntry, CompiledEntry] = {}
        for item in entries:
            entry, segment = item.entry, item.segment
            if entry.match.ipv4_dst != segment.stream.dst and entry.priority - 1 > lowest:
                match = replace(entry.match, ipv4_dst=segment.stream.dst)
                why = f"{segment.origin}: chain {segment.gap_id.chain}, to none of its hosts"
                drop = replace(entry, match=match, actions=(), priority=entry.priority - 1, why=why)
                drops[drop] = replace(item, entry=drop)
        yield from drops.values()


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

    def steer(self, layout: Layout, reserved: frozenset[int]) -> Steering:
        """As :func:`steer`, without drop entries, which only a complete plan needs."""
        entries: list[CompiledEntry] = []
        for route in routes(self._network, self._experiment, layout):
            segments = self._segments_of(route)
            compiled = {
                gap_id: self._compile(gap_id, gap_segments, layout) for gap_id, gap_segments in segments.items()
            }
            while conflict := self._conflict(route.chain, list(compiled.values())):
                gap_id, layout = tag_segment(self._network, layout, *conflict, reserved)
                compiled[gap_id] = self._compile(gap_id, segments[gap_id], layout)
            entries += itertools.chain.from_iterable(compiled.values())
        return Steering(tuple(entries), layout, self._control)

    def _conflict(self, chain: str, compiled: list[list[CompiledEntry]]) -> tuple[CompiledEntry, CompiledEntry] | None:
        """Two entries of a chain that match the same frames; None if there are none."""
        if self._unambiguous.get(chain) == compiled:
            return None
        conflict = next(ambiguous_pairs(itertools.chain.from_iterable(compiled)), None)
        if conflict is None:
            self._unambiguous[chain] = compiled
        return conflict

    def _segments_of(self, route: ChainRoute) -> dict[GapId, list[Segment]]:
        """The segments of a chain by gap. Only the traversals of a route depend on the layout."""
        key = route.chain, route.traversals
        if key not in self._segments:
            segments = self._segments[key] = defaultdict(list)
            for app in _APPS if route.blocks else ():
                for segment in app.segments(self._network, self._experiment, route):
                    segments[segment.gap_id].append(segment)
        return self._segments[key]

    def _compile(self, gap_id: GapId, segments: list[Segment], layout: Layout) -> list[CompiledEntry]:
        gap_vlan = layout.gap_vlan(gap_id.chain, gap_id.direction, gap_id.gap)
        cached_segments, entries = self._compiled.get((gap_id, gap_vlan), ([], []))
        if cached_segments != segments:
            compiled = (compile_segment(segment, self._topology, gap_vlan, self._taps) for segment in segments)
            entries = list(itertools.chain.from_iterable(compiled))
            self._compiled[gap_id, gap_vlan] = segments, entries
        return entries


def _merge(entries: list[FlowEntry]) -> FlowEntry:
    """One entry for several segments: with all their reasons and the lowest of their cookies."""
    reasons = list(dict.fromkeys(entry.why for entry in entries))
    more = len(reasons) - _MAX_REASONS
    reason = "; ".join(reasons[:_MAX_REASONS]) + (f"; and {more} more" if more > 0 else "")
    return replace(entries[0], cookie=min(entry.cookie for entry in entries), why=reason)


def _refuse_shadowed(experiment: Experiment, compiled: Iterable[CompiledEntry]) -> None:
    """Refuse entries that no frame reaches, because one of higher priority takes all of theirs; a line each."""
    lines = {chain.name: f"{experiment.file}:{chain.line}" for chain in experiment.chains}
    messages: dict[str, None] = {}
    for low, high in itertools.chain.from_iterable(map(shadowed_pairs, by_ingress(compiled).values())):
        winner, hidden = high.segment.gap_id.chain, low.segment.gap_id.chain
        text = (
            f"{lines[hidden]}: entry '{low.entry.why}' of {_app(low)} on {low.entry.switch} is never reached: "
            f"entry '{high.entry.why}' ({_app(high)}) of chain {winner!r} ({lines[winner]}) has a higher priority and "
            f"matches the same frames; narrow `carries` of {winner!r}, or change `carries` of {hidden!r}"
        )
        messages[text] = None
    if messages:
        raise PlanError("\n".join(messages))


def _app(compiled: CompiledEntry) -> str:
    return f"app {App(compiled.entry.cookie >> 48 & 0xFF).name.lower()}"
