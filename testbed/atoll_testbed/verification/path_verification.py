# SPDX-License-Identifier: Apache-2.0
"""Verify the entries of a plan by probes of the hosts, one for each path.

Entries read back from a switch are those in its software; its hardware may lag behind or behave differently, and a box
on the path may not forward at all.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from atoll_controller.tracing.probe_paths import Path, covering_paths, max_rtt_ns
from atoll_controller.tracing.table_model import Lookup
from atoll_controller.tracing.trace_report import suspected_part
from atoll_core.errors import LabError
from atoll_core.experiment.experiment import Experiment, Protocol
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Plan
from atoll_testbed.verification.entry_counters import are_counters_prompt, count_increase, counted_path, read_counts
from atoll_testbed.verification.probe_receiver import SentProbe, Watch, receiving_probes, sending
from atoll_testbed.verification.swap_verification import ATTEMPTS, INTERVAL_S

if TYPE_CHECKING:
    from atoll_testbed.testbed import Testbed

_PROGRAM_START_S = 10.0  # users' programs do not report when they are ready to forward
_ENDS_PER_S = 100  # cable ends that one Linux activates per second after they came up (net/core/link_watch.c)
_MAX_EXPLAINED = 10  # paths: where one switch or box fails, so do many


async def verify_paths(testbed: "Testbed", plan: Plan, experiment: Experiment) -> int:
    """Send probes on a minimum of paths that use every entry that packets of hosts can match; returns their number.

    Takes little more than the longest round trip. Raises LabError with a line for each path that failed: source,
    destination, chain, how far the probes came, and likely causes; the last line says how to examine it.
    """
    paths = await asyncio.to_thread(covering_paths, testbed.network, experiment, plan.flows)
    if failed := await _failed_paths(testbed, experiment, paths):
        lines = await _explain(testbed, experiment, failed[:_MAX_EXPLAINED])
        more = [f"and {len(failed) - _MAX_EXPLAINED} more paths"] if len(failed) > _MAX_EXPLAINED else []
        raise LabError("\n".join([*lines, *more, _remedy(failed[0])]))
    return len(paths)


async def _failed_paths(testbed: "Testbed", experiment: Experiment, paths: Sequence[Path]) -> list[Path]:
    """Send probes on all paths at once; returns the paths on which none arrived."""
    watch = Watch()
    network = testbed.network
    # Any host answers an echo request; probes of other protocols are answered only by a job there.
    machines: dict[str, IPv4Address | None] = {}
    probes: defaultdict[str, list[SentProbe]] = defaultdict(list)
    addresses = {host.name: host.address for host in network.hosts}
    for number, path in enumerate(paths):
        probes[path.world].append(SentProbe(number, addresses[path.island], path.number))
        if path.end != path.island:
            machines[path.end] = None
        elif path.protocol is not Protocol.ICMP:
            machines[path.island] = addresses[path.island]

    def is_proven(number: int, path: Path) -> bool:
        answer = path.end == path.island
        return watch.seen_by_machine(number, path.world if answer else path.end, answer=answer)

    senders = {name: (addresses[name], sent) for name, sent in probes.items()}
    attempts = _attempts(network, experiment)
    async with (
        receiving_probes(testbed.machine, watch, machines),
        sending(testbed.machine, watch, senders, attempts, int(INTERVAL_S * 1e9), until_answered=True),
    ):
        limit_s = attempts * INTERVAL_S + max_rtt_ns(network, experiment) / 1e9
        await watch.wait_until(lambda: all(is_proven(number, path) for number, path in enumerate(paths)), limit_s)
    return [path for number, path in enumerate(paths) if not is_proven(number, path)]


def _remedy(path: Path) -> str:
    """How to examine a path that failed, as the changes have been undone."""
    protocol = f" --protocol {path.protocol}" if path.protocol else ""
    return (
        "the changes were undone; to examine them, use `atoll up EXPERIMENT --no-probe`, then `atoll trace EXPERIMENT "
        f"{path.world} {path.island}{protocol} --live`, `atoll switches entries` and `atoll switches counters`"
    )


def _attempts(network: Network, experiment: Experiment) -> int:
    """The number of attempts, which allows for the start of programs and of all cables."""
    programs = {box.name for box in network.boxes if box.kind.has_program}
    starts_programs = any(hop in programs for chain in experiment.chains for hop in chain.hops)
    cable_ends = 2 * sum(len(interfaces) for interfaces in network.machines.values())
    start_s = max(_PROGRAM_START_S if starts_programs else 0, cable_ends // _ENDS_PER_S)
    return ATTEMPTS + round(start_s / INTERVAL_S)


async def _explain(testbed: "Testbed", experiment: Experiment, paths: Sequence[Path]) -> list[str]:
    """A line for each path that failed, after another attempt with the entries' counters."""
    network, controller = testbed.network, testbed.controller
    steps = (step for path in paths for step in path.steps if isinstance(step, Lookup))
    before = await read_counts(controller, network, (step.entry for step in steps if step.entry is not None))
    failed = set(await _failed_paths(testbed, experiment, paths))
    increases = await count_increase(controller, network, before, ())
    taps = {tap.name for tap in network.taps}
    lines: list[str] = []
    for path in paths:
        probe = f"probe {path.world} -> {path.island} ({path.name}) through chain {path.chain}"
        if path not in failed:
            lines.append(f"{probe}: it arrived only at the second attempt")
        elif are_counters_prompt(network, path.steps):
            part = suspected_part(network, path.steps, increases, taps)
            lines.append(f"{probe}: no answer: {counted_path(path.steps, increases, taps)}; look at {part}")
        else:  # hardware whose counters are too slow
            lines.append(f"{probe}: no answer")
    return lines
