# SPDX-License-Identifier: Apache-2.0
"""Verify that the entries of a swap forward packets before any traffic uses them.

A switch gets a frame with the actions of the entry that will send such frames (packet-out, OpenFlow 1.3.5, 7.3.7). The
entries are verified when every box, tap and host on the path by the switches' tables has received the frame, and its
answer has come back; barriers and read-back alone are no evidence. If a station cannot be watched, as an external
device, every new entry on the path must also have counted a packet.

At the cutover, frames that hosts send must take the path of the new version. A switch may acknowledge an entry, and
return it when read, seconds before its hardware has it, and a packet-out bypasses the table. A frame that a host sends
arrives at the ingress port and matches the entry that all packets of that host match. The interfaces of boxes, taps and
hosts that receive it, and its VLAN tag there, show which version forwarded it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from atoll_controller.fabric.flow_installer import read_tables
from atoll_controller.fabric.swap_probes import Probe
from atoll_controller.probing.probe_frames import ProbeEnd, ProbeMark, probe_frame
from atoll_controller.tracing.probe_paths import limit_ns, path_of_sender
from atoll_controller.tracing.table_model import Delivery, Frame, Lookup, Step, SwitchTables
from atoll_controller.tracing.trace_report import where_to_look
from atoll_core.errors import LabError, PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Host, Network
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.flow_entry import Action, EntryId, FlowEntry, Match
from atoll_core.plan.plan import Plan
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
    Sent,
    Sighting,
    Station,
    Watch,
    boxes_and_taps,
    receiving_probes,
    sending,
    sightings,
    station,
    stations,
)

if TYPE_CHECKING:
    from atoll_testbed.testbed import Testbed

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


async def verify_entries(testbed: "Testbed", probes: Sequence[Probe], experiment: Experiment | None = None) -> None:
    """Send all probes at once, and repeat those that do not arrive; returns when all paths are verified.

    ``experiment``: the new experiment (default: the applied one). Raises LabError with a line for each probe that
    failed: source, destination, chain, entry, and how far it came.
    """
    both = [version for version in (experiment, testbed.experiment) if version is not None]
    if not probes or not both:
        return
    network, controller = testbed.network, testbed.controller
    ways = await _ways(testbed, probes)
    before = await counts(controller, network, (entry for way in ways for entry in way.entries))
    watch = Watch(stations(network))
    promiscuous = boxes_and_taps(network)
    machines: dict[str, IPv4Address | None] = dict.fromkeys(promiscuous)
    machines |= {host.name: host.address for way in ways for host in (way.src, way.dst)}
    async with receiving_probes(testbed.machine, watch, machines, promiscuous):
        await _send_until_seen(testbed, ways, watch, max(limit_ns(network, version) for version in both) / 1e9)
    prompt = prompt_switches(network)
    arrived = [way for way in ways if _done(way, watch)]
    unwatched = [way for way in arrived if any(station is None for _, station in way.stations)]
    old = {_effect(entry) for entry in (testbed.plan.flows if testbed.plan else ())}
    counting = {e for way in unwatched for e in way.entries if e.switch in prompt and _effect(e) not in old}
    rises = await count_increase(controller, network, before, counting)
    lines = [line for way in ways if (line := _judge(network, way, watch, rises, counting))]
    if lines:
        raise LabError("\n".join(lines))


async def verify_drained(testbed: "Testbed", probes: Sequence[Probe], experiment: Experiment) -> None:
    """Wait until probes sent on the old paths have arrived; earlier packets on these paths have arrived by then, too.

    Switches, boxes and links keep packets in order. ``experiment``: the old version. Raises LabError with a line for
    each probe that did not arrive within the maximum transit time of its path plus half a minute.
    """
    if not probes:
        return
    both = [version for version in (experiment, testbed.experiment) if version is not None]
    ways = await _ways(testbed, probes)
    limit_s = max(limit_ns(testbed.network, version) for version in both) / 1e9 + _LATE_S
    deadline = asyncio.get_running_loop().time() + limit_s
    watch = Watch()

    def left() -> list[_Way]:
        return [way for way in ways if not watch.arrived(way.number, way.end, answer=False)]

    async with receiving_probes(testbed.machine, watch, dict.fromkeys(way.end for way in ways)):
        attempt = 0
        while missing := left():
            if asyncio.get_running_loop().time() > deadline:
                raise LabError(
                    "\n".join(f"{_probe_text(way.probe)}: it did not arrive at {way.end}" for way in missing)
                )
            await _send(testbed, missing, watch.session, attempt)
            attempt += 1
            await watch.until(lambda: not left(), INTERVAL_S)


async def _ways(testbed: "Testbed", probes: Sequence[Probe]) -> list[_Way]:
    """The probes with their paths by the switches' current tables, computed in a thread as there may be thousands."""
    network = testbed.network
    installed = await read_tables(testbed.controller, network)
    flows = testbed.installed_plan.flows if testbed.installed_plan else ()

    def compute() -> list[_Way]:
        planned = {_effect(entry): entry for entry in flows}  # has the reasons of entries
        read = (entry for entries in installed.values() for entry in entries if isinstance(entry, FlowEntry))
        entries = {entry.identity: planned.get(_effect(entry), entry) for entry in read}
        entries |= {probe.entry.identity: probe.entry for probe in probes}
        tables = SwitchTables(network, entries.values(), strict=False)
        return [_way(network, tables, number, probe) for number, probe in enumerate(probes)]

    return await asyncio.to_thread(compute)


def _way(network: Network, tables: SwitchTables, number: int, probe: Probe) -> _Way:
    src, dst = network.host(probe.src), network.host(probe.dst)
    match = probe.entry.match
    frame = Frame(src.address, dst.address, _tag(match), probe.protocol)
    try:
        steps = tables.walk(frame, PortRef(probe.entry.switch, match.in_port), first=probe.entry)
    except PlanError as error:
        raise LabError(f"{_probe_text(probe)}: by the switches' tables, {error}") from error
    steps, end = path_of_sender(network, steps, probe.protocol, dst.name)
    reached = (step for step in steps if isinstance(step, Delivery))
    passed = tuple((step.name, station(network, step.name, step.port)) for step in reached)
    return _Way(number, probe, src, dst, steps, end, passed, sightings(network, steps))


def _tag(match: Match) -> int | None:
    return match.vlan if isinstance(match.vlan, int) else None


async def _send_until_seen(testbed: "Testbed", ways: Sequence[_Way], watch: Watch, limit_s: float) -> None:
    def all_done() -> bool:
        return all(_done(way, watch) or way.refused for way in ways)

    for attempt in range(ATTEMPTS):
        await _send(testbed, [way for way in ways if not _done(way, watch)], watch.session, attempt)
        if await watch.until(all_done, INTERVAL_S):
            return
    await watch.until(all_done, limit_s)


async def _send(testbed: "Testbed", ways: Iterable[_Way], session: int, attempt: int) -> None:
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


def _judge(network: Network, way: _Way, watch: Watch, rises: Counts, counting: Collection[FlowEntry]) -> str | None:
    """The failure of a probe in one line; None if it has not failed. ``counting``: entries that must have counted."""
    probe = _probe_text(way.probe)
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
    missed = [name for name, at in way.stations if at is not None and not watch.passed(way.number, at)]
    if missed:
        return f"{probe}: it arrived at {way.end}, but did not reach {', '.join(missed)}: {far()}"
    if not _took(way, watch):
        elsewhere = {machine for seen in watch.ways(way.number) for machine, _, _ in seen - way.sightings}
        where = "none of the attempts followed the whole path"
        if elsewhere:
            where = f"also reached {', '.join(sorted(elsewhere))}"
        return f"{probe}: it arrived at {way.end}, but {where}: {far()}"
    if not _done(way, watch):
        return f"{probe}: it arrived at {way.end}, but no answer came back to {way.src.name}"
    if any(rises.get(entry, 0) <= 0 for entry in way.entries if entry in counting):
        return f"{probe}: it arrived at {way.end}, but not by the planned path: {far()}"
    return None


def _probe_text(probe: Probe, role: str = "sent by") -> str:
    at = f"{entry_label(probe.entry)} at {probe.entry.switch}/{probe.entry.match.in_port}"
    return f"probe {probe.src} -> {probe.dst} through chain {probe.chain}, {role} {at}"


@dataclass(frozen=True, slots=True)
class _CutoverProbe:
    """A frame of a host, with the sightings on its path by the new version and by the old one.

    External devices give no sightings. ``blind``: the paths differ, but their sightings do not. ``whole``: no box on
    the path terminates the frame and may send another one.
    """

    number: int
    probe: Probe
    new: frozenset[Sighting]
    old: frozenset[Sighting]
    blind: bool
    whole: bool = True

    def taken(self, watch: Watch) -> bool:
        """Whether a frame was seen everywhere on the new path and nowhere else.

        If the old path contains the new one, two frames are needed: the copy for a tap may have been lost.
        """
        return watch.taken(self.number, self.new, whole=self.whole) >= (2 if self.new < self.old else 1)

    def failure(self, watch: Watch) -> str:
        """The failure in one line."""
        probe = self.probe
        text = _probe_text(probe, "expected at")
        seen = frozenset[Sighting]().union(*watch.ways(self.number))
        if seen & (self.old - self.new):
            return (
                f"{text}: packets of {probe.src} still take the old path {LAG_S:g} s after {probe.entry.switch} "
                "acknowledged the change; its data plane was not updated"
            )
        missed = sorted({machine for machine, _, _ in self.new - seen})
        return f"{text}: {probe.src} sent it for {LAG_S:g} s, but it did not reach {', '.join(missed) or probe.dst}"


async def verify_cutover(
    testbed: "Testbed", probes: Sequence[Probe], before: Plan, after: Plan, experiments: Iterable[Experiment]
) -> None:
    """Wait until hosts' packets take the paths of the plan ``after`` and no longer those of ``before``.

    ``experiments``: all experiments whose packets may be in flight. If sightings do not distinguish the paths, wait
    ``LAG_S``. Raises LabError with a line for each frame that did not arrive on its path within ``LAG_S`` and the
    maximum transit time.
    """
    if not probes:
        return
    network, clock = testbed.network, asyncio.get_running_loop().time
    began_s = clock()
    missing = await asyncio.to_thread(_cutover_probes, network, probes, before, after)
    blind = any(frame.blind for frame in missing)
    deadline_s = began_s + LAG_S + max(limit_ns(network, version) for version in experiments) / 1e9
    while missing:
        watch = Watch(stations(network))
        await _watch_until_taken(testbed, missing, watch, deadline_s - clock())
        missing = [frame for frame in missing if not frame.taken(watch)]  # all sightings are there: the jobs have ended
        if missing and clock() >= deadline_s:
            raise LabError("\n".join(frame.failure(watch) for frame in missing))
    if blind:
        await asyncio.sleep(began_s + LAG_S - clock())


async def _watch_until_taken(testbed: "Testbed", frames: Sequence[_CutoverProbe], watch: Watch, limit_s: float) -> None:
    """Have hosts send the frames until all were seen on their new paths, or until the limit."""
    network = testbed.network
    senders = {host.name: (host.address, list[Sent]()) for host in network.hosts}
    for frame in frames:
        sent = Sent(frame.number, network.host(frame.probe.dst).address, frame.probe.protocol)
        senders[frame.probe.src][1].append(sent)
    senders = {name: (address, sent) for name, (address, sent) in senders.items() if sent}
    promiscuous = boxes_and_taps(network)
    ends = (machine for frame in frames for machine, _, _ in frame.new if machine not in senders)
    watchers = dict.fromkeys((*promiscuous, *ends))
    attempts = max(1, round(limit_s / INTERVAL_S))
    async with (
        receiving_probes(testbed.machine, watch, watchers, promiscuous),
        sending(testbed.machine, watch, senders, attempts, int(INTERVAL_S * 1e9)),
    ):
        await watch.until(lambda: all(frame.taken(watch) for frame in frames), limit_s)


def _cutover_probes(network: Network, probes: Iterable[Probe], before: Plan, after: Plan) -> list[_CutoverProbe]:
    old_tables, new_tables = (SwitchTables(network, plan.flows, strict=False) for plan in (before, after))
    frames: list[_CutoverProbe] = []
    for number, probe in enumerate(probes):
        (old_path, _), (new_path, end) = (_host_path(network, tables, probe) for tables in (old_tables, new_tables))
        new, old = sightings(network, new_path), sightings(network, old_path)
        same = [_without_entry(step) for step in new_path] == [_without_entry(step) for step in old_path]
        frames.append(_CutoverProbe(number, probe, new, old, blind=new == old and not same, whole=end == probe.dst))
    return frames


def _host_path(network: Network, tables: SwitchTables, probe: Probe) -> tuple[tuple[Step, ...], str]:
    """The path of a host's frame, and its end."""
    src, dst = network.host(probe.src), network.host(probe.dst)
    try:
        steps = tables.walk(Frame(src.address, dst.address, protocol=probe.protocol), src.interface.attached)
    except PlanError as error:
        raise LabError(f"probe {src.name} -> {dst.name}: {error}") from error
    return path_of_sender(network, steps, probe.protocol, dst.name)


def _without_entry(step: Step) -> Step:
    """A step of a path without the entry that forwards the frame."""
    return step if isinstance(step, Delivery) else replace(step, entry=None)
