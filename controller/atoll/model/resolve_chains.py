# SPDX-License-Identifier: Apache-2.0
"""The chains of an experiment: the hops of each, whose traffic it carries, and that none stands idle."""

from collections.abc import Callable, Iterator

from atoll.model.document import Place
from atoll.model.experiment import MAIN, Carried, Chain, Protocol
from atoll.model.network import BoxKind, Network, PortRef, Tap
from atoll.model.parse import Parsed
from atoll.model.raw_experiment import RawExperiment
from atoll.model.resolve_lab import Lab
from atoll.model.wording import suggest

Wrong = Callable[[Place, str], None]


def resolve_chains(parsed: Parsed[RawExperiment]) -> tuple[Chain, tuple[Chain, ...]]:
    """The chain that carries the rest, and the branches."""
    raw, line = parsed.raw, parsed.document.line
    branches = tuple(
        Chain(
            name,
            tuple(branch.chain),
            Carried(branch.carries.world, branch.carries.island, branch.carries.protocol),
            line(("branches", name)),
        )
        for name, branch in raw.branches.items()
    )
    return Chain(MAIN, tuple(raw.chain), line=line(("chain",))), branches


def hops_of(raw: RawExperiment) -> tuple[str, ...]:
    """Every box and tap of every chain, each once, those of ``chain`` first."""
    chains = [raw.chain, *(branch.chain for branch in raw.branches.values())]
    return tuple(dict.fromkeys(hop for chain in chains for hop in chain))


def check_chains(parsed: Parsed[RawExperiment], lab: Lab, network: Network, wrong: Wrong) -> None:
    """Tell ``wrong`` of every hop that leads nowhere and every branch that carries what it cannot."""
    _check_hops(parsed, lab, network, ("chain",), parsed.raw.chain, wrong)
    for name, branch in parsed.raw.branches.items():
        _check_hops(parsed, lab, network, ("branches", name, "chain"), branch.chain, wrong)
    _check_branches(parsed, network, wrong)


def _check_hops(
    parsed: Parsed[RawExperiment], lab: Lab, network: Network, at: Place, hops: list[str], wrong: Wrong
) -> None:
    links = {box.name for box in network.boxes if box.kind is BoxKind.LINK}
    usable = (*lab.names("boxes"), *lab.names("taps"))
    physical = {tap.name: tap for tap in network.taps if tap.physical}
    for index, hop in enumerate(hops):
        place: Place = (*at, index)
        if not (lab.knows("boxes", hop) or lab.knows("taps", hop)):
            kind = lab.kind_of(hop)
            found = f"{hop!r} is a {kind}, and a chain holds boxes and taps" if kind else f"unknown box or tap {hop!r}"
            wrong(place, f"{found}; {suggest(hop, usable, 'boxes and taps')}")
        elif hop in hops[:index]:
            wrong(place, f"{hop!r} stands in the chain twice; keep one of them")
        elif hop in links and hop not in parsed.raw.links and parsed.whole("links"):
            wrong(place, f"satellite emulator {hop!r} has no settings; add {hop!r} to links")
        elif hop in physical and (elsewhere := _not_beside(network, physical[hop], hops)):
            wrong(place, elsewhere)


def _not_beside(network: Network, tap: Tap, hops: list[str]) -> str | None:
    """Why a physical tap cannot stand in its place of a chain: its cable is that of a box elsewhere."""
    cable, place = tap.interface.attached, hops.index(tap.name)
    legs: dict[PortRef, tuple[str, int]] = {}
    for box in network.boxes:
        for pair in box.pairs:
            legs |= {pair.world.attached: (box.name, -1), pair.island.attached: (box.name, 1)}
    if cable not in legs:
        return None  # a trunk or a host's cable: frames may cross it at several places of the chain
    box, side = legs[cable]
    boxes = {each.name for each in network.boxes}
    beside = hops[place + 1 :] if side < 0 else hops[place - 1 :: -1] if place else []
    if next((hop for hop in beside if hop in boxes), None) == box:
        return None
    return f"physical tap {tap.name!r} is in the cable of {box!r} at {cable}; put it beside {box!r}, on that side"


def _check_branches(parsed: Parsed[RawExperiment], network: Network, wrong: Wrong) -> None:
    raw = parsed.raw
    seen: dict[Carried, str] = {}
    for name, branch in raw.branches.items():
        place: Place = ("branches", name, "carries")
        carries = Carried(branch.carries.world, branch.carries.island, branch.carries.protocol)
        if carries == Carried() and parsed.whole("branches"):
            wrong(place, "it says nothing; name a world or island prefix or a protocol, the rest is carried by 'chain'")
        for end, prefix, around in (
            ("world", carries.world, network.world),
            ("island", carries.island, network.island),
        ):
            if prefix and not prefix.subnet_of(around):
                wrong((*place, end), f"{prefix} is not within the lab's {end} network {around}; choose a part of that")
        first = seen.setdefault(carries, name)
        if first != name:
            line = parsed.document.line(("branches", first))
            wrong(place, f"branch {first!r} (line {line}) carries the same; merge the two or let one carry less")
    if raw.branches and len(seen) == len(raw.branches) and parsed.whole("branches"):
        for name, message in _idle(parsed, network):
            wrong(("branches", name, "carries") if name != MAIN else ("chain",), message)


def _idle(parsed: Parsed[RawExperiment], network: Network) -> Iterator[tuple[str, str]]:
    """Chains to which nothing is left: no hosts have such addresses, or branches that carry less take all of it."""
    main, branches = resolve_chains(parsed)
    chains = sorted((*branches, main), key=lambda chain: -chain.carries.precedence)
    asked = [
        (world.address, island.address, kind)
        for world in network.world_hosts
        for island in network.island_hosts
        for kind in (*Protocol, None)
    ]
    takers: dict[str, dict[str, None]] = {chain.name: {} for chain in chains}
    for one in asked:
        willing = [chain.name for chain in chains if chain.carries.takes(*one)]
        for name in willing:
            takers[name][willing[0]] = None
    for chain in chains:
        if asked and chain.name not in takers[chain.name]:
            others = ", ".join(map(repr, takers[chain.name]))
            yield (
                chain.name,
                f"nothing is left for it: {others} {'take' if ',' in others else 'takes'} all of it; "
                "remove one of them or let it carry less"
                if others
                else "no two hosts of the lab have such traffic; name a prefix with hosts in it",
            )
