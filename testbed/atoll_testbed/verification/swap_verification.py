# SPDX-License-Identifier: Apache-2.0
"""Proof that entries of a swap will carry packets, before any packet has to take them.

A switch is handed a frame and the actions of the entry that is to send such frames (packet-out, OpenFlow 1.3.5, 7.3.7).
It is proven when every box, tap and host on the way that the switches' tables give it has seen it, and its answer has
come back: barriers and read-back alone prove nothing. Where nothing can watch, as on a device from outside, every new
entry on that way has to have counted a packet as well.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from atoll_controller.fabric.flow_installer import read_tables
from atoll_controller.fabric.swap_probes import Probe
from atoll_controller.openflow.messages.probe_frames import Mark, ProbeEnd, probe_frame
from atoll_controller.tracing.fault_hints import where_to_look
from atoll_controller.tracing.probe_paths import limit_ns, of_one_sender
from atoll_controller.tracing.table_model import Delivery, Frame, Lookup, Step, SwitchTables
from atoll_core.errors import LabError, PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Host, Network, PortRef
from atoll_core.plan.flow_entry import Action, FlowEntry, Match
from atoll_testbed.verification.entry_counters import (
    Counts,
    count_increase,
    counts,
    how_far,
    named,
    prompt_switches,
    tell_in_time,
)
from atoll_testbed.verification.probe_receiver import (
    Sighting,
    Station,
    Watch,
    boxes_and_taps,
    receiving_probes,
    sightings,
    station,
    stations,
)
from atoll_testbed.verification.probed_lab import ProbedLab

# For so long probes are sent that do not arrive: hardware may have an entry seconds after its switch acknowledged it, a
# link may lose a probe, a full queue refuse it.
LAG_S = 5.0
INTERVAL_S = 0.2
ATTEMPTS = round(LAG_S / INTERVAL_S)

_LATE_S = 30.0  # what machines that are busy with other things may hold packets for


@dataclass(slots=True)
class _Way:
    """A probe and the way it has to take. ``end``: the machine where it must be seen.

    That is the host it is for; but TCP ends at a stateful box, and begins anew behind it.
    """

    number: int
    probe: Probe
    src: Host
    dst: Host
    steps: tuple[Step, ...]
    end: str
    stations: tuple[tuple[str, Station | None], ...]  # the boxes, taps and hosts on the way, and where to see them
    sightings: frozenset[Sighting]  # at the stations, and at the machine where it must be seen
    refused: str | None = None

    @property
    def answered(self) -> bool:
        """Whether an answer is to be expected."""
        return self.end == self.dst.name

    @property
    def entries(self) -> tuple[FlowEntry, ...]:
        """What must count it; not the entry it is sent by, which need not be there yet."""
        return tuple(step.entry for step in self.steps[1:] if isinstance(step, Lookup) and step.entry is not None)

    def frame(self, session: int, attempt: int) -> bytes:
        """The frame as it would come to the entry."""
        src, dst = (ProbeEnd(host.interface.mac, host.address) for host in (self.src, self.dst))
        mark = Mark(session, self.number, attempt)
        return probe_frame(src, dst, _tag(self.probe.entry.match), self.probe.protocol, mark)


async def probe(testbed: ProbedLab, probes: Sequence[Probe], experiment: Experiment | None = None) -> None:
    """Send all probes at once, several times those that don't arrive; returns when all are proven.

    ``experiment``: the one that is being changed to (default: the one that stands). Raises LabError, a line for each
    probe that failed: who sent it to whom through which chain, by which entry, and how far it came.
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
    stands = {_essence(entry) for entry in (testbed.plan.flows if testbed.plan else ())}
    wanted = {e for way in unwatched for e in way.entries if e.switch in prompt and _essence(e) not in stands}
    rises = await count_increase(controller, network, before, wanted)
    lines = [line for way in ways if (line := _judge(network, way, watch, rises, wanted))]
    if lines:
        raise LabError("\n".join(lines))


async def passed(testbed: ProbedLab, probes: Sequence[Probe], experiment: Experiment) -> None:
    """Return when frames sent as packets of a version were sent last have arrived: by then, so have those packets.

    For switches, boxes and links keep packets in order. ``experiment``: that version. Raises LabError, a line for each
    probe that did not arrive within the longest time that its way can take, and half a minute.
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
                raise LabError("\n".join(f"{_told(way.probe)}: it did not arrive at {way.end}" for way in missing))
            await _send(testbed, missing, watch.session, attempt)
            attempt += 1
            await watch.until(lambda: not left(), INTERVAL_S)


async def _ways(testbed: ProbedLab, probes: Sequence[Probe]) -> list[_Way]:
    """The probes with their ways by what the switches hold now, found in a thread: they may be thousands."""
    network = testbed.network
    held = await read_tables(testbed.controller, network)
    known = testbed.standing.flows if testbed.standing else ()
    found = [entry for entries in held.values() for entry in entries if isinstance(entry, FlowEntry)]

    def find() -> list[_Way]:
        tables = _tables(network, found, known, probes)
        return [_way(network, tables, number, each) for number, each in enumerate(probes)]

    return await asyncio.to_thread(find)


def _tables(
    network: Network, held: Iterable[FlowEntry], known: Iterable[FlowEntry], probes: Iterable[Probe]
) -> SwitchTables:
    """The tables as they are read, with the reasons that the plan has for what it knows of them."""
    entries: dict[tuple[str, int, Match], FlowEntry] = {}
    planned = {(entry.switch, entry.priority, entry.match): entry for entry in known}
    for entry in held:
        key = entry.switch, entry.priority, entry.match
        same = planned.get(key)
        entries[key] = same if same is not None and same.actions == entry.actions else entry
    entries |= {(p.entry.switch, p.entry.priority, p.entry.match): p.entry for p in probes}
    return SwitchTables(network, entries.values(), strict=False)


def _way(network: Network, tables: SwitchTables, number: int, probe: Probe) -> _Way:
    src, dst = network.host(probe.src), network.host(probe.dst)
    match = probe.entry.match
    frame = Frame(src.address, dst.address, _tag(match), probe.protocol)
    try:
        steps = tables.walk(frame, PortRef(probe.entry.switch, match.in_port), first=probe.entry)
    except PlanError as error:
        raise LabError(f"{_told(probe)}: by what the switches hold, {error}") from error
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
        told = await testbed.controller.send(testbed.network.switch(name).dpid, frames)
        for way, refused in zip(by_switch[name], told, strict=True):
            way.refused = refused

    await asyncio.gather(*map(send, by_switch))


def _done(way: _Way, watch: Watch) -> bool:
    return _took(way, watch) and (not way.answered or watch.arrived(way.number, way.src.name, answer=True))


def _took(way: _Way, watch: Watch) -> bool:
    """Whether an attempt was seen everywhere on the way, and nowhere else: not where old entries still lead."""
    return watch.taken(way.number, way.sightings, whole=way.answered) > 0


def _essence(entry: FlowEntry) -> tuple[str, int, Match, tuple[Action, ...]]:
    """What an entry does; not what it is called."""
    return entry.switch, entry.priority, entry.match, entry.actions


def _judge(network: Network, way: _Way, watch: Watch, rises: Counts, wanted: Collection[FlowEntry]) -> str | None:
    """What is wrong with a probe, in one line."""
    told = _told(way.probe)
    if way.refused:
        return f"{told}: the switch refused to send it: {way.refused}"
    taps = {tap.name for tap in network.taps}

    def far() -> str:
        return how_far(way.steps[1:], rises, taps)

    if not watch.arrived(way.number, way.end, answer=False):
        lost = f"{told}: sent {ATTEMPTS} times, it did not arrive at {way.end}"
        if not tell_in_time(network, way.steps[1:]):
            return lost
        return f"{lost}: {far()}; look at {where_to_look(network, way.steps[1:], rises, taps)}"
    missed = [name for name, place in way.stations if place is not None and not watch.passed(way.number, place)]
    if missed:
        return f"{told}: it arrived at {way.end}, but did not come to {', '.join(missed)}: {far()}"
    if not _took(way, watch):
        elsewhere = {each[0] for seen in watch.ways(way.number) for each in seen - way.sightings}
        where = (
            f"but came to {', '.join(sorted(elsewhere))}, too" if elsewhere else "but never by the whole way at once"
        )
        return f"{told}: it arrived at {way.end}, {where}: {far()}"
    if not _done(way, watch):
        return f"{told}: it arrived at {way.end}, but no answer came back to {way.src.name}"
    if any(rises.get(entry, 0) <= 0 for entry in way.entries if entry in wanted):
        return f"{told}: it arrived at {way.end} by another way than this: {far()}"
    return None


def _told(probe: Probe) -> str:
    place = f"{probe.entry.switch}/{probe.entry.match.in_port}"
    return f"probe {probe.src} -> {probe.dst} through chain {probe.chain}, sent by {named(probe.entry)} at {place}"
