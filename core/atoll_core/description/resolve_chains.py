# SPDX-License-Identifier: Apache-2.0
"""Check the chains of an experiment: the hops and the traffic of each."""

from collections.abc import Iterator

from atoll_core.description.raw_experiment import RawExperiment
from atoll_core.description.resolve_changes import DescribedVersion, described_versions, resolve_version
from atoll_core.description.resolve_lab import Lab
from atoll_core.description.validation_messages import Mistakes, nearest, on_line, suggest
from atoll_core.description.yaml_document import Document, KeyPath
from atoll_core.experiment.experiment import MAIN, Protocol, SteeringVersion, TrafficSelector
from atoll_core.lab.network import Network, Tap
from atoll_core.lab.port_ref import PortRef


def hops_of(raw: RawExperiment) -> tuple[str, ...]:
    """Every box and tap of any chain in any version, each once, those of ``chain`` first."""
    return tuple(dict.fromkeys(hop for version in described_versions(raw) for hop in version.hops))


def check_chains(raw: RawExperiment, lab: Lab, mistakes: Mistakes) -> None:
    """Note unknown or misplaced hops, and branches with impossible traffic, in any version."""
    reported: set[tuple[KeyPath, str]] = set()
    for version in described_versions(raw):
        since = f" (from {version.at} on)" if version.key_path else ""
        problems = [*_hop_mistakes(raw, lab, version), *_branch_mistakes(mistakes.document, lab.network, version)]
        for key_path, message in problems:
            if (key_path, message) not in reported:
                mistakes.note(
                    key_path, message + (since if key_path[: len(version.key_path)] != version.key_path else "")
                )
        reported |= set(problems)


def _hop_mistakes(raw: RawExperiment, lab: Lab, version: DescribedVersion) -> Iterator[tuple[KeyPath, str]]:
    yield from _check_hops(raw, lab, version.chain_path, version.chain)
    for branch, key_path in version.branches.values():
        yield from _check_hops(raw, lab, (*key_path, "chain"), tuple(branch.chain))


def _check_hops(raw: RawExperiment, lab: Lab, path: KeyPath, hops: tuple[str, ...]) -> Iterator[tuple[KeyPath, str]]:
    network = lab.network
    links = {box.name for box in network.boxes if box.is_link}
    names = (*lab.raw.boxes, *lab.raw.taps)
    physical = {tap.name: tap for tap in network.taps if tap.physical}
    misspelt = {nearest(name, sorted(links)) for name in raw.links if name not in lab.raw.boxes}
    for index, hop in enumerate(hops):
        key_path: KeyPath = (*path, index)
        if hop not in names:
            kind = lab.kind_of(hop)
            text = f"{hop!r} is a {kind}, but a chain consists of boxes and taps" if kind else ""
            yield key_path, f"{text or f'unknown box or tap {hop!r}'}; {suggest(hop, names, 'boxes and taps')}"
        elif hop in hops[:index]:
            yield key_path, f"{hop!r} occurs twice in the chain; keep one of them"
        elif hop in links and hop not in {*raw.links, *misspelt}:
            yield key_path, f"satellite emulator {hop!r} has no settings; add {hop!r} to links"
        elif (mistake := _pair_mistake(network, hop, hops)) or (
            hop in physical and (mistake := _tap_mistake(network, physical[hop], hops))
        ):
            yield key_path, mistake


def _pair_mistake(network: Network, hop: str, hops: tuple[str, ...]) -> str | None:
    """The mistake of a box whose counterpart is not in the chain; None if it is there, or none is needed."""
    kinds = {box.name: box.kind for box in network.boxes}
    kind = kinds.get(hop)
    if kind is None or not kind.pair:
        return None
    boxes, counterparts = (
        [name for name in hops if name in kinds and kinds[name].name == end] for end in (kind.name, kind.pair)
    )
    if len(boxes) == len(counterparts) and (kind.name != kind.pair or len(boxes) % 2 == 0):
        return None
    return f"{hop!r} is a {kind.name}, which needs a {kind.pair} at its other end; add one to the chain"


def _tap_mistake(network: Network, tap: Tap, hops: tuple[str, ...]) -> str | None:
    """The mistake of a physical tap that is not next to the box whose cable it is in; None if it is."""
    cable, index = tap.interface.attached, hops.index(tap.name)
    sides: dict[PortRef, tuple[str, int]] = {}
    for box in network.boxes:
        for pair in box.pairs:
            sides |= {pair.world.attached: (box.name, -1), pair.island.attached: (box.name, 1)}
    if cable not in sides:
        return None  # a trunk or a host's cable: frames may cross it at several places of the chain
    box, side = sides[cable]
    boxes = {chain_box.name for chain_box in network.boxes}
    neighbours = hops[index + 1 :] if side < 0 else hops[:index][::-1]
    if next((hop for hop in neighbours if hop in boxes), None) == box:
        return None
    return f"physical tap {tap.name!r} is in the cable of {box!r} at {cable}; put it next to {box!r}, on that side"


def _branch_mistakes(document: Document, network: Network, version: DescribedVersion) -> Iterator[tuple[KeyPath, str]]:
    first_by_traffic: dict[TrafficSelector, str] = {}
    for name, (branch, branch_path) in version.branches.items():
        key_path: KeyPath = (*branch_path, "carries")
        carries = TrafficSelector(**dict(branch.carries))
        if carries == TrafficSelector():
            text = "it selects no traffic; add a world prefix, an island prefix or a protocol"
            yield key_path, f"{text} ('chain' carries all other traffic)"
        ends = (("world", carries.world, network.world), ("island", carries.island, network.island))
        for end, prefix, end_network in ends:
            if prefix and not prefix.subnet_of(end_network):
                text = f"{prefix} is not within the lab's {end} network {end_network}; choose a part of that"
                yield (*key_path, end), text
        first = first_by_traffic.setdefault(carries, name)
        if first != name:
            text = f"branch {first!r}{on_line(document.line(version.branches[first][1]))}"
            yield key_path, f"{text} carries the same traffic; merge the two branches, or narrow one of them"
    if version.branches and len(first_by_traffic) == len(version.branches):
        for name, message in _chains_without_traffic(resolve_version(document, version), network):
            yield (*version.branches[name][1], "carries") if name != MAIN else version.chain_path, message


def _chains_without_traffic(version: SteeringVersion, network: Network) -> Iterator[tuple[str, str]]:
    """Chains without traffic: no hosts have such addresses, or more specific branches carry all of it."""
    chains = sorted((*version.branches, version.chain), key=lambda chain: -chain.carries.precedence)
    flows = [
        (world.address, island.address, kind)
        for world in network.world_hosts
        for island in network.island_hosts
        for kind in (*Protocol, None)
    ]
    carriers: dict[str, dict[str, None]] = {chain.name: {} for chain in chains}
    for flow in flows:
        matching = [chain.name for chain in chains if chain.carries.matches(*flow)]
        for name in matching:
            carriers[name][matching[0]] = None
    for chain in chains:
        if flows and chain.name not in carriers[chain.name]:
            names = ", ".join(map(repr, carriers[chain.name]))
            text = f"it carries no traffic: {names} {'carry' if ',' in names else 'carries'} all of it"
            no_hosts = "no two hosts of the lab have such traffic; name a prefix with hosts in it"
            yield chain.name, f"{text}; remove one of these branches, or narrow it" if names else no_hosts
