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

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from atoll_apps.cutover import CutoverPoints
from atoll_apps.steering import Steering, steer
from atoll_apps.version_separation import steer_transition
from atoll_controller.fabric.swap_detours import boxes_of, detours
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
    encapsulating = {box.name for box in old.as_used(network).boxes if box.kind.encapsulates}
    old_hops = dict.fromkeys(hop for chain in old.chains for hop in chain.hops)
    stages: list[Stage] = []
    parts: list[SwapPart] = []
    for change in changes:
        before, after = change.before, change.after
        subject = Subject.LATENCY if before.latency != after.latency else Subject.CHAINS
        moved = _moved(network, change) if subject is Subject.CHAINS else ()
        part_stages = [replace(stage, part=len(parts)) for stage in _stages(subject, network, change, moved)]
        if part_stages:
            unused = boxes_of(new) - boxes_of(after)
            without = tuple(hop for hop in old_hops if hop in unused)
            uncoded = tuple(name for name in without if name in encapsulating)
            renewed_now = renewed if renewed.isdisjoint(boxes_of(after)) else frozenset[str]()
            renewed -= renewed_now
            stages += part_stages
            parts.append(SwapPart(subject, before, after, moved, without, uncoded, tuple(sorted(renewed_now))))
    return Swap(tuple(stages), changes[-1].upcoming.layout, tuple(parts))


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of one version to the next that a swap can make, and the steering of both."""

    before: Experiment
    after: Experiment
    current: Steering
    upcoming: Steering
    cutover: CutoverPoints

    @property
    def chains(self) -> list[tuple[Chain, Chain]]:
        """Pairs of an old and a new chain between which traffic moves, or whose steering differs."""
        old, new = ({chain.name: chain for chain in version.chains} for version in (self.before, self.after))
        pairs = [(old[a], new[b]) for a, b in sorted(self.cutover.overlaps)]
        return [
            (a, b)
            for a, b in pairs
            if (a.name, a.hops, a.carries) != (b.name, b.hops, b.carries) or self.current.layout != self.upcoming.layout
        ]


_Refusal = str
"""The reason why a version cannot follow another one."""


def _changes(
    network: Network, old: Experiment, current: Steering, new: Experiment, renewed: frozenset[str]
) -> list[_Change]:
    """The changes that lead to the new version, with the smallest effects on traffic. Raises PlanError.

    ``renewed``: boxes that a version in between must leave out.
    """
    search = _Search(network)
    refusals: list[_Refusal] = []
    new_chains = replace(new, latency=old.latency)
    for detour in itertools.chain([()], detours(network, old, new_chains, renewed)):
        for versions in _with_latencies((old, *detour, new_chains), new):
            required = next((i for i, version in enumerate(versions) if renewed.isdisjoint(boxes_of(version))), None)
            if required is not None:
                changes = search.find(current, versions, required)
                if not isinstance(changes, _Refusal):
                    return changes
                refusals.append(changes)
    if renewed:
        reason = f": {refusals[0]}" if refusals else ""
        raise PlanError(
            f"{', '.join(sorted(renewed))} cannot be left out of the chain while the program begins again{reason}; "
            "keep its settings, or use --immediate, which loses packets and connections"
        )
    raise PlanError(refusals[0])


def _with_latencies(versions: Sequence[Experiment], new: Experiment) -> Iterator[tuple[Experiment, ...]]:
    """Versions with a change of latencies: at the first, at the last, or at one in between. The last one is ``new``."""
    after = (*(replace(version, latency=new.latency) for version in versions[:-1]), new)
    last = len(versions) - 1
    if versions[0].latency == new.latency:
        yield after
    else:
        for index in (0, last, *range(1, last)):
            yield (*versions[: index + 1], *after[index:])


class _Search:
    """Searches changes between versions. Different sequences have steps in common, which are tried once."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._steps: dict[tuple[Layout, Experiment, Experiment], _Change | _Refusal] = {}

    def find(self, current: Steering, versions: Sequence[Experiment], required: int) -> list[_Change] | _Refusal:
        """The fewest changes along versions, of which any but the one at ``required`` may be skipped.

        If they are refused, the reason for the shortest step. A version in between must fit the hardware.
        """
        end = required or len(versions) - 1
        step: _Change | _Refusal | None = None
        for index in range(end, 0, -1):
            step = self._step(current, versions[0], versions[index], is_inner=index < end)
            if isinstance(step, _Change):
                following = self.find(step.upcoming, versions[index:], max(0, required - index))
                return following if isinstance(following, _Refusal) else [step, *following]
        return step or []

    def _step(self, current: Steering, before: Experiment, after: Experiment, *, is_inner: bool) -> _Change | _Refusal:
        if before.latency != after.latency and before.chains != after.chains:
            return "latencies and chains change one after the other"
        key = current.layout, before, after
        if key not in self._steps:
            try:
                change = _Change(before, after, current, *steer_transition(self._network, before, current, after))
                refuse_unsupported(self._network, change.upcoming.entries if is_inner else ())
                self._steps[key] = change
            except PlanError as error:
                self._steps[key] = str(error)
        return self._steps[key]


def chain_drain_ns(network: Network, experiment: Experiment, chain: Chain) -> int:
    """The longest that a packet can be within a chain.

    In links: full queues, serialisation, propagation, pauses. In other boxes: their residence, and ``SLACK_NS``.
    """
    links = [link for link in experiment.links_over_time if link.box in chain.hops]
    directions = [[link.to_island for link in links], [link.to_world for link in links]]
    other_boxes_ns = residence_ns(network, experiment, chain) + SLACK_NS
    return other_boxes_ns + max(sum(map(_direction_drain_ns, direction)) for direction in directions)


def latency_drain_ns(network: Network, experiment: Experiment) -> int:
    """The longest that a packet can be within a delay box."""
    used = {name for _, name in experiment.latency}
    classes = [latency for box in network.delay_boxes for latency in box.classes if latency.name in used]
    return SLACK_NS + max((latency.rtt.ns // 2 + latency.jitter.ns for latency in classes), default=0)


def _direction_drain_ns(direction: LinkDirection) -> int:
    jitter_ns = direction.jitter.bound.ns if direction.jitter else 0
    return direction.full_queue.ns + direction.delays[1].ns + jitter_ns + direction.longest_pause.ns


def _moved(network: Network, change: _Change) -> tuple[str, ...]:
    """Stateful boxes that only one of two versions passes, or both by different ports, and boxes connected to them."""
    old_spare, new_spare = change.current.layout.spare, change.upcoming.layout.spare
    moved = {
        box.name
        for box in network.boxes
        if box.stateful
        and any(
            (box.name in old.hops) != (box.name in new.hops)
            or ((old.name, box.name) in old_spare) != ((new.name, box.name) in new_spare)
            for old, new in change.chains
        )
    }
    for version in (change.before, change.after):
        peers = find_peers(network, version)[0].keys()
        pairs = (peers & {*chain.hops} for chain in version.chains)
        moved = moved.union(*(pair for pair in pairs if pair & moved))
    return tuple(box.name for box in network.boxes if box.name in moved)


def _drains_ns(subject: Subject, network: Network, change: _Change) -> tuple[int, int]:
    """The longest that a packet can be within the old version, and within the new one."""
    before, after = change.before, change.after
    if subject is Subject.LATENCY:
        return latency_drain_ns(network, before), latency_drain_ns(network, after)
    return (
        max((chain_drain_ns(network, before, chain) for chain, _ in change.chains), default=0),
        max((chain_drain_ns(network, after, chain) for _, chain in change.chains), default=0),
    )


def _stages(subject: Subject, network: Network, change: _Change, moved: tuple[str, ...]) -> Iterator[Stage]:
    """The stages from one steering to the other; none when both are equal."""
    cutover = change.cutover
    installed = {entry.identity: entry for entry in change.current.entries}
    planned = {entry.identity: entry for entry in change.upcoming.entries}
    old_edge = {c.entry.identity: c for c in change.current.compiled if cutover.at_cutover(c, new=False)}
    new_edge = {c.entry.identity: c for c in change.upcoming.compiled if cutover.at_cutover(c, new=True)}

    def forwards_equally(key: EntryId) -> bool:
        return key in installed and key in planned and installed[key].actions == planned[key].actions

    def stage_to_add(key: EntryId) -> StageKind | None:
        """The stage in which an entry of the new version is added; None: it is installed already."""
        if forwards_equally(key):
            return StageKind.COLLECT if installed[key].cookie != planned[key].cookie else None
        if not planned[key].actions:
            return StageKind.COLLECT
        return StageKind.SHIFT if key in new_edge else StageKind.INSTALL

    def stage_to_delete(key: EntryId) -> StageKind | None:
        """The stage in which an entry of the old version is deleted; None: the new version has it, too."""
        if key in planned:
            return None
        if not installed[key].actions:
            return StageKind.INSTALL
        return StageKind.SHIFT if key in old_edge else StageKind.COLLECT

    add: dict[StageKind | None, list[FlowEntry]] = defaultdict(list)
    for key, entry in sorted(planned.items(), key=lambda item: -item[1].priority):
        add[stage_to_add(key)].append(entry)
    delete: dict[StageKind | None, list[FlowEntry]] = defaultdict(list)
    for key, entry in sorted(installed.items(), key=lambda item: item[1].priority):
        delete[stage_to_delete(key)].append(entry)

    def stage(kind: StageKind, probes: tuple[Probe, ...] = ()) -> Stage:
        return Stage(subject, kind, tuple(add[kind]), tuple(delete[kind]), probes)

    if add[StageKind.INSTALL] or delete[StageKind.INSTALL]:
        yield stage(StageKind.INSTALL)
    new_probes, old_probes = Probes(network, change.after), Probes(network, change.before)
    new_probes_at_edge = new_probes.at_edge((new_edge[entry.identity], entry) for entry in add[StageKind.SHIFT])
    if add[StageKind.SHIFT]:
        deleted = {entry.identity for entry in (*delete[StageKind.INSTALL], *delete[StageKind.SHIFT])}
        entries = (entry for key, entry in {**installed, **planned}.items() if key not in deleted)
        tables = SwitchTables(network, entries, strict=False)
        further = new_probes.behind(add[StageKind.INSTALL], tables, new_probes_at_edge)
        yield stage(StageKind.PROBE, (*new_probes_at_edge, *further))
    drain_ns, undo_wait_ns = _drains_ns(subject, network, change)
    if add[StageKind.SHIFT] or delete[StageKind.SHIFT]:
        old_probes_at_edge = old_probes.at_edge((old_edge[entry.identity], entry) for entry in delete[StageKind.SHIFT])
        shift = stage(StageKind.SHIFT, (*new_probes_at_edge, *old_probes_at_edge))
        yield replace(shift, undo_wait_ns=undo_wait_ns if add[StageKind.INSTALL] else 0, moved=moved)
    if delete[StageKind.COLLECT]:
        old_entries = [(c, installed[key]) for key, c in old_edge.items() if not forwards_equally(key)]
        probes = old_probes.at_edge((c, entry) for c, entry in old_entries if entry.actions)
        yield replace(stage(StageKind.DRAIN, probes), wait_ns=drain_ns)
    if add[StageKind.COLLECT] or delete[StageKind.COLLECT]:
        yield stage(StageKind.COLLECT)
