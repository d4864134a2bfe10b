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
from atoll_controller.tracing.probe_paths import max_rtt_ns, path_of_sender
from atoll_controller.tracing.table_model import Delivery, Frame, Lookup, Step, SwitchTables
from atoll_controller.tracing.trace_report import suspected_part
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
    entry_label,
    prompt_switches,
    read_counts,
)
from atoll_testbed.verification.probe_receiver import (
    SentProbe,
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

_LATENESS_S = 30.0  # additional delay of packets on busy machines


@dataclass(slots=True)
class _ProbePath:
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
    refusal: str | None = None

    @property
    def expects_answer(self) -> bool:
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
    versions = [version for version in (experiment, testbed.experiment) if version is not None]
    if not probes or not versions:
        return
    network, controller = testbed.network, testbed.controller
    paths = await _probe_paths(testbed, probes)
    before = await read_counts(controller, network, (entry for path in paths for entry in path.entries))
    watch = Watch(stations(network))
    promiscuous = boxes_and_taps(network)
    machines: dict[str, IPv4Address | None] = dict.fromkeys(promiscuous)
    machines |= {host.name: host.address for path in paths for host in (path.src, path.dst)}
    async with receiving_probes(testbed.machine, watch, machines, promiscuous):
        await _send_until_proven(testbed, paths, watch, max(max_rtt_ns(network, version) for version in versions) / 1e9)
    prompt = prompt_switches(network)
    proven_paths = [path for path in paths if _is_proven(path, watch)]
    unwatched = [path for path in proven_paths if any(station is None for _, station in path.stations)]
    old_effects = {_effect(entry) for entry in (testbed.plan.flows if testbed.plan else ())}
    required = {e for path in unwatched for e in path.entries if e.switch in prompt and _effect(e) not in old_effects}
    increases = await count_increase(controller, network, before, required)
    if lines := [line for path in paths if (line := _failure_text(network, path, watch, increases, required))]:
        raise LabError("\n".join(lines))


async def verify_drained(testbed: "Testbed", probes: Sequence[Probe], experiment: Experiment) -> None:
    """Wait until probes sent on the old paths have arrived; earlier packets on these paths have arrived by then, too.

    Switches, boxes and links keep packets in order. ``experiment``: the old version. Raises LabError with a line for
    each probe that did not arrive within the maximum transit time of its path plus half a minute.
    """
    if not probes:
        return
    versions = [version for version in (experiment, testbed.experiment) if version is not None]
    paths = await _probe_paths(testbed, probes)
    limit_s = max(max_rtt_ns(testbed.network, version) for version in versions) / 1e9 + _LATENESS_S
    deadline = asyncio.get_running_loop().time() + limit_s
    watch = Watch()

    def missing_paths() -> list[_ProbePath]:
        return [path for path in paths if not watch.seen_by_machine(path.number, path.end, answer=False)]

    async with receiving_probes(testbed.machine, watch, dict.fromkeys(path.end for path in paths)):
        attempt = 0
        while missing := missing_paths():
            if asyncio.get_running_loop().time() > deadline:
                lines = (f"{_probe_text(path.probe)}: it did not arrive at {path.end}" for path in missing)
                raise LabError("\n".join(lines))
            await _send(testbed, missing, watch.session, attempt)
            attempt += 1
            await watch.wait_until(lambda: not missing_paths(), INTERVAL_S)


async def _probe_paths(testbed: "Testbed", probes: Sequence[Probe]) -> list[_ProbePath]:
    """The probes with their paths by the switches' current tables, computed in a thread as there may be thousands."""
    network = testbed.network
    installed = await read_tables(testbed.controller, network)
    flows = testbed.installed_plan.flows if testbed.installed_plan else ()

    def compute() -> list[_ProbePath]:
        planned_entries = {_effect(entry): entry for entry in flows}  # has the reasons of entries
        read_entries = (entry for entries in installed.values() for entry in entries if isinstance(entry, FlowEntry))
        entries = {entry.identity: planned_entries.get(_effect(entry), entry) for entry in read_entries}
        entries |= {probe.entry.identity: probe.entry for probe in probes}
        tables = SwitchTables(network, entries.values(), strict=False)
        return [_probe_path(network, tables, number, probe) for number, probe in enumerate(probes)]

    return await asyncio.to_thread(compute)


def _probe_path(network: Network, tables: SwitchTables, number: int, probe: Probe) -> _ProbePath:
    src, dst = network.host(probe.src), network.host(probe.dst)
    match = probe.entry.match
    frame = Frame(src.address, dst.address, _tag(match), probe.protocol)
    try:
        steps = tables.walk(frame, PortRef(probe.entry.switch, match.in_port), first=probe.entry)
    except PlanError as error:
        raise LabError(f"{_probe_text(probe)}: by the switches' tables, {error}") from error
    steps, end = path_of_sender(network, steps, probe.protocol, dst.name)
    deliveries = (step for step in steps if isinstance(step, Delivery))
    path_stations = tuple((step.name, station(network, step.name, step.port)) for step in deliveries)
    return _ProbePath(number, probe, src, dst, steps, end, path_stations, sightings(network, steps))


def _tag(match: Match) -> int | None:
    return match.vlan if isinstance(match.vlan, int) else None


async def _send_until_proven(testbed: "Testbed", paths: Sequence[_ProbePath], watch: Watch, limit_s: float) -> None:
    def are_all_proven() -> bool:
        return all(_is_proven(path, watch) or path.refusal for path in paths)

    for attempt in range(ATTEMPTS):
        await _send(testbed, [path for path in paths if not _is_proven(path, watch)], watch.session, attempt)
        if await watch.wait_until(are_all_proven, INTERVAL_S):
            return
    await watch.wait_until(are_all_proven, limit_s)


async def _send(testbed: "Testbed", paths: Iterable[_ProbePath], session: int, attempt: int) -> None:
    paths_by_switch: defaultdict[str, list[_ProbePath]] = defaultdict(list)
    for path in paths:
        paths_by_switch[path.probe.entry.switch].append(path)

    async def send(name: str) -> None:
        frames = [(path.probe.entry, path.frame(session, attempt)) for path in paths_by_switch[name]]
        refusals = await testbed.controller.send(testbed.network.switch(name).dpid, frames)
        for path, refusal in zip(paths_by_switch[name], refusals, strict=True):
            path.refusal = refusal

    await asyncio.gather(*map(send, paths_by_switch))


def _is_proven(path: _ProbePath, watch: Watch) -> bool:
    answered = not path.expects_answer or watch.seen_by_machine(path.number, path.src.name, answer=True)
    return answered and _followed_path(path, watch)


def _followed_path(path: _ProbePath, watch: Watch) -> bool:
    """Whether an attempt was seen everywhere on the path, and nowhere else, such as on the path of old entries."""
    return watch.attempts_on_path(path.number, path.sightings, exact=path.expects_answer) > 0


def _effect(entry: FlowEntry) -> tuple[EntryId, tuple[Action, ...]]:
    """The parts of an entry that affect forwarding."""
    return entry.identity, entry.actions


def _failure_text(
    network: Network, path: _ProbePath, watch: Watch, increases: Counts, required: Collection[FlowEntry]
) -> str | None:
    """The failure of a probe in one line; None if it has not failed. ``required``: entries that must have counted."""
    probe = _probe_text(path.probe)
    if path.refusal:
        return f"{probe}: the switch refused to send it: {path.refusal}"
    taps = {tap.name for tap in network.taps}

    def progress() -> str:
        return counted_path(path.steps[1:], increases, taps)

    if not watch.seen_by_machine(path.number, path.end, answer=False):
        failure = f"{probe}: it was sent {ATTEMPTS} times and did not arrive at {path.end}"
        if not are_counters_prompt(network, path.steps[1:]):
            return failure
        return f"{failure}: {progress()}; look at {suspected_part(network, path.steps[1:], increases, taps)}"
    unreached = [name for name, at in path.stations if at is not None and not watch.seen_at_station(path.number, at)]
    if unreached:
        return f"{probe}: it arrived at {path.end}, but did not reach {', '.join(unreached)}: {progress()}"
    if not _followed_path(path, watch):
        other_machines = {machine for seen in watch.attempts_of(path.number) for machine, _, _ in seen - path.sightings}
        detail = "none of the attempts followed the whole path"
        if other_machines:
            detail = f"also reached {', '.join(sorted(other_machines))}"
        return f"{probe}: it arrived at {path.end}, but {detail}: {progress()}"
    if not _is_proven(path, watch):
        return f"{probe}: it arrived at {path.end}, but no answer came back to {path.src.name}"
    if any(increases.get(entry, 0) <= 0 for entry in path.entries if entry in required):
        return f"{probe}: it arrived at {path.end}, but not by the planned path: {progress()}"
    return None


def _probe_text(probe: Probe, role: str = "sent by") -> str:
    at = f"{entry_label(probe.entry)} at {probe.entry.switch}/{probe.entry.match.in_port}"
    return f"probe {probe.src} -> {probe.dst} through chain {probe.chain}, {role} {at}"


@dataclass(frozen=True, slots=True)
class _CutoverProbe:
    """A frame of a host, with the sightings on its path by the new version and by the old one.

    External devices give no sightings. ``is_indistinct``: the paths differ, but their sightings do not.
    ``is_exact``: no box on the path terminates the frame and may send another one.
    """

    number: int
    probe: Probe
    new_sightings: frozenset[Sighting]
    old_sightings: frozenset[Sighting]
    is_indistinct: bool
    is_exact: bool = True

    def has_taken_new_path(self, watch: Watch) -> bool:
        """Whether a frame was seen everywhere on the new path and nowhere else.

        If the old path contains the new one, two frames are needed: the copy for a tap may have been lost.
        """
        min_attempts = 2 if self.new_sightings < self.old_sightings else 1
        return watch.attempts_on_path(self.number, self.new_sightings, exact=self.is_exact) >= min_attempts

    def failure(self, watch: Watch) -> str:
        """The failure in one line."""
        probe = self.probe
        text = _probe_text(probe, "expected at")
        seen = frozenset[Sighting]().union(*watch.attempts_of(self.number))
        if seen & (self.old_sightings - self.new_sightings):
            return (
                f"{text}: packets of {probe.src} still take the old path {LAG_S:g} s after {probe.entry.switch} "
                "acknowledged the change; its data plane was not updated"
            )
        missed = sorted({machine for machine, _, _ in self.new_sightings - seen})
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
    start_s = clock()
    missing_probes = await asyncio.to_thread(_cutover_probes, network, probes, before, after)
    is_indistinct = any(probe.is_indistinct for probe in missing_probes)
    deadline_s = start_s + LAG_S + max(max_rtt_ns(network, version) for version in experiments) / 1e9
    while missing_probes:
        watch = Watch(stations(network))
        await _watch_until_taken(testbed, missing_probes, watch, deadline_s - clock())
        # The jobs have ended: all sightings are there.
        missing_probes = [probe for probe in missing_probes if not probe.has_taken_new_path(watch)]
        if missing_probes and clock() >= deadline_s:
            raise LabError("\n".join(probe.failure(watch) for probe in missing_probes))
    if is_indistinct:
        await asyncio.sleep(start_s + LAG_S - clock())


async def _watch_until_taken(testbed: "Testbed", probes: Sequence[_CutoverProbe], watch: Watch, limit_s: float) -> None:
    """Have hosts send probes until all were seen on their new paths, or until the limit."""
    network = testbed.network
    senders = {host.name: (host.address, list[SentProbe]()) for host in network.hosts}
    for number, probe in ((cutover_probe.number, cutover_probe.probe) for cutover_probe in probes):
        senders[probe.src][1].append(SentProbe(number, network.host(probe.dst).address, probe.protocol))
    senders = {name: (address, sent) for name, (address, sent) in senders.items() if sent}
    promiscuous = boxes_and_taps(network)
    ends = (machine for probe in probes for machine, _, _ in probe.new_sightings if machine not in senders)
    watchers = dict.fromkeys((*promiscuous, *ends))
    attempts = max(1, round(limit_s / INTERVAL_S))
    async with (
        receiving_probes(testbed.machine, watch, watchers, promiscuous),
        sending(testbed.machine, watch, senders, attempts, int(INTERVAL_S * 1e9)),
    ):
        await watch.wait_until(lambda: all(probe.has_taken_new_path(watch) for probe in probes), limit_s)


def _cutover_probes(network: Network, probes: Iterable[Probe], before: Plan, after: Plan) -> list[_CutoverProbe]:
    old_tables, new_tables = (SwitchTables(network, plan.flows, strict=False) for plan in (before, after))
    cutover_probes: list[_CutoverProbe] = []
    for number, probe in enumerate(probes):
        (old_path, _), (new_path, end) = (_host_path(network, tables, probe) for tables in (old_tables, new_tables))
        new, old = sightings(network, new_path), sightings(network, old_path)
        is_same_path = [_without_entry(step) for step in new_path] == [_without_entry(step) for step in old_path]
        is_indistinct, is_exact = new == old and not is_same_path, end == probe.dst
        cutover_probes.append(_CutoverProbe(number, probe, new, old, is_indistinct, is_exact))
    return cutover_probes


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
