# SPDX-License-Identifier: Apache-2.0
"""Verify that the entries of a swap forward packets before any traffic uses them.

A switch gets a frame with the actions of the entry that will send such frames (packet-out, OpenFlow 1.3.5, 7.3.7). The
entries are verified when every box, tap and host on the path by the switches' tables has received the frame, and its
answer has come back; barriers and read-back alone are no evidence. If a station cannot be watched, as an external
device, every new entry on the path must also have counted a packet.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from atoll_controller.fabric.flow_installer import read_tables
from atoll_controller.fabric.swap_probes import Probe
from atoll_controller.probing.probe_frames import ProbeEnd, ProbeMark, probe_frame
from atoll_controller.tracing.probe_paths import limit_ns, of_one_sender
from atoll_controller.tracing.table_model import Delivery, Frame, Lookup, Step, SwitchTables
from atoll_controller.tracing.trace_report import where_to_look
from atoll_core.errors import LabError, PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Host, Network
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.flow_entry import Action, EntryId, FlowEntry, Match
from atoll_testbed.verification.entry_counters import (
    Counts,
    are_counters_prompt,
    count_increase,
    counted_path,
    counts,
    entry_label,
    prompt_switches,
)
from atoll_testbed.verification.probe_receiver import (
    ProbedLab,
    Sighting,
    Station,
    Watch,
    boxes_and_taps,
    receiving_probes,
    sightings,
    station,
    stations,
)

# Probes are repeated for this time: hardware may have an entry seconds after its switch acknowledged it, and a link may
# lose a probe.
LAG_S = 5.0
INTERVAL_S = 0.2
ATTEMPTS = round(LAG_S / INTERVAL_S)

_LATE_S = 30.0  # additional delay of packets on busy machines


@dataclass(slots=True)
class _Way:
    """A probe and its expected path. ``end``: the machine where it must arrive.

    That is its destination, or for TCP a box that ends connections.
    """

    number: int
    probe: Probe
    src: Host
    dst: Host
    steps: tuple[Step, ...]
    end: str
    stations: tuple[tuple[str, Station | None], ...]  # of the boxes, taps and hosts on the path
    sightings: frozenset[Sighting]  # at the stations
    refused: str | None = None

    @property
    def answered(self) -> bool:
        """Whether an answer is expected."""
        return self.end == self.dst.name

    @property
    def entries(self) -> tuple[FlowEntry, ...]:
        """The entries that must count it, without the one that it is sent by, which may not be installed yet."""
        return tuple(step.entry for step in self.steps[1:] if isinstance(step, Lookup) and step.entry is not None)

    def frame(self, session: int, attempt: int) -> bytes:
        """The frame as it would arrive at the entry."""
        src, dst = (ProbeEnd(host.interface.mac, host.address) for host in (self.src, self.dst))
        mark = ProbeMark(session, self.number, attempt)
        return probe_frame(src, dst, _tag(self.probe.entry.match), self.probe.protocol, mark)


async def verify_entries(testbed: ProbedLab, probes: Sequence[Probe], experiment: Experiment | None = None) -> None:
    """Send all probes at once, and repeat those that do not arrive; returns when all paths are verified.

    ``experiment``: the new experiment (default: the applied one). Raises LabError with a line for each probe that
    failed: source, destination, chain, entry, and how far it came.
    """
    asked = experiment or testbed.experiment
    if not probes or asked is None:
        return
    network, controller = testbed.network, testbed.controller
    both = [each for each in (asked, testbed.experiment) if each is not None]
    ways = await _ways(testbed, probes)
    before = await counts(controller, network, (entry for way in ways for entry in way.entries))
    watch = Watch(stations(network))
    promiscuous = boxes_and_taps(network)
    machines: dict[str, IPv4Address | None] = dict.fromkeys(promiscuous)
    machines |= {host.name: host.address for way in ways for host in (way.src, way.dst)}
    async with receiving_probes(testbed.machine, watch, machines, promiscuous):
        await _send_until_seen(testbed, ways, watch, max(limit_ns(network, each) for each in both) / 1e9)
    prompt = prompt_switches(network)
    arrived = [way for way in ways if _done(way, watch)]
    unwatched = [way for way in arrived if any(place is None for _, place in way.stations)]
    old = {_effect(entry) for entry in (testbed.plan.flows if testbed.plan else ())}
    wanted = {e for way in unwatched for e in way.entries if e.switch in prompt and _effect(e) not in old}
    rises = await count_increase(controller, network, before, wanted)
    lines = [line for way in ways if (line := _judge(network, way, watch, rises, wanted))]
    if lines:
        raise LabError("\n".join(lines))


async def verify_drained(testbed: ProbedLab, probes: Sequence[Probe], experiment: Experiment) -> None:
    """Wait until probes sent on the old paths have arrived; earlier packets on these paths have arrived by then, too.

    Switches, boxes and links keep packets in order. ``experiment``: the old version. Raises LabError with a line for
    each probe that did not arrive within the maximum transit time of its path plus half a minute.
    """
    if not probes:
        return
    both = [each for each in (experiment, testbed.experiment) if each is not None]
    ways = await _ways(testbed, probes)
    limit_s = max(limit_ns(testbed.network, each) for each in both) / 1e9 + _LATE_S
    deadline = asyncio.get_running_loop().time() + limit_s
    watch = Watch()

    def left() -> list[_Way]:
        return [way for way in ways if not watch.arrived(way.number, way.end, answer=False)]

    async with receiving_probes(testbed.machine, watch, dict.fromkeys(way.end for way in ways)):
        attempt = 0
        while missing := left():
            if asyncio.get_running_loop().time() > deadline:
                raise LabError("\n".join(f"{_words(way.probe)}: it did not arrive at {way.end}" for way in missing))
            await _send(testbed, missing, watch.session, attempt)
            attempt += 1
            await watch.until(lambda: not left(), INTERVAL_S)


async def _ways(testbed: ProbedLab, probes: Sequence[Probe]) -> list[_Way]:
    """The probes with their paths by the switches' current tables, computed in a thread as there may be thousands."""
    network = testbed.network
    held = await read_tables(testbed.controller, network)
    known = testbed.installed_plan.flows if testbed.installed_plan else ()
    found = [entry for entries in held.values() for entry in entries if isinstance(entry, FlowEntry)]

    def find() -> list[_Way]:
        tables = _tables(network, found, known, probes)
        return [_way(network, tables, number, each) for number, each in enumerate(probes)]

    return await asyncio.to_thread(find)


def _tables(
    network: Network, held: Iterable[FlowEntry], known: Iterable[FlowEntry], probes: Iterable[Probe]
) -> SwitchTables:
    """The tables as read from the switches, with the plan's reasons for entries that it contains."""
    entries: dict[EntryId, FlowEntry] = {}
    planned = {entry.identity: entry for entry in known}
    for entry in held:
        same = planned.get(entry.identity)
        entries[entry.identity] = same if same is not None and same.actions == entry.actions else entry
    entries |= {probe.entry.identity: probe.entry for probe in probes}
    return SwitchTables(network, entries.values(), strict=False)


def _way(network: Network, tables: SwitchTables, number: int, probe: Probe) -> _Way:
    src, dst = network.host(probe.src), network.host(probe.dst)
    match = probe.entry.match
    frame = Frame(src.address, dst.address, _tag(match), probe.protocol)
    try:
        steps = tables.walk(frame, PortRef(probe.entry.switch, match.in_port), first=probe.entry)
    except PlanError as error:
        raise LabError(f"{_words(probe)}: by the switches' tables, {error}") from error
    steps, end = of_one_sender(network, steps, probe.protocol, dst.name)
    reached = (step for step in steps if isinstance(step, Delivery))
    places = tuple((step.name, station(network, step.name, step.port)) for step in reached)
    return _Way(number, probe, src, dst, steps, end, places, sightings(network, steps))


def _tag(match: Match) -> int | None:
    return match.vlan if isinstance(match.vlan, int) else None


async def _send_until_seen(testbed: ProbedLab, ways: Sequence[_Way], watch: Watch, limit_s: float) -> None:
    def all_done() -> bool:
        return all(_done(way, watch) or way.refused for way in ways)

    for attempt in range(ATTEMPTS):
        await _send(testbed, [way for way in ways if not _done(way, watch)], watch.session, attempt)
        if await watch.until(all_done, INTERVAL_S):
            return
    await watch.until(all_done, limit_s)


async def _send(testbed: ProbedLab, ways: Iterable[_Way], session: int, attempt: int) -> None:
    by_switch: defaultdict[str, list[_Way]] = defaultdict(list)
    for way in ways:
        by_switch[way.probe.entry.switch].append(way)

    async def send(name: str) -> None:
        frames = [(way.probe.entry, way.frame(session, attempt)) for way in by_switch[name]]
        errors = await testbed.controller.send(testbed.network.switch(name).dpid, frames)
        for way, refused in zip(by_switch[name], errors, strict=True):
            way.refused = refused

    await asyncio.gather(*map(send, by_switch))


def _done(way: _Way, watch: Watch) -> bool:
    return _took(way, watch) and (not way.answered or watch.arrived(way.number, way.src.name, answer=True))


def _took(way: _Way, watch: Watch) -> bool:
    """Whether an attempt was seen everywhere on the path, and nowhere else, such as on the path of old entries."""
    return watch.taken(way.number, way.sightings, whole=way.answered) > 0


def _effect(entry: FlowEntry) -> tuple[EntryId, tuple[Action, ...]]:
    """The parts of an entry that affect forwarding."""
    return entry.identity, entry.actions


def _judge(network: Network, way: _Way, watch: Watch, rises: Counts, wanted: Collection[FlowEntry]) -> str | None:
    """The failure of a probe in one line; None if it has not failed."""
    probe = _words(way.probe)
    if way.refused:
        return f"{probe}: the switch refused to send it: {way.refused}"
    taps = {tap.name for tap in network.taps}

    def far() -> str:
        return counted_path(way.steps[1:], rises, taps)

    if not watch.arrived(way.number, way.end, answer=False):
        lost = f"{probe}: it was sent {ATTEMPTS} times and did not arrive at {way.end}"
        if not are_counters_prompt(network, way.steps[1:]):
            return lost
        return f"{lost}: {far()}; look at {where_to_look(network, way.steps[1:], rises, taps)}"
    missed = [name for name, place in way.stations if place is not None and not watch.passed(way.number, place)]
    if missed:
        return f"{probe}: it arrived at {way.end}, but did not reach {', '.join(missed)}: {far()}"
    if not _took(way, watch):
        elsewhere = {each[0] for seen in watch.ways(way.number) for each in seen - way.sightings}
        where = (
            f"but also reached {', '.join(sorted(elsewhere))}"
            if elsewhere
            else "but none of the attempts followed the whole path"
        )
        return f"{probe}: it arrived at {way.end}, {where}: {far()}"
    if not _done(way, watch):
        return f"{probe}: it arrived at {way.end}, but no answer came back to {way.src.name}"
    if any(rises.get(entry, 0) <= 0 for entry in way.entries if entry in wanted):
        return f"{probe}: it arrived at {way.end}, but not by the planned path: {far()}"
    return None


def _words(probe: Probe) -> str:
    place = f"{probe.entry.switch}/{probe.entry.match.in_port}"
    return (
        f"probe {probe.src} -> {probe.dst} through chain {probe.chain}, sent by {entry_label(probe.entry)} at {place}"
    )
