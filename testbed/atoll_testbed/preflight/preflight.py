# SPDX-License-Identifier: Apache-2.0
"""The two parts of the configuration test: every path idle, then every link filled for a moment.

Criteria of links: ``atoll_testbed.calibration.calibration_checks``.
"""

import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from atoll_controller.planner.path_checks import LONGEST_TEST_NS, retest_plan
from atoll_core.codec import to_json
from atoll_core.errors import RunError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import HostRole, Network
from atoll_core.plan.plan import InterfaceSettings, JobSpec, PathCheck, Phase, Plan, terrestrial_allowance_ns
from atoll_hosts.machine import Machine
from atoll_testbed.calibration.calibration_checks import CalibrationFigure, CheckState
from atoll_testbed.calibration.link_calibration import brief_calibration
from atoll_testbed.testbed import Testbed

# The lab itself may add this to an RTT: four software switches and as many process switches per direction.
_PATH_ALLOWANCE_NS = 6_000_000
# A delay may not be shorter than configured, but for the resolution of time stamps.
_EARLY_ALLOWANCE_NS = 100_000

# A busy machine only ever adds to an RTT: pings are repeated until their minimum is right, at most five times; if the
# machine may be busy, until the time limit of the test.
_PATH_ATTEMPTS = 5  # from the second on, only of paths that are off
_LINK_ATTEMPTS = 3  # each fills the links again
_MAX_PATHS = 10  # in the error message
_BUSY_HINT = (
    "a terrestrial RTT slightly out of tolerance is often caused by a busy machine; repeat the run when the machine "
    "is idle, or use --on virtual"
)


RttsByPath = dict[tuple[str, str], list[int]]
"""RTTs in ns by (source, destination); a path without any reply has an empty list."""


class _EventRecord(Protocol):
    """Takes the events of a test: a run directory, or the recorder of a run."""

    path: Path

    def append_event(self, kind: str, /, t_ns: int, **fields: Any) -> None:
        """Append an event. Raises RunError."""
        ...


async def check_paths(
    testbed: Testbed, plan: Plan, run_dir: _EventRecord, *, full_matrix: bool = False, emulated: bool = False
) -> int:
    """Ping every path of the plan until it is as configured; returns the base RTT between the special hosts in ns.

    Later attempts ping only paths that are off, within 30 s in total unless with ``full_matrix``. ``emulated``: in real
    time, on a machine that may be busy; terrestrial RTTs that are off are then measured for the full 30 s. Figures, and
    deviations of each attempt, become events. Raises RunError with the paths that are off.
    """
    start_ns = time.monotonic_ns()
    measured: RttsByPath = {(check.src, check.dst): [] for check in plan.checks}
    ping_plan, attempt = plan, 0
    while True:
        attempt += 1
        for path, rtts in (await measure_paths(testbed, ping_plan, run_dir.path)).items():
            measured[path] += rtts
        deviations = judge_paths(plan, measured, testbed.network)
        for deviation in deviations:
            run_dir.append_event("check_off", time.time_ns(), attempt=attempt, message=deviation.message)
        if not deviations:
            return _record(plan, measured, testbed.network, run_dir)
        paths = frozenset[tuple[str, str]]().union(*(deviation.paths for deviation in deviations))
        budget_ns = None if full_matrix else LONGEST_TEST_NS - (time.monotonic_ns() - start_ns)
        may_be_busy = emulated and all(deviation.terrestrial for deviation in deviations)
        attempts = max(_PATH_ATTEMPTS - attempt, 1 if may_be_busy and not full_matrix else 0)
        retest = retest_plan(plan, paths, budget_ns, attempts=attempts)
        if retest is None:
            more = f"\n... and {len(deviations) - _MAX_PATHS} more paths" if len(deviations) > _MAX_PATHS else ""
            lines = "\n".join(deviation.message for deviation in deviations[:_MAX_PATHS])
            if emulated and any(deviation.terrestrial for deviation in deviations):
                more += f"\n{_BUSY_HINT}"
            raise RunError(f"the configuration test failed; the experiment's load was not started\n{lines}{more}")
        ping_plan = retest
    raise AssertionError


async def check_links(
    testbed: Testbed, experiment: Experiment, base_ns: int, run_dir: _EventRecord, drain: Callable[[], Awaitable[None]]
) -> None:
    """Fill every link for a moment, as tests of an idle path cannot detect a wrong rate or queue.

    ``base_ns``: the result of ``check_paths``. ``drain``: waits until no packet of the test is in flight. Raises
    RunError with the figures that are off.
    """
    deviating: Sequence[CalibrationFigure] = ()
    for attempt in range(1, _LINK_ATTEMPTS + 1):
        rows = await brief_calibration(testbed, experiment, base_ns)
        deviating = [row for row in rows if row.state is CheckState.OFF]
        for row in rows:
            run_dir.append_event("calibration", time.time_ns(), attempt=attempt, **to_json(row))
        await drain()
        if not deviating:
            return
    lines = "\n".join(str(row) for row in deviating)
    raise RunError(f"a link differs from its configuration; the experiment's load was not started\n{lines}")


def _record(plan: Plan, measured: RttsByPath, network: Network, run_dir: _EventRecord) -> int:
    """Record the paths' figures as events; returns the base RTT between the special hosts in ns."""
    now = time.time_ns()
    for check in plan.checks:
        rtts = sorted(measured[check.src, check.dst])
        run_dir.append_event(
            "check",
            now,
            src=check.src,
            dst=check.dst,
            received=len(rtts),
            rtt_min_ns=rtts[0],
            rtt_median_ns=rtts[len(rtts) // 2],
            expected_ns=check.rtt_ns,
            terrestrial_ns=check.terrestrial_rtt_ns,
        )
    scatter_ns = round(scatter(plan, measured))
    for server, configured_ns, measured_ns in terrestrial(plan, measured, network):
        figures = {"configured_ns": configured_ns, "measured_ns": measured_ns, "scatter_ns": scatter_ns}
        run_dir.append_event("terrestrial", now, server=server, **figures)
    world = network.with_role(HostRole.WORLD_SPECIAL)[0].name
    island = network.with_role(HostRole.ISLAND_SPECIAL)[0].name
    jitter_ns = next(check.jitter_ns for check in plan.checks if (check.src, check.dst) == (world, island))
    base_ns = base_rtt(measured[world, island], jitter_ns)
    run_dir.append_event("base_rtt", now, rtt_ns=base_ns)
    return base_ns


async def check_addresses(testbed: Testbed, plan: Plan) -> None:
    """Find machines outside the laboratory that use an address of its hosts. Raises RunError with a line for each.

    Each real machine probes for its own addresses by ARP (RFC 5227): forgotten management controllers and restored
    images answer. Hosts of an emulated lab have cables of their own, to which nothing else can be connected.
    """
    duplicates = await asyncio.gather(
        *(
            _duplicates(machine, interface)
            for settings in plan.hosts
            if (machine := testbed.machine(settings.host)).netns is None
            for interface in settings.interfaces
            if interface.address is not None
        )
    )
    if lines := list(itertools.chain.from_iterable(duplicates)):
        raise RunError("\n".join(lines))


async def _duplicates(machine: Machine, interface: InterfaceSettings) -> list[str]:
    address = str(interface.address).partition("/")[0]
    return [
        f"DUPLICATE_ADDRESS: {address} has two MAC addresses on the network of {machine.name} ({interface.name}): its "
        f"own {interface.mac}, and {mac}: give the other machine another address, or disconnect it"
        for mac in await machine.agent.other_owners(interface.name, address, interface.mac)
    ]


async def measure_paths(testbed: Testbed, plan: Plan, run: Path) -> RttsByPath:
    """Ping every path of the plan; returns RTTs by path.

    The hosts start one after the other, so that pings of the first round have the same interval as later ones.
    """
    measured: RttsByPath = {(check.src, check.dst): [] for check in plan.checks}

    async def ping_from(index: int, spec: JobSpec) -> None:
        def on_line(line: dict[str, Any]) -> None:
            if line.get("type") == "reply":
                measured[spec.host, line["target"]].append(line["rtt_ns"])

        interval_ns = (spec.config or {})["interval_ns"]
        await asyncio.sleep(index * interval_ns / len(plan.checks) / 1e9)
        job = await testbed.start_job(spec, run, on_line=on_line)
        await job.wait()

    checks = [spec for spec in plan.jobs if spec.phase is Phase.CHECK]
    await asyncio.gather(*itertools.starmap(ping_from, enumerate(checks)))
    return measured


def base_rtt(rtts: list[int], jitter_ns: int) -> int:
    """The RTT of an idle path: the minimum of some pings, as a busy machine only ever adds delay.

    With jitter, the median.
    """
    return int(statistics.median(rtts)) if jitter_ns else min(rtts)


@dataclass(frozen=True, slots=True)
class _Deviation:
    """A deviation from the configuration: a message, and the paths whose pings show it."""

    message: str
    paths: frozenset[tuple[str, str]]
    terrestrial: bool = False
    """Whether it is a server's latency, whose measurement is inexact on a busy machine."""


def judge_paths(plan: Plan, measured: RttsByPath, network: Network) -> list[_Deviation]:
    """Deviations of paths; if there are none, deviations of servers' latencies."""
    deviations = [
        _Deviation(message, frozenset({(check.src, check.dst)}))
        for check in plan.checks
        if (message := _judge_path(check, measured[check.src, check.dst]))
    ]
    if deviations:
        return deviations
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
            deviations.append(
                _Deviation(message, frozenset(path for path in measured if path[0] in sources), terrestrial=True)
            )
    return deviations


def _judge_path(check: PathCheck, rtts: list[int]) -> str | None:
    path_text = f"{check.src} -> {check.dst} ({check.address})"
    if not rtts:
        trace = f"`atoll trace EXPERIMENT {check.src} {check.dst} --live`"
        remedy = f"`atoll up EXPERIMENT` and {trace} show where packets are lost"
        return f"{path_text}: no answer; expected an RTT of {check.rtt_ns / 1e6:g} ms; {remedy}"
    rtt = base_rtt(rtts, check.jitter_ns)
    low = check.rtt_ns - check.jitter_ns - _EARLY_ALLOWANCE_NS
    high = check.rtt_ns + check.serialisation_ns + check.jitter_ns + _PATH_ALLOWANCE_NS + 0.02 * check.rtt_ns
    if low <= rtt <= high:
        return None
    allowed = f"{low / 1e6:.2f} to {high / 1e6:.2f}"
    return f"{path_text}: RTT {rtt / 1e6:.2f} ms, expected {check.rtt_ns / 1e6:g} ms (allowed {allowed})"


def terrestrial(plan: Plan, measured: RttsByPath, network: Network) -> list[tuple[str, int, int]]:
    """(world host, configured, measured) terrestrial RTT in ns of every server and of other delayed hosts.

    Measured: the host's base RTT less that of the links and of the lab itself. The lab's RTT is the minimum over hosts
    without latency of their base RTT less that of the links; if all hosts have latencies, these are subtracted, too.
    """
    configured = {check.src: check.terrestrial_rtt_ns for check in plan.checks}
    own_ns = {src: _beyond_links([check for check in plan.checks if check.src == src], measured) for src in configured}
    lab_ns = min(own_ns[src] - configured[src] for src in _references(plan))
    servers = {host.name for host in network.with_role(HostRole.WORLD_SERVER)}
    return [(src, rtt, own_ns[src] - lab_ns) for src, rtt in configured.items() if rtt or src in servers]


def scatter(plan: Plan, measured: RttsByPath) -> float:
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


def _beyond_links(checks: Sequence[PathCheck], measured: RttsByPath) -> int:
    """The base RTT of a world host's paths less that of the links on each."""
    return base_rtt(_rtts_beyond_links(checks, measured), max(check.jitter_ns for check in checks))


def _rtts_beyond_links(checks: Sequence[PathCheck], measured: RttsByPath) -> list[int]:
    return [
        rtt - (check.rtt_ns - check.terrestrial_rtt_ns) for check in checks for rtt in measured[check.src, check.dst]
    ]
