# SPDX-License-Identifier: Apache-2.0
"""Changing chains and latencies under traffic so that every packet sees the old version or the new one, never a mix.

The plan of it, pure: what is added and deleted when, what is probed before packets turn, how long the old version
drains. Stages are carried out in order; within a stage all is added (an entry of the same priority and match is
replaced), higher priorities first, before anything is deleted, lower priorities first: so no packet ever falls through
to an entry of a chain that is not its own. Switches may reorder messages: a barrier belongs between priorities.

    install   the new version beside the old one; no packet takes it yet
    probe     frames sent as the edge will send them arrive through the new version (barriers alone prove nothing)
    shift     the edge: packet after packet turns to the new version; frames that hosts send show when
    drain     what still is within the old version comes out
    collect   the old version's entries go
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from atoll_apps.cutover import CutoverPoints
from atoll_apps.steering import Steering, steer
from atoll_apps.transition import steer_transition
from atoll_controller.fabric.swap_probes import Probe, Probes
from atoll_controller.tracing.table_model import SwitchTables
from atoll_core.experiment.experiment import Chain, Experiment, LinkDirection
from atoll_core.lab.network import Network
from atoll_core.plan.flow_entry import FlowEntry, Match
from atoll_core.plan.tag_layout import Layout

# Switches, hosts and boxes hold packets for a while that is not part of any description.
SLACK_NS = 100_000_000


class Subject(StrEnum):
    """What a stage changes: latencies first, then chains; packets see the old or the new version of either."""

    LATENCY = "latency"
    CHAINS = "chains"


class StageKind(StrEnum):
    """What a stage is for."""

    INSTALL = "install"
    PROBE = "probe"
    SHIFT = "shift"
    DRAIN = "drain"
    COLLECT = "collect"


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a swap.

    ``probes``: of a probe stage, frames that a switch sends by the actions of ``entry``, as from its ingress port
    (packet-out, OpenFlow 1.3.5, 7.3.7), before its table holds it. Of a shift, frames that hosts send, whose way shows
    by which version the edge sends packets on: one for each entry that comes or goes. Of a drain, frames of the old
    version, sent by a switch when no packet is any more.

    ``wait_ns``: how long it lasts at least once everything else of it is done. ``undo_wait_ns``, of a shift: how long
    packets that have turned may still be within the new version once they turn no more.
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

    ``moved``: stateful boxes that connections leave, come to, or meet by other legs: these connections break, unless
    the swap waits for their end.
    """

    stages: tuple[Stage, ...]
    layout: Layout
    moved: tuple[str, ...]


def plan_swap(network: Network, old: Experiment, layout: Layout, new: Experiment) -> Swap:
    """The swap from an experiment whose chains stand with ``layout`` to another one of the same network.

    Latencies change first, then chains. No stages: nothing changes on the switches. Raises PlanError naming what
    cannot be told apart and what would help.
    """
    between = replace(old, latency=new.latency)
    standing = steer(network, old, layout)
    stages: list[Stage] = []
    if old.latency != new.latency:
        coming, turns = steer_transition(network, old, standing, between)
        drains = latency_drain_ns(network, old), latency_drain_ns(network, new)
        stages += _stages(Subject.LATENCY, network, (old, between), standing, coming, turns, drains)
        standing = coming
    coming, turns = steer_transition(network, between, standing, new)
    changed = _changed(between, standing.layout, new, coming.layout, turns)
    drains = (
        max((chain_drain_ns(between, chain) for chain, _ in changed), default=0),
        max((chain_drain_ns(new, chain) for _, chain in changed), default=0),
    )
    stages += _stages(Subject.CHAINS, network, (between, new), standing, coming, turns, drains)
    return Swap(tuple(stages), coming.layout, _moved(network, changed, standing.layout, coming.layout))


def chain_drain_ns(experiment: Experiment, chain: Chain) -> int:
    """The longest that a packet can be within a chain's links: full queues, serialisation, propagation, pauses.

    What boxes other than links hold is not known; ``SLACK_NS`` is for them.
    """
    links = [link for link in experiment.links if link.box in chain.hops]
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
    old: Experiment, before: Layout, new: Experiment, after: Layout, turns: CutoverPoints
) -> list[tuple[Chain, Chain]]:
    """Old and new chains between which traffic moves, or that are laid out anew."""
    of_old, of_new = ({chain.name: chain for chain in each.chains} for each in (old, new))
    pairs = [(of_old[one], of_new[other]) for one, other in sorted(turns.meetings)]
    return [
        (one, other)
        for one, other in pairs
        if (one.name, one.hops, one.carries) != (other.name, other.hops, other.carries) or before != after
    ]


def _moved(network: Network, changed: Iterable[tuple[Chain, Chain]], before: Layout, after: Layout) -> tuple[str, ...]:
    """Stateful boxes that only one of two versions passes, or both by different legs."""
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


_Identity = tuple[str, int, Match]


def _identity(entry: FlowEntry) -> _Identity:
    return entry.switch, entry.priority, entry.match


def _stages(
    subject: Subject,
    network: Network,
    versions: tuple[Experiment, Experiment],
    standing: Steering,
    coming: Steering,
    turns: CutoverPoints,
    drains_ns: tuple[int, int],
) -> Iterator[Stage]:
    """The stages from one steering to the other; none when both ask for the same. Drains: of the old, of the new."""
    held = {_identity(entry): entry for entry in standing.entries}
    wanted = {_identity(entry): entry for entry in coming.entries}
    new_turns = {_identity(laid.entry): laid for laid in coming.laid if turns.at_turn(laid, new=True)}
    old_turns = {_identity(laid.entry): laid for laid in standing.laid if turns.at_turn(laid, new=False)}

    def anew(key: _Identity) -> bool:
        return key not in held or held[key].actions != wanted[key].actions

    wanted = dict(sorted(wanted.items(), key=lambda item: -item[1].priority))
    install = tuple(e for key, e in wanted.items() if e.actions and key not in new_turns and anew(key))
    shift = tuple(e for key, e in wanted.items() if e.actions and key in new_turns and anew(key))
    gone = {key: entry for key, entry in sorted(held.items(), key=lambda item: item[1].priority) if key not in wanted}
    guards = tuple(entry for entry in gone.values() if not entry.actions)
    turned = tuple(entry for key, entry in gone.items() if entry.actions and key in old_turns)
    rest = tuple(entry for key, entry in gone.items() if entry.actions and key not in old_turns)
    late = tuple(
        entry for key, entry in wanted.items() if (not entry.actions and anew(key)) or _renamed(held.get(key), entry)
    )
    if install or guards:
        yield Stage(subject, StageKind.INSTALL, install, guards)
    come, gone_from = Probes(network, versions[1]), Probes(network, versions[0])
    taking = come.turning((new_turns[_identity(entry)], entry) for entry in shift)
    if shift:
        left = {_identity(entry) for entry in (*guards, *turned)}
        tables = SwitchTables(network, (e for key, e in {**held, **wanted}.items() if key not in left), strict=False)
        yield Stage(subject, StageKind.PROBE, probes=(*taking, *come.beyond(install, tables, taking)))
    if shift or turned:
        leaving = gone_from.turning((old_turns[_identity(entry)], entry) for entry in turned)
        undo_wait_ns = drains_ns[1] if install else 0
        yield Stage(subject, StageKind.SHIFT, shift, turned, (*taking, *leaving), undo_wait_ns=undo_wait_ns)
    if rest:
        left = ((laid, held[key]) for key, laid in old_turns.items() if key not in wanted or anew(key))
        probes = gone_from.turning(each for each in left if each[1].actions)
        yield Stage(subject, StageKind.DRAIN, probes=probes, wait_ns=drains_ns[0])
    if rest or late:
        yield Stage(subject, StageKind.COLLECT, late, rest)


def _renamed(held: FlowEntry | None, wanted: FlowEntry) -> bool:
    """Whether only the cookie differs."""
    return held is not None and held.actions == wanted.actions and held.cookie != wanted.cookie
