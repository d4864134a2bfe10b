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
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from atoll_apps.cutover import CutoverPoints
from atoll_apps.steering import Steering, steer
from atoll_apps.version_separation import steer_transition
from atoll_controller.fabric.swap_probes import Probe, Probes
from atoll_controller.tracing.table_model import SwitchTables
from atoll_core.experiment.experiment import Chain, Experiment, LinkDirection
from atoll_core.lab.network import Network
from atoll_core.plan.flow_entry import EntryId, FlowEntry
from atoll_core.plan.tag_layout import Layout

# Switches, hosts and boxes delay packets by a time that no description has.
SLACK_NS = 100_000_000


class Subject(StrEnum):
    """The subject of a stage: latencies are changed first, then chains."""

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
    within the new version after the shift was undone.
    """

    subject: Subject
    kind: StageKind
    add: tuple[FlowEntry, ...] = ()
    delete: tuple[FlowEntry, ...] = ()
    probes: tuple[Probe, ...] = ()
    wait_ns: int = 0
    undo_wait_ns: int = 0


@dataclass(frozen=True, slots=True)
class Swap:
    """The whole change. ``layout`` is that of the new version: its entries are ``flow_entries(.., layout)``.

    ``moved``: stateful boxes for which packets of connections start, stop, or change the ports. These connections break
    unless the swap waits for their end.
    """

    stages: tuple[Stage, ...]
    layout: Layout
    moved: tuple[str, ...]


def plan_swap(network: Network, old: Experiment, layout: Layout, new: Experiment) -> Swap:
    """The swap from an experiment that is active with ``layout`` to another one of the same network.

    Latencies change first, then chains. It has no stages if nothing changes on the switches. Raises PlanError with the
    frames that cannot be distinguished and the remedy.
    """
    between = replace(old, latency=new.latency)
    current = steer(network, old, layout)
    stages: list[Stage] = []
    if old.latency != new.latency:
        upcoming, cutover = steer_transition(network, old, current, between)
        drains = latency_drain_ns(network, old), latency_drain_ns(network, new)
        stages += _stages(Subject.LATENCY, network, (old, between), current, upcoming, cutover, drains)
        current = upcoming
    upcoming, cutover = steer_transition(network, between, current, new)
    changed = _changed(between, current.layout, new, upcoming.layout, cutover)
    drains = (
        max((chain_drain_ns(between, chain) for chain, _ in changed), default=0),
        max((chain_drain_ns(new, chain) for _, chain in changed), default=0),
    )
    stages += _stages(Subject.CHAINS, network, (between, new), current, upcoming, cutover, drains)
    return Swap(tuple(stages), upcoming.layout, _moved(network, changed, current.layout, upcoming.layout))


def chain_drain_ns(experiment: Experiment, chain: Chain) -> int:
    """The longest that a packet can be within a chain's links: full queues, serialisation, propagation, pauses.

    ``SLACK_NS`` is the allowance for boxes other than links.
    """
    links = [link for link in experiment.links_over_time if link.box in chain.hops]
    ways = [[link.to_island for link in links], [link.to_world for link in links]]
    return SLACK_NS + max(sum(map(_direction_drain_ns, way)) for way in ways)


def latency_drain_ns(network: Network, experiment: Experiment) -> int:
    """The longest that a packet can be within a delay box."""
    used = {name for _, name in experiment.latency}
    classes = [known for box in network.delay_boxes for known in box.classes if known.name in used]
    return SLACK_NS + max((known.rtt.ns // 2 + known.jitter.ns for known in classes), default=0)


def _direction_drain_ns(way: LinkDirection) -> int:
    reach = way.jitter.reach.ns if way.jitter else 0
    return way.full_queue.ns + way.delays[1].ns + reach + way.longest_pause.ns


def _changed(
    old: Experiment, before: Layout, new: Experiment, after: Layout, cutover: CutoverPoints
) -> list[tuple[Chain, Chain]]:
    """Pairs of an old and a new chain between which traffic moves, or whose steering differs."""
    of_old, of_new = ({chain.name: chain for chain in each.chains} for each in (old, new))
    pairs = [(of_old[one], of_new[other]) for one, other in sorted(cutover.overlaps)]
    return [
        (one, other)
        for one, other in pairs
        if (one.name, one.hops, one.carries) != (other.name, other.hops, other.carries) or before != after
    ]


def _moved(network: Network, changed: Iterable[tuple[Chain, Chain]], before: Layout, after: Layout) -> tuple[str, ...]:
    """Stateful boxes that only one of two versions passes, or both by different ports."""
    return tuple(
        box.name
        for box in network.boxes
        if box.stateful
        and any(
            (box.name in one.hops) != (box.name in other.hops)
            or ((one.name, box.name) in before.spare) != ((other.name, box.name) in after.spare)
            for one, other in changed
        )
    )


def _stages(
    subject: Subject,
    network: Network,
    versions: tuple[Experiment, Experiment],
    current: Steering,
    upcoming: Steering,
    cutover: CutoverPoints,
    drains_ns: tuple[int, int],
) -> Iterator[Stage]:
    """The stages from one steering to the other; none when both are equal. Drains: of the old, of the new."""
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
    new_probes, old_probes = Probes(network, versions[1]), Probes(network, versions[0])
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
