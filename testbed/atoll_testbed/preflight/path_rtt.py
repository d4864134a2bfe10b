# SPDX-License-Identifier: Apache-2.0
"""The configuration test of paths: ping every path and compare base RTTs with the configuration."""

import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atoll_core.lab.network import HostRole, Network
from atoll_core.plan.plan import JobSpec, PathCheck, Phase, Plan, terrestrial_allowance_ns
from atoll_testbed.testbed import Testbed

# The lab itself may add this to an RTT: four software switches and as many process switches per direction.
_PATH_ALLOWANCE_NS = 6_000_000
# A delay may not be shorter than configured, but for the resolution of time stamps.
_EARLY_ALLOWANCE_NS = 100_000

Measured = dict[tuple[str, str], list[int]]
"""RTTs in ns by (source, destination); a path without any reply has an empty list."""


async def measure_paths(testbed: Testbed, plan: Plan, run: Path) -> Measured:
    """Ping every path of the plan; returns RTTs by path.

    The hosts start one after the other, so that pings of the first round have the same interval as later ones.
    """
    measured: Measured = {(check.src, check.dst): [] for check in plan.checks}

    async def ping_from(turn: int, spec: JobSpec) -> None:
        def take(line: dict[str, Any]) -> None:
            if line.get("type") == "reply":
                measured[spec.host, line["target"]].append(line["rtt_ns"])

        interval_ns = (spec.config or {})["interval_ns"]
        await asyncio.sleep(turn * interval_ns / len(plan.checks) / 1e9)
        job = await testbed.start_job(spec, run, on_line=take)
        await job.wait()

    checks = [spec for spec in plan.jobs if spec.phase is Phase.CHECK]
    await asyncio.gather(*(ping_from(*each) for each in enumerate(checks)))
    return measured


def base_rtt(rtts: list[int], jitter_ns: int) -> int:
    """The RTT of an idle path: the minimum of some pings, as a busy machine only ever adds delay.

    With jitter, the median.
    """
    return int(statistics.median(rtts)) if jitter_ns else min(rtts)


@dataclass(frozen=True, slots=True)
class Deviation:
    """A deviation from the configuration: a message, and the paths whose pings show it."""

    message: str
    paths: frozenset[tuple[str, str]]
    terrestrial: bool = False
    """Whether it is a server's latency, whose measurement is inexact on a busy machine."""


def judge_paths(plan: Plan, measured: Measured, network: Network) -> list[Deviation]:
    """Deviations of paths; if there are none, deviations of servers' latencies."""
    wrong = [
        Deviation(message, frozenset({(check.src, check.dst)}))
        for check in plan.checks
        if (message := _judge_path(check, measured[check.src, check.dst]))
    ]
    if wrong:
        return wrong
    scatter_ns = scatter(plan, measured)
    for server, configured_ns, measured_ns in terrestrial(plan, measured, network):
        jitter_ns = max(check.jitter_ns for check in plan.checks if check.src == server)
        allowed_ns = terrestrial_allowance_ns(configured_ns) + jitter_ns + scatter_ns
        if abs(measured_ns - configured_ns) > allowed_ns:
            message = (
                f"{server}: terrestrial RTT {measured_ns / 1e6:.2f} ms, configured {configured_ns / 1e6:g} ms; "
                f"the difference may be at most {allowed_ns / 1e6:.2f} ms"
            )
            sources = {server, *_references(plan)}
            wrong.append(
                Deviation(message, frozenset(path for path in measured if path[0] in sources), terrestrial=True)
            )
    return wrong


def _judge_path(check: PathCheck, rtts: list[int]) -> str | None:
    where = f"{check.src} -> {check.dst} ({check.address})"
    if not rtts:
        trace = f"`atoll trace EXPERIMENT {check.src} {check.dst} --live`"
        remedy = f"`atoll up EXPERIMENT` and {trace} show where packets are lost"
        return f"{where}: no answer; expected an RTT of {check.rtt_ns / 1e6:g} ms; {remedy}"
    rtt = base_rtt(rtts, check.jitter_ns)
    low = check.rtt_ns - check.jitter_ns - _EARLY_ALLOWANCE_NS
    high = check.rtt_ns + check.serialisation_ns + check.jitter_ns + _PATH_ALLOWANCE_NS + 0.02 * check.rtt_ns
    if low <= rtt <= high:
        return None
    allowed = f"{low / 1e6:.2f} to {high / 1e6:.2f}"
    return f"{where}: RTT {rtt / 1e6:.2f} ms, expected {check.rtt_ns / 1e6:g} ms (allowed {allowed})"


def terrestrial(plan: Plan, measured: Measured, network: Network) -> list[tuple[str, int, int]]:
    """(world host, configured, measured) terrestrial RTT in ns of every server and of other delayed hosts.

    Measured: the host's base RTT less that of the links and of the lab itself. The lab's RTT is the minimum over hosts
    without latency of their base RTT less that of the links; if all hosts have latencies, these are subtracted, too.
    """
    configured = {check.src: check.terrestrial_rtt_ns for check in plan.checks}
    beyond = {src: _beyond_links([each for each in plan.checks if each.src == src], measured) for src in configured}
    lab_ns = min(beyond[src] - configured[src] for src in _references(plan))
    servers = {host.name for host in network.with_role(HostRole.WORLD_SERVER)}
    return [(src, rtt, beyond[src] - lab_ns) for src, rtt in configured.items() if rtt or src in servers]


def scatter(plan: Plan, measured: Measured) -> float:
    """The typical difference between the lab's own RTT and its minimum, in ns; it is large on a busy machine.

    The minimum of many pings of a host without latency may be lower by this than that of a server's few pings.
    """
    scatters: list[float] = []
    for src in _references(plan):
        rtts = _rtts_beyond_links([check for check in plan.checks if check.src == src], measured)
        scatters.append(statistics.median(rtts) - min(rtts))
    return min(scatters)


def _references(plan: Plan) -> list[str]:
    """The world hosts from which the lab's own RTT is estimated: those without latency, or all."""
    configured = {check.src: check.terrestrial_rtt_ns for check in plan.checks}
    return [src for src, rtt_ns in configured.items() if not rtt_ns] or list(configured)


def _beyond_links(checks: Sequence[PathCheck], measured: Measured) -> int:
    """The base RTT of a world host's paths less that of the links on each."""
    return base_rtt(_rtts_beyond_links(checks, measured), max(check.jitter_ns for check in checks))


def _rtts_beyond_links(checks: Sequence[PathCheck], measured: Measured) -> list[int]:
    return [
        rtt - (check.rtt_ns - check.terrestrial_rtt_ns) for check in checks for rtt in measured[check.src, check.dst]
    ]
