# SPDX-License-Identifier: Apache-2.0
"""Steering: the legs of all apps as one table a switch, or the reason why they cannot be."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain as joined

from atoll.model.errors import PlanError
from atoll.model.experiment import Experiment
from atoll.model.flow import FlowEntry, Match, sort_key
from atoll.model.layout import HOME, Layout
from atoll.model.network import Network
from atoll.model.paths import Fabric
from atoll_apps import chain, delivery, latency
from atoll_apps.apart import alike, place_of, tag_stretch, tap_vlans
from atoll_apps.guards import guards
from atoll_apps.laying import Laid, lay
from atoll_apps.legs import App, Leg, Stretch
from atoll_apps.overlap import covers
from atoll_apps.route import routes

_NAMED = 2  # how many of an entry's reasons are spelt out
_APPS = (delivery, latency, chain)


@dataclass(frozen=True, slots=True)
class Steering:
    """What is laid for an experiment, and the layout that tells its frames apart."""

    laid: tuple[Laid, ...]
    layout: Layout

    @property
    def entries(self) -> tuple[FlowEntry, ...]:
        """The flow entries, each once, sorted by switch, priority (highest first) and match."""
        same: dict[tuple[str, int, Match], list[FlowEntry]] = defaultdict(list)
        for each in self.laid:
            same[each.entry.switch, each.entry.priority, each.entry.match].append(each.entry)
        return tuple(sorted(map(_merge, same.values()), key=sort_key))


def flow_entries(network: Network, experiment: Experiment, layout: Layout = HOME) -> tuple[FlowEntry, ...]:
    """Every flow entry of the experiment, sorted by switch, priority (highest first) and match.

    Raises PlanError when two legs cannot be told apart, no trunk leads where frames have to go, or a chain leaves
    another's entries nothing to do.
    """
    return steer(network, experiment, layout).entries


def steer(network: Network, experiment: Experiment, layout: Layout, taken: frozenset[int] = frozenset()) -> Steering:
    """Lay every leg of every chain; where legs of one chain look alike, tag them. ``taken``: VLAN ids not to use.

    Given the layout that it returned, it returns the same. Raises PlanError as :func:`flow_entries`.
    """
    fabric = Fabric.of(network)
    legs: dict[Stretch, list[Leg]] = defaultdict(list)
    for route in routes(network, experiment, layout):
        if route.pairs:
            for leg in joined.from_iterable(app.legs(network, experiment, route) for app in _APPS):
                legs[leg.stretch].append(leg)
    taps = tap_vlans(network)
    laid = {stretch: _lay(found, fabric, layout, taps) for stretch, found in legs.items()}
    while clash := next(alike(joined.from_iterable(laid.values())), None):
        layout = tag_stretch(network, layout, *clash, taken)
        tag = layout.gaps[-1]
        stretch = Stretch(tag.chain, tag.direction, tag.gap)
        laid[stretch] = _lay(legs[stretch], fabric, layout, taps)
    every = tuple(joined.from_iterable(laid.values()))
    if experiment.branches:
        _refuse_shadowed(experiment, every)
        every += tuple(guards(every))
    return Steering(every, layout)


def _lay(legs: Iterable[Leg], fabric: Fabric, layout: Layout, taps: Mapping[str, int]) -> list[Laid]:
    return [
        laid
        for leg in legs
        for laid in lay(leg, fabric, layout.gap_vlan(leg.stretch.chain, leg.stretch.direction, leg.stretch.gap), taps)
    ]


def _merge(same: list[FlowEntry]) -> FlowEntry:
    """One entry for legs that agree on it: their reasons together, the lowest of their cookies."""
    reasons = list(dict.fromkeys(entry.why for entry in same))
    more = len(reasons) - _NAMED
    why = "; ".join(reasons[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
    return replace(same[0], cookie=min(entry.cookie for entry in same), why=why)


def _refuse_shadowed(experiment: Experiment, laid: Iterable[Laid]) -> None:
    """Refuse entries that no frame ever reaches, because one of higher priority takes all of theirs; a line each."""
    places: dict[object, list[Laid]] = defaultdict(list)
    for each in laid:
        places[place_of(each.entry)].append(each)
    lines = {chain.name: f"{experiment.file}:{chain.line}" for chain in experiment.chains}
    refused = dict.fromkeys(line for same in places.values() for line in _shadowed(same, lines))
    if refused:
        raise PlanError("\n".join(refused))


def _shadowed(same: list[Laid], lines: dict[str, str]) -> Iterator[str]:
    for low in same:
        for high in same:
            if high.entry.priority > low.entry.priority and covers(high.entry.match, low.entry.match):
                one, other = high.leg.stretch.chain, low.leg.stretch.chain
                yield (
                    f"{lines[other]}: entry '{low.entry.why}' of {_app(low)} on {low.entry.switch} is never reached: "
                    f"chain {one!r} ({lines[one]}) takes all its frames by '{high.entry.why}' of {_app(high)}; "
                    f"let {one!r} carry less, or {other!r} something else"
                )
                break


def _app(laid: Laid) -> str:
    return f"app {App(laid.entry.cookie >> 48 & 0xFF).name.lower()}"
