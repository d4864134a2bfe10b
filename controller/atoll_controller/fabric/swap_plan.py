# SPDX-License-Identifier: Apache-2.0
"""Plan a swap: a change of chains and latencies under traffic in which a packet takes the old or the new version.

The plan has the entries to add and delete in each stage, the probes, and the time in which the old version drains.
Stages are carried out in order. Within a stage entries are added first, higher priorities before lower ones (an entry
of equal priority and match is replaced). Then entries are deleted, lower priorities first. So no packet falls through
to an entry of another chain. Switches may reorder messages: a barrier belongs between priorities.

    install   add the new version's entries; no packet takes them yet
    probe     frames sent as the edge will send them arrive through the new version (barriers alone prove nothing)
    shift     change the edge: packets take the new version from now on; frames of hosts show when
    drain     wait until packets have left the old version
    collect   delete the old version's entries

Where nothing distinguishes the packets of both versions, a swap has several parts, with versions in between
(``swap_detours``). Each part has all these stages.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain as joined

from atoll_apps.cutover import CutoverPoints
from atoll_apps.steering import Steering, steer
from atoll_apps.version_separation import steer_transition
from atoll_controller.fabric.swap_detours import detours
from atoll_controller.fabric.swap_probes import Probe, Probes
from atoll_controller.planner.running_changes import renewed_boxes
from atoll_controller.tracing.table_model import SwitchTables
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import Chain, Experiment, LinkDirection
from atoll_core.experiment.peers import find_peers
from atoll_core.experiment.residence import residence_ns
from atoll_core.lab.network import Network
from atoll_core.plan.flow_entry import EntryId, FlowEntry
from atoll_core.plan.tag_layout import Layout
from atoll_switches.capability_profile import refuse_unsupported

# Switches, hosts and boxes delay packets by a time that no description has.
SLACK_NS = 100_000_000


class Subject(StrEnum):
    """The subject of a stage: latencies and chains are changed one after the other."""

    LATENCY = "latency"
    CHAINS = "chains"


class StageKind(StrEnum):
    """The kind of a stage."""

    INSTALL = "install"
    PROBE = "probe"
    SHIFT = "shift"
    DRAIN = "drain"
    COLLECT = "collect"


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a swap.

    ``probes``: in a probe stage, frames that a switch sends by the actions of ``entry``, as from its ingress port
    (packet-out, OpenFlow 1.3.5, 7.3.7), before the entry is in its table. In a shift, frames of hosts, whose path shows
    the version that the edge uses: one for each added or deleted entry. In a drain, frames of the old version that a
    switch sends after the last packets.

    ``wait_ns``: the least time to wait at the end of the stage. ``undo_wait_ns``, of a shift: how long packets may be
    within the new version after the shift was undone. ``part``: the part of the swap that it belongs to, from 0.
    ``moved``, of a shift: the boxes whose connections it breaks.
    """

    subject: Subject
    kind: StageKind
    add: tuple[FlowEntry, ...] = ()
    delete: tuple[FlowEntry, ...] = ()
    probes: tuple[Probe, ...] = ()
    wait_ns: int = 0
    undo_wait_ns: int = 0
    part: int = 0
    moved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SwapPart:
    """A change from one version to the next: of latencies, or of chains.

    ``moved``: stateful boxes for which packets of connections start, stop, or change the ports. These connections break
    unless the swap waits for their end. ``without``: the boxes that the old and the new version of the whole swap pass,
    but no packet does after this part. ``uncoded``: those of them that encapsulate packets, as coders do. ``renewed``:
    those whose programs begin again, with other settings, behind this part.
    """

    subject: Subject
    before: Experiment
    after: Experiment
    moved: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    uncoded: tuple[str, ...] = ()
    renewed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Swap:
    """The whole change. ``layout`` is that of the new version: its entries are ``flow_entries(.., layout)``.

    ``parts``: its changes in order, several of chains if there is a detour.
    """

    stages: tuple[Stage, ...]
    layout: Layout
    parts: tuple[SwapPart, ...] = ()

    @property
    def moved(self) -> tuple[str, ...]:
        """The stateful boxes whose connections any part breaks."""
        return tuple(dict.fromkeys(box for part in self.parts for box in part.moved))

    @property
    def versions(self) -> tuple[Experiment, ...]:
        """Every version that packets take, the old one first."""
        return (*(part.before for part in self.parts[:1]), *(part.after for part in self.parts))

    def drain_ns(self, part: int) -> int:
        """The least time that the drains of a part take."""
        return sum(stage.wait_ns for stage in self.stages if stage.part == part)


def plan_swap(network: Network, old: Experiment, layout: Layout, new: Experiment) -> Swap:
    """The swap from an experiment that is active with ``layout`` to another one of the same network.

    Latencies change first, then chains. If this is refused, chains change first; if this is refused, too, chains change
    by a detour, and latencies in any of its versions. A detour also leaves out the boxes whose programs have to begin
    again. It has no stages if nothing changes on the switches. Raises PlanError with the frames that cannot be
    distinguished and the remedy, if no detour helps.
    """
    renewed = renewed_boxes(network, old, new)
    changes = _changes(network, old, steer(network, old, layout), new, renewed)
    stages: list[Stage] = []
    parts: list[SwapPart] = []
    for change in changes:
        before, after = change.before, change.after
        subject = Subject.LATENCY if before.latency != after.latency else Subject.CHAINS
        moved, drains = (), (latency_drain_ns(network, before), latency_drain_ns(network, after))
        if subject is Subject.CHAINS:
            changed = change.chains
            moved = _moved(network, change)
            drains = (
                max((chain_drain_ns(network, before, chain) for chain, _ in changed), default=0),
                max((chain_drain_ns(network, after, chain) for _, chain in changed), default=0),
            )
        found = list(_stages(subject, network, change, drains))
        if found:
            stages += (_in_part(stage, len(parts), moved) for stage in found)
            without = _left_out(old, after, new)
            coders = {box.name for box in old.as_used(network).boxes if box.kind.encapsulates}
            uncoded = tuple(name for name in without if name in coders)
            idle = tuple(sorted(renewed)) if _is_without(after, renewed) else ()
            renewed -= {*idle}
            parts.append(SwapPart(subject, before, after, moved, without, uncoded, idle))
    return Swap(tuple(stages), changes[-1].upcoming.layout, tuple(parts))


def _in_part(stage: Stage, part: int, moved: tuple[str, ...]) -> Stage:
    return replace(stage, part=part, moved=moved if stage.kind is StageKind.SHIFT else ())


def _left_out(old: Experiment, version: Experiment, new: Experiment) -> tuple[str, ...]:
    """The boxes and taps that both the old and the new version pass, but not this one."""
    passed, asked = ({hop for chain in each.chains for hop in chain.hops} for each in (version, new))
    hops = dict.fromkeys(hop for chain in old.chains for hop in chain.hops)
    return tuple(hop for hop in hops if hop in asked - passed)


@dataclass(frozen=True, slots=True)
class _Change:
    """Two versions between which packets can be led over, and how both are steered."""

    before: Experiment
    after: Experiment
    current: Steering
    upcoming: Steering
    cutover: CutoverPoints

    @property
    def chains(self) -> list[tuple[Chain, Chain]]:
        """Pairs of an old and a new chain between which traffic moves, or whose steering differs."""
        of_old, of_new = ({chain.name: chain for chain in each.chains} for each in (self.before, self.after))
        pairs = [(of_old[one], of_new[other]) for one, other in sorted(self.cutover.overlaps)]
        return [
            (one, other)
            for one, other in pairs
            if (one.name, one.hops, one.carries) != (other.name, other.hops, other.carries)
            or self.current.layout != self.upcoming.layout
        ]


def _is_without(version: Experiment, boxes: Collection[str]) -> bool:
    return not any({*boxes} & {*chain.hops} for chain in version.chains)


def _changes(
    network: Network, old: Experiment, current: Steering, new: Experiment, renewed: Collection[str]
) -> list[_Change]:
    """The changes that lead to the new version, with the smallest effects on traffic. Raises the PlanError of two.

    ``renewed``: boxes that a version in between must leave out.
    """
    refusals: list[PlanError] = []
    known: dict[_Step, _Change | PlanError] = {}
    asked = replace(new, latency=old.latency)
    for detour in joined([()], detours(network, old, asked, renewed)):
        for versions in _with_latencies((old, *detour, asked), new):
            idle = next((at for at, version in enumerate(versions) if _is_without(version, renewed)), None)
            if idle is None:
                continue
            try:
                found = _along(network, current, versions[: idle + 1], known)
                return found + _along(network, found[-1].upcoming if found else current, versions[idle:], known)
            except PlanError as error:
                refusals.append(error)
    if renewed:
        why = f": {refusals[0]}" if refusals else ""
        raise PlanError(
            f"{', '.join(sorted(renewed))} cannot be left out of the chain while the program begins again{why}; keep "
            "its settings, or use --immediate, which loses packets and connections"
        )
    raise refusals[0]


def _with_latencies(versions: Sequence[Experiment], new: Experiment) -> Iterator[tuple[Experiment, ...]]:
    """Versions with a change of latencies: at the first, at the last, or at one in between. The last one is ``new``."""
    after = (*(replace(version, latency=new.latency) for version in versions[:-1]), new)
    last = len(versions) - 1
    if versions[0].latency == new.latency:
        yield after
    else:
        for at in (0, last, *range(1, last)):
            yield (*versions[: at + 1], *after[at:])


_Step = tuple[Layout, Experiment, Experiment]


def _along(
    network: Network, current: Steering, versions: Sequence[Experiment], known: dict[_Step, _Change | PlanError]
) -> list[_Change]:
    """The fewest changes along versions, of which any may be skipped. Raises the PlanError of the shortest one.

    A version in between must fit the hardware of the switches. ``known``: the changes that were tried, is extended.
    """
    found: list[_Change] = []
    at, last = 0, len(versions) - 1
    while at < last:
        refusals: list[PlanError] = []
        for upcoming in range(last, at, -1):
            before, after = versions[at], versions[upcoming]
            if before.latency != after.latency and before.chains != after.chains:
                continue
            step = current.layout, before, after
            if step not in known:
                known[step] = _tried(network, before, current, after, between=upcoming < last)
            change = known[step]
            if isinstance(change, _Change):
                found.append(change)
                at, current = upcoming, change.upcoming
                break
            refusals.append(change)
        else:
            raise refusals[-1]
    return found


def _tried(
    network: Network, before: Experiment, current: Steering, after: Experiment, *, between: bool
) -> _Change | PlanError:
    """The change to another version, or the refusal: versions are not distinct, or unsupported ``between`` others."""
    try:
        change = _Change(before, after, current, *steer_transition(network, before, current, after))
        refuse_unsupported(network, change.upcoming.entries if between else ())
    except PlanError as error:
        return error
    return change


def chain_drain_ns(network: Network, experiment: Experiment, chain: Chain) -> int:
    """The longest that a packet can be within a chain.

    In links: full queues, serialisation, propagation, pauses. In other boxes: their residence, and ``SLACK_NS``.
    """
    links = [link for link in experiment.links_over_time if link.box in chain.hops]
    ways = [[link.to_island for link in links], [link.to_world for link in links]]
    within_ns = residence_ns(network, experiment, chain) + SLACK_NS
    return within_ns + max(sum(map(_direction_drain_ns, way)) for way in ways)


def latency_drain_ns(network: Network, experiment: Experiment) -> int:
    """The longest that a packet can be within a delay box."""
    used = {name for _, name in experiment.latency}
    classes = [known for box in network.delay_boxes for known in box.classes if known.name in used]
    return SLACK_NS + max((known.rtt.ns // 2 + known.jitter.ns for known in classes), default=0)


def _direction_drain_ns(way: LinkDirection) -> int:
    reach = way.jitter.reach.ns if way.jitter else 0
    return way.full_queue.ns + way.delays[1].ns + reach + way.longest_pause.ns


def _moved(network: Network, change: _Change) -> tuple[str, ...]:
    """Stateful boxes that only one of two versions passes, or both by different ports, and boxes connected to them."""
    before, after = change.current.layout.spare, change.upcoming.layout.spare
    moved = {
        box.name
        for box in network.boxes
        if box.stateful
        and any(
            (box.name in one.hops) != (box.name in other.hops)
            or ((one.name, box.name) in before) != ((other.name, box.name) in after)
            for one, other in change.chains
        )
    }
    for version in (change.before, change.after):
        peers = find_peers(network, version)[0].keys()
        pairs = (peers & {*chain.hops} for chain in version.chains)
        moved = moved.union(*(pair for pair in pairs if pair & moved))
    return tuple(box.name for box in network.boxes if box.name in moved)


def _stages(subject: Subject, network: Network, change: _Change, drains_ns: tuple[int, int]) -> Iterator[Stage]:
    """The stages from one steering to the other; none when both are equal. Drains: of the old, of the new."""
    current, upcoming, cutover = change.current, change.upcoming, change.cutover
    installed = {entry.identity: entry for entry in current.entries}
    wanted = {entry.identity: entry for entry in upcoming.entries}
    new_edge = {each.entry.identity: each for each in upcoming.compiled if cutover.at_cutover(each, new=True)}
    old_edge = {each.entry.identity: each for each in current.compiled if cutover.at_cutover(each, new=False)}

    def changes(key: EntryId) -> bool:
        return key not in installed or installed[key].actions != wanted[key].actions

    wanted = dict(sorted(wanted.items(), key=lambda item: -item[1].priority))
    install = tuple(e for key, e in wanted.items() if e.actions and key not in new_edge and changes(key))
    shift = tuple(e for key, e in wanted.items() if e.actions and key in new_edge and changes(key))
    by_priority = sorted(installed.items(), key=lambda item: item[1].priority)
    obsolete = {key: entry for key, entry in by_priority if key not in wanted}
    drops = tuple(entry for entry in obsolete.values() if not entry.actions)
    shifted = tuple(entry for key, entry in obsolete.items() if entry.actions and key in old_edge)
    rest = tuple(entry for key, entry in obsolete.items() if entry.actions and key not in old_edge)
    late = tuple(
        entry
        for key, entry in wanted.items()
        if (not entry.actions and changes(key)) or _renamed(installed.get(key), entry)
    )
    if install or drops:
        yield Stage(subject, StageKind.INSTALL, install, drops)
    new_probes, old_probes = Probes(network, change.after), Probes(network, change.before)
    entering = new_probes.at_edge((new_edge[entry.identity], entry) for entry in shift)
    if shift:
        deleted = {entry.identity for entry in (*drops, *shifted)}
        entries = (e for key, e in {**installed, **wanted}.items() if key not in deleted)
        tables = SwitchTables(network, entries, strict=False)
        yield Stage(subject, StageKind.PROBE, probes=(*entering, *new_probes.beyond(install, tables, entering)))
    if shift or shifted:
        leaving = old_probes.at_edge((old_edge[entry.identity], entry) for entry in shifted)
        undo_wait_ns = drains_ns[1] if install else 0
        yield Stage(subject, StageKind.SHIFT, shift, shifted, (*entering, *leaving), undo_wait_ns=undo_wait_ns)
    if rest:
        left = ((each, installed[key]) for key, each in old_edge.items() if key not in wanted or changes(key))
        probes = old_probes.at_edge(each for each in left if each[1].actions)
        yield Stage(subject, StageKind.DRAIN, probes=probes, wait_ns=drains_ns[0])
    if rest or late:
        yield Stage(subject, StageKind.COLLECT, late, rest)


def _renamed(installed: FlowEntry | None, wanted: FlowEntry) -> bool:
    """Whether only the cookie differs."""
    return installed is not None and installed.actions == wanted.actions and installed.cookie != wanted.cookie
