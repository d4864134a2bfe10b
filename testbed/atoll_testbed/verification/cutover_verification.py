# SPDX-License-Identifier: Apache-2.0
"""Proof that the edge sends hosts' packets on by another version: frames of hosts, seen where that version leads.

A switch may acknowledge an entry, and tell it when read, seconds before its hardware has it, and a frame that it is
handed (packet-out) passes its table by. What a host sends comes to the ingress port and takes the entry that all
packets of that host take. Where it was seen - at which interface of which box, tap and host, with which VLAN tag -
says which version it took.
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
from atoll_testbed.verification.entry_counters import named
from atoll_testbed.verification.probe_receiver import (
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
from atoll_testbed.verification.probed_lab import ProbedLab
from atoll_testbed.verification.swap_verification import INTERVAL_S, LAG_S


@dataclass(frozen=True, slots=True)
class _Turn:
    """A frame of a host, where the version leads that it should take, and where the other one does.

    ``here`` and ``there`` have what can be seen; a device from outside shows nothing. ``blind``: the ways differ,
    and no sighting tells them apart. ``whole``: no box on the way ends the frame and may send another one on.
    """

    number: int
    probe: Probe
    here: frozenset[Sighting]
    there: frozenset[Sighting]
    blind: bool
    whole: bool = True

    def taken(self, watch: Watch) -> bool:
        """Whether a frame was seen everywhere here, and nowhere else: not where some third version led, either.

        Where the other version only leads to more, two have to be so: the copy for a tap may have been lost.
        """
        taken = watch.taken(self.number, self.here, whole=self.whole)
        return taken >= (2 if self.here < self.there else 1)

    def failure(self, watch: Watch) -> str:
        """What is wrong with it, in one line."""
        probe = self.probe
        words = (
            f"probe {probe.src} -> {probe.dst} through chain {probe.chain}, taken by {named(probe.entry)} at "
            f"{probe.entry.switch}/{probe.entry.match.in_port}"
        )
        seen = frozenset[Sighting]().union(*watch.ways(self.number))
        if seen & (self.there - self.here):
            return (
                f"{words}: packets of {probe.src} still take the other version {LAG_S:g} s after {probe.entry.switch} "
                "acknowledged the change; its data plane does not follow"
            )
        missed = sorted({machine for machine, _, _ in self.here - seen})
        return f"{words}: sent by {probe.src} for {LAG_S:g} s, it did not come to {', '.join(missed) or probe.dst}"


async def turned(
    testbed: ProbedLab, probes: Sequence[Probe], before: Plan, after: Plan, experiments: Iterable[Experiment]
) -> None:
    """Return when what hosts send takes the ways of the plan ``after``, and not those of ``before`` any more.

    ``experiments``: all whose packets may be under way. Where sightings do not tell the ways apart, ``LAG_S`` have
    passed since the call. Raises LabError, a line for each frame that did not arrive by its way within that time and
    the longest that it can be under way.
    """
    if not probes:
        return
    network, clock = testbed.network, asyncio.get_running_loop().time
    began_s = clock()
    turns = await asyncio.to_thread(_turns, network, probes, before, after)
    blind = any(turn.blind for turn in turns)
    deadline_s = began_s + LAG_S + max(limit_ns(network, each) for each in experiments) / 1e9
    while turns:
        watch = Watch(stations(network))
        await _watch_until_taken(testbed, turns, watch, deadline_s - clock())
        left = [turn for turn in turns if not turn.taken(watch)]  # by all that was seen: the jobs have ended
        if left and clock() >= deadline_s:
            raise LabError("\n".join(turn.failure(watch) for turn in left))
        turns = left
    if blind:
        await asyncio.sleep(began_s + LAG_S - clock())


async def _watch_until_taken(testbed: ProbedLab, turns: Sequence[_Turn], watch: Watch, limit_s: float) -> None:
    """Have hosts send the frames until all were seen where they should be, or for so long."""
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


def _turns(network: Network, probes: Iterable[Probe], before: Plan, after: Plan) -> list[_Turn]:
    left, taken = (SwitchTables(network, plan.flows, strict=False) for plan in (before, after))
    found: list[_Turn] = []
    for number, probe in enumerate(probes):
        (there, _), (here, end) = _way(network, left, probe), _way(network, taken, probe)
        seen = [sightings(network, way) for way in (here, there)]
        same = [_essence(step) for step in here] == [_essence(step) for step in there]
        found.append(_Turn(number, probe, *seen, blind=seen[0] == seen[1] and not same, whole=end == probe.dst))
    return found


def _way(network: Network, tables: SwitchTables, probe: Probe) -> tuple[tuple[Step, ...], str]:
    """What becomes of a host's frame, and where it ends."""
    src, dst = network.host(probe.src), network.host(probe.dst)
    try:
        steps = tables.walk(Frame(src.address, dst.address, protocol=probe.protocol), src.interface.attached)
    except PlanError as error:
        raise LabError(f"probe {src.name} -> {dst.name}: {error}") from error
    return of_one_sender(network, steps, probe.protocol, dst.name)


def _essence(step: Step) -> Step:
    """Where and as what a frame comes, whichever entry takes it there."""
    return step if isinstance(step, Delivery) else replace(step, entry=None)
