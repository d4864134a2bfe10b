# SPDX-License-Identifier: Apache-2.0
"""The versions of an experiment's steering: at the start, and after each of its ``changes``.

A change has the differences to the version before. The chain, branches and latencies that it does not name stay.
``null`` removes a branch or a latency.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from atoll_core.description.parser import Parsed
from atoll_core.description.raw_experiment import RawBranch, RawChange, RawExperiment
from atoll_core.description.validation_messages import on_line, suggest
from atoll_core.description.yaml_document import Place
from atoll_core.experiment.experiment import MAIN, Chain, SteeringVersion, TrafficSelector
from atoll_core.units import Duration

Wrong = Callable[[Place, str], None]


@dataclass(frozen=True, slots=True)
class DescribedVersion:
    """One version in terms of the description, with the places of its parts."""

    at: Duration  # since the load began
    place: Place  # of the change; (): as the experiment begins
    chain: tuple[str, ...]
    chain_at: Place
    branches: Mapping[str, tuple[RawBranch, Place]]
    latency: Mapping[str, str]

    @property
    def steers(self) -> tuple[object, ...]:
        """Its chains and latencies, for comparisons."""
        return self.chain, {name: branch for name, (branch, _) in self.branches.items()}, dict(self.latency)

    @property
    def hops(self) -> tuple[str, ...]:
        """Boxes and taps of its chains, those of the main one first."""
        chains = (self.chain, *(branch.chain for branch, _ in self.branches.values()))
        return tuple(dict.fromkeys(hop for chain in chains for hop in chain))


def described_versions(raw: RawExperiment) -> tuple[DescribedVersion, ...]:
    """Every version, in the order of the file."""
    branches = {name: (branch, ("branches", name)) for name, branch in raw.branches.items()}
    versions = [DescribedVersion(Duration(0), (), tuple(raw.chain), ("chain",), branches, raw.latency)]
    for index, change in enumerate(raw.changes):
        versions.append(_changed(versions[-1], change, ("changes", index)))
    return tuple(versions)


def _changed(before: DescribedVersion, change: RawChange, place: Place) -> DescribedVersion:
    branches = dict(before.branches)
    for name, branch in change.branches.items():
        branches.pop(name, None)
        if branch is not None:
            branches[name] = (branch, (*place, "branches", name))
    latency = {server: known for server, known in {**before.latency, **change.latency}.items() if known is not None}
    named = change.chain is not None
    return DescribedVersion(
        at=change.at,
        place=place,
        chain=before.chain if change.chain is None else tuple(change.chain),
        chain_at=(*place, "chain") if named else before.chain_at,
        branches=branches,
        latency=latency,
    )


def resolve_version(parsed: Parsed[RawExperiment], version: DescribedVersion) -> SteeringVersion:
    """Convert the version to a SteeringVersion."""
    line = parsed.document.line
    return SteeringVersion(
        at=version.at,
        chain=Chain(MAIN, version.chain, line=line(version.chain_at)),
        branches=tuple(
            Chain(
                name,
                tuple(branch.chain),
                TrafficSelector(branch.carries.world, branch.carries.island, branch.carries.protocol),
                line(place),
            )
            for name, (branch, place) in version.branches.items()
        ),
        latency=tuple(version.latency.items()),
        line=line(version.place) if version.place else 0,
    )


def check_changes(parsed: Parsed[RawExperiment], wrong: Wrong) -> None:
    """Report changes out of order, after the end, without effect, or of unknown branches to ``wrong``."""
    for place, message in _mistakes(parsed):
        wrong(place, message)


def _mistakes(parsed: Parsed[RawExperiment]) -> Iterator[tuple[Place, str]]:
    raw, line = parsed.raw, parsed.document.line
    versions = described_versions(raw)
    for index, (change, before, after) in enumerate(zip(raw.changes, versions[:-1], versions[1:], strict=True)):
        if parsed.reads(("duration",)) and change.at >= raw.duration:
            yield (*after.place, "at"), f"{change.at} is not before the end at {raw.duration}; make it earlier"
        ats = ((*before.place, "at"), (*after.place, "at"))
        if before.place and change.at <= before.at and parsed.reads(*ats):
            first = f"{change.at} is not after change {index} at {before.at}{on_line(line(before.place))}"
            yield (*after.place, "at"), f"{first}; list changes in order of time, and merge changes of the same time"
        steering = ("chain", "branches", "latency", "changes")
        if change.chain is None and not change.branches and not change.latency:
            if parsed.reads(after.place):
                yield after.place, "this change is empty; name a chain, branches or latency"
        elif before.steers == after.steers and parsed.whole(*steering) and parsed.reads(*((key,) for key in steering)):
            yield after.place, "this change has no effect, because all of it is already in effect; remove it"
        for name, branch in change.branches.items():
            if branch is None and name not in before.branches and parsed.whole("branches", "changes"):
                known = suggest(name, before.branches, "branches")
                yield (*after.place, "branches", name), f"no branch {name!r} exists then; {known}"
