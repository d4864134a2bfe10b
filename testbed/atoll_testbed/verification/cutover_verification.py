# SPDX-License-Identifier: Apache-2.0
"""Verify the cutover of a swap: frames that hosts send must take the path of the new version.

A switch may acknowledge an entry, and return it when read, seconds before its hardware has it, and a packet-out
bypasses the table. A frame that a host sends arrives at the ingress port and matches the entry that all packets of that
host match. The interfaces of boxes, taps and hosts that receive it, and its VLAN tag there, show which version
forwarded it.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from atoll_controller.fabric.swap_probes import Probe
from atoll_controller.tracing.probe_paths import limit_ns, of_one_sender
from atoll_controller.tracing.table_model import Delivery, Frame, Step, SwitchTables
from atoll_core.errors import LabError, PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Plan
from atoll_testbed.verification.entry_counters import entry_label
from atoll_testbed.verification.probe_receiver import (
    ProbedLab,
    Sending,
    Sent,
    Sighting,
    Watch,
    boxes_and_taps,
    receiving_probes,
    sending,
    sightings,
    stations,
)
from atoll_testbed.verification.swap_verification import INTERVAL_S, LAG_S


@dataclass(frozen=True, slots=True)
class _CutoverProbe:
    """A frame of a host, with the sightings on its path by the new version (``here``) and by the old one (``there``).

    External devices give no sightings. ``blind``: the paths differ, but their sightings do not. ``whole``: no box on
    the path terminates the frame and may send another one.
    """

    number: int
    probe: Probe
    here: frozenset[Sighting]
    there: frozenset[Sighting]
    blind: bool
    whole: bool = True

    def taken(self, watch: Watch) -> bool:
        """Whether a frame was seen everywhere on the new path and nowhere else.

        If the old path contains the new one, two frames are needed: the copy for a tap may have been lost.
        """
        taken = watch.taken(self.number, self.here, whole=self.whole)
        return taken >= (2 if self.here < self.there else 1)

    def failure(self, watch: Watch) -> str:
        """The failure in one line."""
        probe = self.probe
        words = (
            f"probe {probe.src} -> {probe.dst} through chain {probe.chain}, expected at {entry_label(probe.entry)} at "
            f"{probe.entry.switch}/{probe.entry.match.in_port}"
        )
        seen = frozenset[Sighting]().union(*watch.ways(self.number))
        if seen & (self.there - self.here):
            return (
                f"{words}: packets of {probe.src} still take the old path {LAG_S:g} s after {probe.entry.switch} "
                "acknowledged the change; its data plane was not updated"
            )
        missed = sorted({machine for machine, _, _ in self.here - seen})
        return f"{words}: {probe.src} sent it for {LAG_S:g} s, but it did not reach {', '.join(missed) or probe.dst}"


async def verify_cutover(
    testbed: ProbedLab, probes: Sequence[Probe], before: Plan, after: Plan, experiments: Iterable[Experiment]
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
    turns = await asyncio.to_thread(_cutover_probes, network, probes, before, after)
    blind = any(turn.blind for turn in turns)
    deadline_s = began_s + LAG_S + max(limit_ns(network, each) for each in experiments) / 1e9
    while turns:
        watch = Watch(stations(network))
        await _watch_until_taken(testbed, turns, watch, deadline_s - clock())
        left = [turn for turn in turns if not turn.taken(watch)]  # all sightings are known: the jobs have ended
        if left and clock() >= deadline_s:
            raise LabError("\n".join(turn.failure(watch) for turn in left))
        turns = left
    if blind:
        await asyncio.sleep(began_s + LAG_S - clock())


async def _watch_until_taken(testbed: ProbedLab, turns: Sequence[_CutoverProbe], watch: Watch, limit_s: float) -> None:
    """Have hosts send the frames until all were seen on their new paths, or until the limit."""
    network = testbed.network
    senders = {host.name: (host.address, list[Sent]()) for host in network.hosts}
    for turn in turns:
        sent = Sent(turn.number, network.host(turn.probe.dst).address, turn.probe.protocol)
        senders[turn.probe.src][1].append(sent)
    senders = {name: each for name, each in senders.items() if each[1]}
    promiscuous = boxes_and_taps(network)
    ends = (machine for turn in turns for machine, _, _ in turn.here if machine not in senders)
    watchers = dict.fromkeys((*promiscuous, *ends))
    how = Sending(max(1, round(limit_s / INTERVAL_S)), int(INTERVAL_S * 1e9), until_answered=False)
    async with (
        receiving_probes(testbed.machine, watch, watchers, promiscuous),
        sending(testbed.machine, watch, senders, how),
    ):
        await watch.until(lambda: all(turn.taken(watch) for turn in turns), limit_s)


def _cutover_probes(network: Network, probes: Iterable[Probe], before: Plan, after: Plan) -> list[_CutoverProbe]:
    left, taken = (SwitchTables(network, plan.flows, strict=False) for plan in (before, after))
    found: list[_CutoverProbe] = []
    for number, probe in enumerate(probes):
        (there, _), (here, end) = _way(network, left, probe), _way(network, taken, probe)
        seen = [sightings(network, way) for way in (here, there)]
        same = [_without_entry(step) for step in here] == [_without_entry(step) for step in there]
        found.append(_CutoverProbe(number, probe, *seen, blind=seen[0] == seen[1] and not same, whole=end == probe.dst))
    return found


def _way(network: Network, tables: SwitchTables, probe: Probe) -> tuple[tuple[Step, ...], str]:
    """The path of a host's frame, and its end."""
    src, dst = network.host(probe.src), network.host(probe.dst)
    try:
        steps = tables.walk(Frame(src.address, dst.address, protocol=probe.protocol), src.interface.attached)
    except PlanError as error:
        raise LabError(f"probe {src.name} -> {dst.name}: {error}") from error
    return of_one_sender(network, steps, probe.protocol, dst.name)


def _without_entry(step: Step) -> Step:
    """A step of a path without the entry that forwards the frame."""
    return step if isinstance(step, Delivery) else replace(step, entry=None)
