# SPDX-License-Identifier: Apache-2.0
"""The versions of an experiment: at the start, and after each of its ``changes``.

A change has the differences to the version before. Chain, branches, latencies, load and settings of links that it does
not name stay. ``null`` removes a branch, a latency or a loss.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from atoll_core.description.raw_experiment import RawBranch, RawChange, RawExperiment, RawLink, RawLinkChange
from atoll_core.description.raw_traffic import RawGroupChange, RawTraffic, RawTrafficChange, RawUdp
from atoll_core.description.raw_types import Raw
from atoll_core.description.validation_messages import Mistakes, on_line, suggest
from atoll_core.description.yaml_document import Document, KeyPath
from atoll_core.experiment.experiment import DIRECTIONS, MAIN, Chain, SteeringVersion, TrafficSelector
from atoll_core.units import Duration


@dataclass(frozen=True, slots=True)
class DescribedVersion:
    """One version in terms of the description, with the key paths of its parts."""

    at: Duration  # since the load began
    key_path: KeyPath  # of the change; (): as the experiment begins
    chain: tuple[str, ...]
    chain_path: KeyPath
    branches: Mapping[str, tuple[RawBranch, KeyPath]]
    latency: Mapping[str, str]
    traffic: RawTraffic
    udp: RawUdp | None
    links: Mapping[str, RawLink]

    @property
    def content(self) -> tuple[object, ...]:
        """All that a change may change, for comparisons."""
        branches = {name: branch for name, (branch, _) in self.branches.items()}
        return self.chain, branches, dict(self.latency), self.traffic, self.udp, dict(self.links)

    @property
    def hops(self) -> tuple[str, ...]:
        """Boxes and taps of its chains, those of the main one first."""
        chains = (self.chain, *(branch.chain for branch, _ in self.branches.values()))
        return tuple(dict.fromkeys(hop for chain in chains for hop in chain))


def described_versions(raw: RawExperiment) -> tuple[DescribedVersion, ...]:
    """Every version, in the order of the file."""
    branches = {name: (branch, ("branches", name)) for name, branch in raw.branches.items()}
    first = DescribedVersion(
        Duration(0), (), tuple(raw.chain), ("chain",), branches, raw.latency, raw.traffic, raw.udp, raw.links
    )
    versions = [first]
    for index, change in enumerate(raw.changes):
        versions.append(_next_version(versions[-1], change, ("changes", index)))
    return tuple(versions)


def _next_version(previous: DescribedVersion, change: RawChange, key_path: KeyPath) -> DescribedVersion:
    branches = dict(previous.branches)
    for name, branch in change.branches.items():
        branches.pop(name, None)
        if branch is not None:
            branches[name] = (branch, (*key_path, "branches", name))
    latency = {server: name for server, name in {**previous.latency, **change.latency}.items() if name is not None}
    has_chain = change.chain is not None
    return DescribedVersion(
        at=change.at,
        key_path=key_path,
        chain=previous.chain if change.chain is None else tuple(change.chain),
        chain_path=(*key_path, "chain") if has_chain else previous.chain_path,
        branches=branches,
        latency=latency,
        traffic=_changed_traffic(previous.traffic, change.traffic or RawTrafficChange()),
        udp=previous.udp and previous.udp.model_copy(update=_updates(change.udp)),
        links={name: _changed_link(link, change.links.get(name)) for name, link in previous.links.items()},
    )


def _updates(change: Raw | None) -> dict[str, Any]:
    """The keys that a change has; null is left out but where it removes a loss."""
    keys = {key: getattr(change, key) for key in change.model_fields_set} if change else {}
    return {key: value for key, value in keys.items() if value is not None or key == "loss"}


def _changed_traffic(traffic: RawTraffic, change: RawTrafficChange) -> RawTraffic:
    groups = {name: g.model_copy(update=_updates(change.groups.get(name))) for name, g in traffic.groups.items()}
    return traffic.model_copy(update={**_updates(change), "groups": groups})


def _changed_link(link: RawLink, change: RawLinkChange | None) -> RawLink:
    if change is None:
        return link
    directions = {name: getattr(link, name).model_copy(update=_updates(getattr(change, name))) for name in DIRECTIONS}
    return link.model_copy(update=directions)


def resolve_version(document: Document, version: DescribedVersion) -> SteeringVersion:
    """Convert the version to a SteeringVersion."""
    line = document.line
    return SteeringVersion(
        at=version.at,
        chain=Chain(MAIN, version.chain, line=line(version.chain_path)),
        branches=tuple(
            Chain(name, tuple(branch.chain), TrafficSelector(**dict(branch.carries)), line(key_path))
            for name, (branch, key_path) in version.branches.items()
        ),
        latency=tuple(version.latency.items()),
        line=line(version.key_path) if version.key_path else 0,
    )


def check_changes(raw: RawExperiment, mistakes: Mistakes) -> None:
    """Note changes out of order, after the end, without effect, or of parts that do not exist."""
    for key_path, message in _change_mistakes(raw, mistakes.document):
        mistakes.note(key_path, message)


def _change_mistakes(raw: RawExperiment, document: Document) -> Iterator[tuple[KeyPath, str]]:
    versions = described_versions(raw)
    for index, (change, before, after) in enumerate(zip(raw.changes, versions[:-1], versions[1:], strict=True)):
        if change.at >= raw.duration:
            yield (*after.key_path, "at"), f"{change.at} is not before the end at {raw.duration}; make it earlier"
        if before.key_path and change.at <= before.at:
            message = f"{change.at} is not after change {index} at {before.at}{on_line(document.line(before.key_path))}"
            yield (
                (*after.key_path, "at"),
                f"{message}; list changes in order of time, and merge changes of the same time",
            )
        if not change.model_fields_set - {"at"}:
            yield after.key_path, "this change is empty; name a chain, branches, latency, traffic, udp or links"
        elif wrong := list(_load_mistakes(raw, change, after)):
            yield from wrong
        elif before.content == after.content:
            yield after.key_path, "this change has no effect, because all of it is already in effect; remove it"
        for name, branch in change.branches.items():
            if branch is None and name not in before.branches:
                suggestion = suggest(name, before.branches, "branches")
                yield (*after.key_path, "branches", name), f"no branch {name!r} exists then; {suggestion}"


def _load_mistakes(raw: RawExperiment, change: RawChange, after: DescribedVersion) -> Iterator[tuple[KeyPath, str]]:
    if change.udp and raw.udp is None:
        yield (*after.key_path, "udp"), "the experiment has no UDP whose rate could change; add 'udp' to it"
    if change.traffic:
        yield from _traffic_mistakes(raw.traffic, change.traffic, after)
    for name, link in change.links.items():
        key_path = (*after.key_path, "links", name)
        if name not in raw.links:
            yield key_path, f"{name!r} has no settings that could change; {suggest(name, raw.links, 'links')}"
        else:
            for direction in DIRECTIONS:
                if _updates(getattr(link, direction)) and getattr(raw.links[name], direction).trace is not None:
                    yield (*key_path, direction), "it follows a trace; write the change into that"


def _traffic_mistakes(
    start: RawTraffic, change: RawTrafficChange, after: DescribedVersion
) -> Iterator[tuple[KeyPath, str]]:
    changed: dict[KeyPath, RawGroupChange] = {(): change}
    changed |= {("groups", name): group for name, group in change.groups.items()}
    loads = start.loads
    for part, given in changed.items():
        key_path = (*after.key_path, "traffic", *part)
        if part not in loads:
            text = f"no group {part[-1]!r} exists at the start; {suggest(part[-1], start.groups, 'groups')}"
            yield key_path, text
        elif given.flows_per_s is not None and loads[part].flows_per_s is None:
            text = "the load is a closed loop; write flows_per_s in the experiment's traffic, too, or change channels"
            yield (*key_path, "flows_per_s"), text
    for part, load in after.traffic.loads.items():
        if load.flows_per_s is not None and load.channels == 0:  # by a change of the group, or one that it follows
            key_path = (*after.key_path, "traffic", *(part if part in changed else ("channels",)))
            of = f" of group {part[-1]!r}" if part else ""
            yield key_path, f"flows_per_s{of} begins flows, and 0 channels have none; keep at least 1 channel"
