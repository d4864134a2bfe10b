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
from atoll_apps import chain, delivery, latency
from atoll_apps.legs import lay
from atoll_apps.paths import Fabric

_NAMED = 3  # how many of an entry's reasons are spelt out


def flow_entries(network: Network, experiment: Experiment) -> tuple[FlowEntry, ...]:
    """Every flow entry of the experiment, sorted by switch, priority (highest first) and match.

    Raises PlanError when two legs cannot be told apart or frames would have to turn back at a switch.
    """
    fabric = Fabric(network)
    laid: dict[tuple[str, Match], list[FlowEntry]] = defaultdict(list)
    for app in (delivery, latency, chain):
        for leg in app.legs(network, experiment):
            for entry in lay(leg, fabric):
                laid[entry.switch, entry.match].append(entry)
    _refuse_ambiguous(entry for same in laid.values() for entry in {entry.actions: entry for entry in reversed(same)}.values())
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
    for (switch, port, vlan), entries in places.items():
        for one, other in combinations(entries, 2):
            if one.actions != other.actions and _overlap(one.match, other.match):
                carried = vlan if vlan == Vlan.UNTAGGED else f"tagged {vlan}"
                msg = (
                    f"{switch}: two legs cannot be told apart: '{one.why}' ({one.match.ipv4_src} -> {one.match.ipv4_dst}) and "
                    f"'{other.why}' ({other.match.ipv4_src} -> {other.match.ipv4_dst}) both arrive at port {port} {carried}, "
                    f"but go on to {describe_actions(one.actions)} and to {describe_actions(other.actions)}; "
                    "attach boxes and taps that follow one another in the chain to the same switch, "
                    "or order them so that no trunk is crossed twice in one direction"
                )
                raise PlanError(msg)


def _overlap(one: Match, other: Match) -> bool:
    return _prefixes_overlap(one.ipv4_src, other.ipv4_src) and _prefixes_overlap(one.ipv4_dst, other.ipv4_dst)


def _prefixes_overlap(one: IPv4Network | None, other: IPv4Network | None) -> bool:
    return one is None or other is None or one.overlaps(other)
