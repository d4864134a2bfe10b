# SPDX-License-Identifier: Apache-2.0
"""Steering: the legs of all apps as one table a switch, or the reason why they cannot be."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain as joined

from atoll_apps.compiler.drop_entries import guards
from atoll_apps.compiler.flow_compiler import CompiledEntry, compile_segment
from atoll_apps.compiler.overlap import shadowed
from atoll_apps.compiler.tag_allocation import ambiguous_pairs, entry_of, place_of, tag_segment, tap_vlans
from atoll_apps.segments import chain, delivery, latency
from atoll_apps.segments.chain_routes import BoxTraversal, ChainRoute, routes
from atoll_apps.segments.segment import App, Segment, SegmentId
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.lab.shortest_paths import Topology
from atoll_core.plan.flow_entry import FlowEntry, Match, sort_key
from atoll_core.plan.tag_layout import UNTAGGED, Layout

_NAMED = 2  # how many of an entry's reasons are spelt out
_APPS = (delivery, latency, chain)


@dataclass(frozen=True, slots=True)
class Steering:
    """What is laid for an experiment, and the layout that tells its frames apart."""

    laid: tuple[CompiledEntry, ...]
    layout: Layout

    @property
    def entries(self) -> tuple[FlowEntry, ...]:
        """The flow entries, each once, sorted by switch, priority (highest first) and match."""
        same: dict[tuple[str, int, Match], list[FlowEntry]] = defaultdict(list)
        for each in self.laid:
            same[each.entry.switch, each.entry.priority, each.entry.match].append(each.entry)
        return tuple(sorted(map(_merge, same.values()), key=sort_key))


def flow_entries(network: Network, experiment: Experiment, layout: Layout = UNTAGGED) -> tuple[FlowEntry, ...]:
    """Every flow entry of the experiment, sorted by switch, priority (highest first) and match.

    Raises PlanError when two legs cannot be told apart, no trunk leads where frames have to go, or a chain leaves
    another's entries nothing to do.
    """
    return steer(network, experiment, layout).entries


def steer(network: Network, experiment: Experiment, layout: Layout, taken: frozenset[int] = frozenset()) -> Steering:
    """Lay every leg of every chain; where legs of one chain look alike, tag them. ``taken``: VLAN ids not to use.

    Given the layout that it returned, it returns the same. Raises PlanError as :func:`flow_entries`.
    """
    return guarded(experiment, Layer(network, experiment).steer(layout, taken))


def guarded(experiment: Experiment, steering: Steering) -> Steering:
    """The steering with the guards of its branches. Raises PlanError for entries that no frame ever reaches."""
    if not experiment.branches:
        return steering
    _refuse_shadowed(experiment, steering.laid)
    return replace(steering, laid=(*steering.laid, *guards(steering.laid)))


class Layer:
    """Lays the legs of one experiment by one layout after the other; a search for a layout tries many.

    What two layouts have in common is laid once: the legs of a chain whose boxes are passed alike, and their entries
    where the tag on the trunks is the same, too.
    """

    def __init__(self, network: Network, experiment: Experiment) -> None:
        self._network = network
        self._experiment = experiment
        self._fabric = Topology.of(network)
        self._taps = tap_vlans(network)
        self._legs: dict[tuple[str, tuple[BoxTraversal, ...]], dict[SegmentId, list[Segment]]] = {}
        self._laid: dict[tuple[SegmentId, int | None], tuple[list[Segment], list[CompiledEntry]]] = {}
        self._apart: dict[str, list[list[CompiledEntry]]] = {}  # by chain, what was found to be told apart last

    def steer(self, layout: Layout, taken: frozenset[int]) -> Steering:
        """As :func:`steer`, without the guards, which only a whole plan needs."""
        found: list[CompiledEntry] = []
        for route in routes(self._network, self._experiment, layout):
            legs = self._legs_of(route)
            laid = {stretch: self._lay(stretch, each, layout) for stretch, each in legs.items()}
            while clash := self._clash(route.chain, list(laid.values())):
                layout = tag_segment(self._network, layout, *clash, taken)
                tag = layout.gaps[-1]
                stretch = SegmentId(tag.chain, tag.direction, tag.gap)
                laid[stretch] = self._lay(stretch, legs[stretch], layout)
            found += joined.from_iterable(laid.values())
        return Steering(tuple(found), layout)

    def _clash(self, chain: str, laid: list[list[CompiledEntry]]) -> tuple[CompiledEntry, CompiledEntry] | None:
        """Two of a chain's entries that nothing tells apart."""
        if self._apart.get(chain) == laid:
            return None
        clash = next(ambiguous_pairs(joined.from_iterable(laid)), None)
        if clash is None:
            self._apart[chain] = laid
        return clash

    def _legs_of(self, route: ChainRoute) -> dict[SegmentId, list[Segment]]:
        """The legs of a chain by stretch. Of a route, only how it passes its boxes is the layout's."""
        key = route.chain, route.passages
        if key not in self._legs:
            found: dict[SegmentId, list[Segment]] = defaultdict(list)
            for app in _APPS if route.blocks else ():
                for leg in app.segments(self._network, self._experiment, route):
                    found[leg.stretch].append(leg)
            self._legs[key] = found
        return self._legs[key]

    def _lay(self, stretch: SegmentId, legs: list[Segment], layout: Layout) -> list[CompiledEntry]:
        carry = layout.gap_vlan(stretch.chain, stretch.direction, stretch.gap)
        known, laid = self._laid.get((stretch, carry), ([], []))
        if known != legs:
            laid = [each for leg in legs for each in compile_segment(leg, self._fabric, carry, self._taps)]
            self._laid[stretch, carry] = legs, laid
        return laid


def _merge(same: list[FlowEntry]) -> FlowEntry:
    """One entry for legs that agree on it: their reasons together, the lowest of their cookies."""
    reasons = list(dict.fromkeys(entry.why for entry in same))
    more = len(reasons) - _NAMED
    why = "; ".join(reasons[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
    return replace(same[0], cookie=min(entry.cookie for entry in same), why=why)


def _refuse_shadowed(experiment: Experiment, laid: Iterable[CompiledEntry]) -> None:
    """Refuse entries that no frame ever reaches, because one of higher priority takes all of theirs; a line each."""
    places: dict[object, list[CompiledEntry]] = defaultdict(list)
    for each in laid:
        places[place_of(each.entry)].append(each)
    lines = {chain.name: f"{experiment.file}:{chain.line}" for chain in experiment.chains}
    refused = dict.fromkeys(line for same in places.values() for line in _shadowed(same, lines))
    if refused:
        raise PlanError("\n".join(refused))


def _shadowed(same: list[CompiledEntry], lines: dict[str, str]) -> Iterator[str]:
    for low, high in shadowed(same, entry_of):
        one, other = high.leg.stretch.chain, low.leg.stretch.chain
        yield (
            f"{lines[other]}: entry '{low.entry.why}' of {_app(low)} on {low.entry.switch} is never reached: "
            f"chain {one!r} ({lines[one]}) takes all its frames by '{high.entry.why}' of {_app(high)}; "
            f"let {one!r} carry less, or {other!r} something else"
        )


def _app(laid: CompiledEntry) -> str:
    return f"app {App(laid.entry.cookie >> 48 & 0xFF).name.lower()}"
