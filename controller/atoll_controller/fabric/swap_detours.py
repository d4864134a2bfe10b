# SPDX-License-Identifier: Apache-2.0
"""Detours of a swap: versions between the old and the new one where nothing distinguishes the packets of these two.

A routed box removes tags. If both versions contain it and differ before it and behind it, a swap cannot change both at
once. Two kinds of versions in between help: one that differs on one side of such a box only, and one without the box.
A version without any routed box that the neighbours contain can always be swapped to and from.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import combinations, permutations

from atoll_core.experiment.experiment import Chain, Experiment
from atoll_core.experiment.peers import find_peers
from atoll_core.experiment.tunnels import pairs_of
from atoll_core.lab.network import Network

Detour = tuple[Experiment, ...]

_MAX_GROUPS = 5  # groups of boxes; of more, only one or two are left out, or all
_MAX_PARTS = 4  # parts of a chain; of more, only two orders are tried


def detours(network: Network, old: Experiment, new: Experiment, renewed: Collection[str] = ()) -> Iterator[Detour]:
    """The versions to pass between two versions, in order of their effects on traffic, the smallest first.

    First detours that leave out no box, then those that leave out the fewest stateful boxes, the fewest boxes that
    encapsulate, and the fewest boxes. Boxes of a pair are left out together. The settings of links and boxes are those
    that are active during a swap: the old ones of all that the old version has. ``renewed``: boxes that are always left
    out.
    """
    bases = _bases(old, new)
    groups = _groups(network, old, new)
    boxes = {box.name: box for box in network.boxes}

    def effects(omitted: frozenset[str]) -> tuple[int, int, int]:
        dropped = [boxes[name] for name in omitted]
        return (sum(box.stateful for box in dropped), sum(bool(box.kind.encapsulates) for box in dropped), len(dropped))

    shared = boxes_of(old) & boxes_of(new)
    always_omitted = frozenset[str]().union(*(group for group in groups if group & {*renewed}))
    omissions = [always_omitted.union(*subset) for subset in _subsets([group for group in groups if group & shared])]
    seen_chains: set[tuple[tuple[Chain, ...], ...]] = set()
    for omitted in (*sorted(dict.fromkeys(omissions), key=effects), frozenset[str]().union(*groups)):
        first, last = (_without_boxes(network, version, omitted) for version in bases)
        detour = _distinct((bases[0], first, *_by_parts(groups, first, last), last, bases[1]))[1:-1]
        chains = tuple(version.chains for version in detour)
        if detour and chains not in seen_chains:
            seen_chains.add(chains)
            yield detour


def _bases(old: Experiment, new: Experiment) -> tuple[Experiment, Experiment]:
    """Both versions with the links and boxes as they are set during the swap."""
    links, boxes = list(old.links_over_time), list(old.boxes)
    links += [link for link in new.links_over_time if link.box not in {item.box for item in links}]
    boxes += [box for box in new.boxes if box.box not in {item.box for item in boxes}]
    first, last = (replace(item, links=tuple(links), boxes=tuple(boxes), schedule=()) for item in (old, new))
    return first, last


def boxes_of(version: Experiment) -> frozenset[str]:
    """The boxes and taps that a version's chains pass."""
    return frozenset(hop for chain in version.chains for hop in chain.hops)


def _groups(network: Network, old: Experiment, new: Experiment) -> list[frozenset[str]]:
    """The routed boxes of both versions, those of a pair together."""
    all_boxes = boxes_of(old) | boxes_of(new)
    groups = [frozenset({box.name}) for box in network.boxes if box.routed and box.name in all_boxes]
    for version in (old, new):
        used, (peers, _) = version.as_used(network), find_peers(network, version)
        pairs = [{world.name, island.name} for chain in version.chains for world, island in pairs_of(used, chain)]
        for pair in (*pairs, *({*chain.hops} & peers.keys() for chain in version.chains)):
            merged = [group for group in groups if group & pair]
            groups = [group for group in groups if group not in merged]
            groups += [frozenset[str]().union(*merged)] if merged else []
    return sorted(groups, key=sorted)


def _subsets(groups: list[frozenset[str]]) -> Iterator[tuple[frozenset[str], ...]]:
    sizes = range(len(groups) + 1)
    for size in sizes if len(groups) <= _MAX_GROUPS else (0, 1, 2, len(groups)):
        yield from combinations(groups, size)


def _without_boxes(network: Network, version: Experiment, omitted: frozenset[str]) -> Experiment:
    """A version without these boxes, and without the physical taps in their cables."""
    pairs = [pair for box in network.boxes if box.name in omitted for pair in box.pairs]
    cables = {leg.attached for pair in pairs for leg in (pair.world, pair.island)}
    taps = {tap.name for tap in network.taps if tap.physical and tap.interface.attached in cables}
    return _with_hops(version, lambda chain: tuple(hop for hop in chain.hops if hop not in omitted | taps))


def _with_hops(version: Experiment, hops: Callable[[Chain], tuple[str, ...]]) -> Experiment:
    chain, *branches = (replace(chain, hops=hops(chain)) for chain in (version.chain, *version.branches))
    return replace(version, chain=chain, branches=tuple(branches))


def _distinct(versions: Iterable[Experiment]) -> Detour:
    """The versions without those that equal the one before."""
    distinct: list[Experiment] = []
    for version in versions:
        if not distinct or distinct[-1].chains != version.chains:
            distinct.append(version)
    return tuple(distinct)


_Part = tuple[str, int]  # a chain, and which of its parts


def _by_parts(groups: Iterable[frozenset[str]], old: Experiment, new: Experiment) -> Iterator[Experiment]:
    """Versions that change from old to new one part of a chain at a time; parts begin at routed boxes of both versions.

    None if versions have other branches, or routed boxes in another order, or if there is no order in which each
    version has all boxes and taps of both once, and all pairs whole.
    """
    traffic = [[(chain.name, chain.carries) for chain in version.chains] for version in (old, new)]
    if traffic[0] != traffic[1]:
        return
    routed = frozenset[str]().union(*groups)
    chains = {a.name: (a.hops, b.hops) for a, b in zip(old.chains, new.chains, strict=True)}
    parts = {name: [_split(hops, routed & {*pair[0]} & {*pair[1]}) for hops in pair] for name, pair in chains.items()}
    if any([part[:1] for part in before[1:]] != [part[:1] for part in after[1:]] for before, after in parts.values()):
        return
    changed = [
        (name, i) for name, (before, after) in parts.items() for i in range(len(before)) if before[i] != after[i]
    ]
    orders = permutations(changed) if len(changed) <= _MAX_PARTS else iter((changed, changed[::-1]))

    def with_parts(taken: Iterable[_Part]) -> Experiment:
        def hops(chain: Chain) -> tuple[str, ...]:
            before, after = parts[chain.name]
            return tuple(hop for i in range(len(before)) for hop in (after if (chain.name, i) in taken else before)[i])

        return _with_hops(old, hops)

    def is_possible(chain: Chain) -> bool:
        passed, (before, after) = {*chain.hops}, chains[chain.name]
        keeps_groups = all(passed & group in (set(), {*before} & group, {*after} & group) for group in groups)
        return keeps_groups and len(passed) == len(chain.hops) and passed >= {*before} & {*after}

    for order in orders:
        versions = [with_parts(order[:count]) for count in range(1, len(order))]
        if all(is_possible(chain) for version in versions for chain in version.chains):
            yield from versions
            return


def _split(hops: tuple[str, ...], boundaries: Collection[str]) -> list[tuple[str, ...]]:
    """The parts of a chain: the first one before all of these boxes, the others from one of them on."""
    parts: list[tuple[str, ...]] = [()]
    for hop in hops:
        if hop in boundaries:
            parts.append(())
        parts[-1] += (hop,)
    return parts
