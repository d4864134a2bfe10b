# SPDX-License-Identifier: Apache-2.0
"""Proof that a plan's entries do what they say: a probe for each path, sent by the hosts themselves.

What has been read back from a switch is what it has noted down; hardware may lag behind it or do something else, and a
box on the way may do nothing at all.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from ipaddress import IPv4Address

from atoll_controller.tracing.fault_hints import where_to_look
from atoll_controller.tracing.probe_paths import Path, cover, limit_ns
from atoll_controller.tracing.table_model import Lookup
from atoll_core.errors import LabError
from atoll_core.experiment.experiment import Experiment, Protocol
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Plan
from atoll_testbed.verification.entry_counters import count_increase, counts, how_far, tell_in_time
from atoll_testbed.verification.probe_receiver import Sending, Sent, Watch, receiving_probes, sending
from atoll_testbed.verification.probed_lab import ProbedLab
from atoll_testbed.verification.swap_verification import ATTEMPTS, INTERVAL_S

_STARTING_S = 10.0  # a program that users bring does not say when it is ready to forward
_ENDS_PER_S = 100  # cables' ends of one Linux that come into use a second after they came up (net/core/link_watch.c)
_EXPLAINED = 10  # paths: where one switch or box fails, so do many


async def verify(testbed: ProbedLab, plan: Plan, experiment: Experiment) -> int:
    """Send probes on few paths that use every entry of a plan that hosts can cause; returns their number.

    It takes the longest round trip of these and a moment. Raises LabError, a line for each path that failed: who did
    not reach whom, through which chain, how far the probes came, and what to look at; the last line says how.
    """
    paths = await asyncio.to_thread(cover, testbed.network, experiment, plan.flows)
    failed = await _unproven(testbed, experiment, paths)
    if failed:
        lines = await _explained(testbed, experiment, failed[:_EXPLAINED])
        more = [f"and {len(failed) - _EXPLAINED} paths more"] if len(failed) > _EXPLAINED else []
        raise LabError("\n".join([*lines, *more, _closer(failed[0])]))
    return len(paths)


async def _unproven(testbed: ProbedLab, experiment: Experiment, paths: Sequence[Path]) -> list[Path]:
    """Send probes on all paths at once; those on which none came through."""
    watch = Watch()
    network = testbed.network
    # Any host answers an echo request; of what else is sent, only the job there does.
    machines: dict[str, IPv4Address | None] = {}
    probes: defaultdict[str, list[Sent]] = defaultdict(list)
    addresses = {host.name: host.address for host in network.hosts}
    for number, path in enumerate(paths):
        probes[path.world].append(Sent(number, addresses[path.island], path.number))
        if path.end != path.island:
            machines[path.end] = None
        elif path.protocol is not Protocol.ICMP:
            machines[path.island] = addresses[path.island]

    def proven(number: int, path: Path) -> bool:
        answer = path.end == path.island
        return watch.arrived(number, path.world if answer else path.end, answer=answer)

    senders = {name: (addresses[name], sent) for name, sent in probes.items()}
    attempts = _attempts(network, experiment)
    how = Sending(attempts, int(INTERVAL_S * 1e9), until_answered=True)
    async with (
        receiving_probes(testbed.machine, watch, machines),
        sending(testbed.machine, watch, senders, how),
    ):
        limit_s = attempts * INTERVAL_S + limit_ns(network, experiment) / 1e9
        await watch.until(lambda: all(proven(*each) for each in enumerate(paths)), limit_s)
    return [path for number, path in enumerate(paths) if not proven(number, path)]


def _closer(path: Path) -> str:
    """How to look at a path that failed, now that everything is undone."""
    protocol = f" --protocol {path.protocol}" if path.protocol else ""
    return (
        "it was undone; `atoll up EXPERIMENT --no-probe` leaves it in place for a closer look: `atoll trace EXPERIMENT "
        f"{path.world} {path.island}{protocol} --live`, `atoll switches entries`, `atoll switches counters`"
    )


def _attempts(network: Network, experiment: Experiment) -> int:
    """How often probes are sent that are not answered: until programs have started and all cables are in use."""
    programs = {box.name for box in network.boxes if box.kind.traits.has_program}
    starting = any(hop in programs for chain in experiment.chains for hop in chain.hops)
    ends = 2 * sum(len(interfaces) for interfaces in network.machines.values())
    patience_s = max(_STARTING_S if starting else 0, ends // _ENDS_PER_S)
    return ATTEMPTS + round(patience_s / INTERVAL_S)


async def _explained(testbed: ProbedLab, experiment: Experiment, paths: Sequence[Path]) -> list[str]:
    """A line for each path on which nothing comes through, tried once more and looked at entry by entry."""
    network, controller = testbed.network, testbed.controller
    ways = [tuple(s.entry for s in path.there if isinstance(s, Lookup) and s.entry is not None) for path in paths]
    before = await counts(controller, network, (entry for way in ways for entry in way))
    failed = set(await _unproven(testbed, experiment, paths))
    rises = await count_increase(controller, network, before, ())
    taps = {tap.name for tap in network.taps}
    lines: list[str] = []
    for path in paths:
        told = f"probe {path.world} -> {path.island} ({path.name}) through chain {path.chain}"
        if path not in failed:
            lines.append(f"{told}: it came through at the second try alone")
        elif tell_in_time(network, path.there):
            look = where_to_look(network, path.there, rises, taps)
            lines.append(f"{told}: no answer: {how_far(path.there, rises, taps)}; look at {look}")
        else:  # hardware that tells its counts too late to say where
            lines.append(f"{told}: no answer")
    return lines
