# SPDX-License-Identifier: Apache-2.0
"""The two parts of the configuration test: every path idle, then every link filled for a moment.

Criteria for paths: ``atoll_testbed.preflight.path_rtt``; of links: ``atoll_testbed.calibration.calibration_checks``.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from atoll_controller.planner.path_checks import LONGEST_TEST_NS, pinged_again
from atoll_core.codec import to_json
from atoll_core.errors import RunError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import HostRole, Network
from atoll_core.plan.plan import InterfaceSettings, Plan
from atoll_hosts.machine import Machine
from atoll_testbed.calibration.calibration_checks import CalibrationFigure, CheckState
from atoll_testbed.calibration.link_calibration import brief_calibration
from atoll_testbed.preflight.path_rtt import (
    Deviation,
    Measured,
    base_rtt,
    judge_paths,
    measure_paths,
    scatter,
    terrestrial,
)
from atoll_testbed.testbed import Testbed

# A busy machine only ever adds to an RTT: pings are repeated until their minimum is right, at most five times; if the
# machine may be busy, until the time limit of the test.
_PATH_ATTEMPTS = 5  # from the second on, only of paths that are off
_LINK_ATTEMPTS = 3  # each fills the links again
_MOST_PATHS = 10  # in the error message
_BUSY = (
    "a terrestrial RTT slightly out of tolerance is often caused by a busy machine; repeat the run when the machine "
    "is idle, or use --on virtual"
)


class EventRecord(Protocol):
    """Takes the events of a test: a run directory, or the recorder of a run."""

    path: Path

    def event(self, kind: str, /, t_ns: int, **fields: Any) -> None:
        """Append an event. Raises RunError."""
        ...


async def check_paths(
    testbed: Testbed, plan: Plan, run_dir: EventRecord, *, full_matrix: bool = False, emulated: bool = False
) -> int:
    """Ping every path of the plan until it is as configured; returns the base RTT between the special hosts in ns.

    Later attempts ping only paths that are off, within 30 s in total unless with ``full_matrix``. ``emulated``: in real
    time, on a machine that may be busy; terrestrial RTTs that are off are then measured for the full 30 s. Figures, and
    deviations of each attempt, become events. Raises RunError with the paths that are off.
    """
    began_ns = time.monotonic_ns()
    wrong: list[Deviation] = []
    measured: Measured = {(check.src, check.dst): [] for check in plan.checks}
    asked: Plan | None = plan
    for attempt in itertools.count(1):
        for path, rtts in (await measure_paths(testbed, asked, run_dir.path)).items():
            measured[path] += rtts
        wrong = judge_paths(plan, measured, testbed.network)
        for off in wrong:
            run_dir.event("check_off", time.time_ns(), attempt=attempt, message=off.message)
        if not wrong:
            return _record(plan, measured, testbed.network, run_dir)
        paths = frozenset[tuple[str, str]]().union(*(off.paths for off in wrong))
        left_ns = None if full_matrix else LONGEST_TEST_NS - (time.monotonic_ns() - began_ns)
        busy = emulated and all(off.terrestrial for off in wrong)
        attempts = max(_PATH_ATTEMPTS - attempt, 1 if busy and not full_matrix else 0)
        asked = pinged_again(plan, paths, left_ns, attempts=attempts)
        if asked is None:
            break
    more = f"\n... and {len(wrong) - _MOST_PATHS} more paths" if len(wrong) > _MOST_PATHS else ""
    lines = "\n".join(off.message for off in wrong[:_MOST_PATHS])
    if emulated and any(off.terrestrial for off in wrong):
        more += f"\n{_BUSY}"
    raise RunError(f"the configuration test failed; the experiment's load was not started\n{lines}{more}")


async def check_links(
    testbed: Testbed, experiment: Experiment, base_ns: int, run_dir: EventRecord, drained: Callable[[], Awaitable[None]]
) -> None:
    """Fill every link for a moment, as tests of an idle path cannot detect a wrong rate or queue.

    ``base_ns``: the result of ``check_paths``. ``drained``: waits until no packet of the test is in flight. Raises
    RunError with the figures that are off.
    """
    off: list[CalibrationFigure] = []
    for attempt in range(1, _LINK_ATTEMPTS + 1):
        rows = await brief_calibration(testbed, experiment, base_ns)
        off = [row for row in rows if row.state is CheckState.OFF]
        for row in rows:
            run_dir.event("calibration", time.time_ns(), attempt=attempt, **to_json(row))
        await drained()
        if not off:
            return
    lines = "\n".join(str(row) for row in off)
    raise RunError(f"a link differs from its configuration; the experiment's load was not started\n{lines}")


def _record(plan: Plan, measured: Measured, network: Network, run_dir: EventRecord) -> int:
    """Record the paths' figures as events; returns the base RTT between the special hosts in ns."""
    now = time.time_ns()

    def event(kind: str, **figures: Any) -> None:
        run_dir.event(kind, now, **figures)

    for check in plan.checks:
        rtts = sorted(measured[check.src, check.dst])
        event(
            "check",
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
        event(
            "terrestrial",
            server=server,
            configured_ns=configured_ns,
            measured_ns=measured_ns,
            scatter_ns=scatter_ns,
        )
    special = network.with_role(HostRole.WORLD_SPECIAL)[0].name
    island = network.with_role(HostRole.ISLAND_SPECIAL)[0].name
    jitter_ns = next(check.jitter_ns for check in plan.checks if (check.src, check.dst) == (special, island))
    base_ns = base_rtt(measured[special, island], jitter_ns)
    event("base_rtt", rtt_ns=base_ns)
    return base_ns


async def check_addresses(testbed: Testbed, plan: Plan) -> None:
    """Find machines outside the laboratory that use an address of its hosts. Raises RunError with a line for each.

    Each real machine probes for its own addresses by ARP (RFC 5227): forgotten management controllers and restored
    images answer. Hosts of an emulated lab have cables of their own, to which nothing else can be connected.
    """
    asked = [
        (machine, interface)
        for settings in plan.hosts
        if (machine := testbed.machine(settings.host)).netns is None
        for interface in settings.interfaces
        if interface.address is not None
    ]
    lines = await asyncio.gather(*(_duplicates(machine, interface) for machine, interface in asked))
    if found := [line for each in lines for line in each]:
        raise RunError("\n".join(found))


async def _duplicates(machine: Machine, interface: InterfaceSettings) -> list[str]:
    address = str(interface.address).partition("/")[0]
    return [
        f"DUPLICATE_ADDRESS: {address} has two MAC addresses on the network of {machine.name} ({interface.name}): its "
        f"own {interface.mac}, and {mac}: give the other machine another address, or disconnect it"
        for mac in await machine.agent.other_owners(interface.name, address, interface.mac)
    ]
