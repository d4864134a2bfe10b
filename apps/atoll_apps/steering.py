# SPDX-License-Identifier: Apache-2.0
"""Steering: the legs of all apps as one table a switch, or the reason why they cannot be."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Network
from itertools import combinations

from atoll.model.errors import PlanError
from atoll.model.experiment import Experiment
from atoll.model.flow import FlowEntry, Match, Vlan, describe_actions, sort_key
from atoll.model.network import Network
from atoll.model.paths import Fabric
from atoll_apps import chain, delivery, latency
from atoll_apps.legs import lay

_NAMED = 2  # how many of an entry's reasons are spelt out


def flow_entries(network: Network, experiment: Experiment) -> tuple[FlowEntry, ...]:
    """Every flow entry of the experiment, sorted by switch, priority (highest first) and match.

    Raises PlanError when two legs cannot be told apart or frames would have to turn back at a switch.
    """
    fabric = Fabric.of(network)
    laid: dict[tuple[str, Match], list[FlowEntry]] = defaultdict(list)
    for app in (delivery, latency, chain):
        for leg in app.legs(network, experiment):
            for entry in lay(leg, fabric):
                laid[entry.switch, entry.match].append(entry)
    _refuse_ambiguous(
        entry for same in laid.values() for entry in {entry.actions: entry for entry in reversed(same)}.values()
    )
    return tuple(sorted((_merge(same) for same in laid.values()), key=sort_key))


def _merge(same: list[FlowEntry]) -> FlowEntry:
    """One entry for legs that agree on it: their reasons together, the lowest of their cookies."""
    reasons = list(dict.fromkeys(entry.why for entry in same))
    more = len(reasons) - _NAMED
    why = "; ".join(reasons[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
    return replace(same[0], cookie=min(entry.cookie for entry in same), why=why)


def _refuse_ambiguous(laid: Iterable[FlowEntry]) -> None:
    """Refuse entries of equal priority that one frame could match while they ask for different actions.

    OpenFlow 1.3.5, 6.4: which of them applies is undefined.
    """
    places: dict[tuple[str, int, int | Vlan | None], list[FlowEntry]] = defaultdict(list)
    for entry in laid:
        places[entry.switch, entry.match.in_port, entry.match.vlan].append(entry)
    for entries in places.values():
        for one, other in combinations(entries, 2):
            if one.actions != other.actions and _overlap(one.match, other.match):
                raise PlanError(_cannot_tell_apart(one, other))


def _cannot_tell_apart(one: FlowEntry, other: FlowEntry) -> str:
    legs = " and ".join(
        f"'{entry.why}' ({entry.match.ipv4_src} -> {entry.match.ipv4_dst}; {describe_actions(entry.actions)})"
        for entry in (one, other)
    )
    tag = "untagged" if one.match.vlan is Vlan.UNTAGGED else f"with VLAN tag {one.match.vlan}"
    return (
        f"two legs cannot be told apart: {legs}: both arrive at {one.switch}/{one.match.in_port} {tag}; "
        "attach boxes and taps that follow one another in the chain to one switch, "
        "or order them so that frames of one direction never cross a trunk twice"
    )


def _overlap(one: Match, other: Match) -> bool:
    return _prefixes_overlap(one.ipv4_src, other.ipv4_src) and _prefixes_overlap(one.ipv4_dst, other.ipv4_dst)


def _prefixes_overlap(one: IPv4Network | None, other: IPv4Network | None) -> bool:
    return one is None or other is None or one.overlaps(other)
