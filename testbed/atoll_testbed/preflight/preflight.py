# SPDX-License-Identifier: Apache-2.0
"""The configuration test's two parts, one after the other: every path idle, then every link filled for a moment.

Criteria of paths: ``atoll_testbed.preflight.path_rtt``; of links: ``atoll_testbed.calibration.calibration_checks``.
"""

import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Any

from atoll_analysis.run_directory import RunDir
from atoll_controller.planner.path_checks import LONGEST_TEST_NS, pinged_again
from atoll_core.codec import to_json
from atoll_core.errors import RunError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import HostRole, Network
from atoll_core.plan.plan import Plan
from atoll_testbed.calibration.calibration_checks import CalibrationFigure, State
from atoll_testbed.calibration.link_calibration import brief
from atoll_testbed.preflight.path_rtt import Measured, Off, base_rtt, judge_paths, measure_paths, terrestrial
from atoll_testbed.testbed import Testbed

# A busy machine only ever adds to an RTT: pings are collected until the least of them is right, or was not five times;
# where a busy machine may be the cause, for as long as the test may take.
_PATH_ATTEMPTS = 5  # or as many as there is time for: from the second on, of what is off
_LINK_ATTEMPTS = 3  # each of them fills the links anew
_PATHS_TOLD = 10
_BUSY = (
    "a busy machine is a likely cause of a terrestrial RTT that is slightly off; "
    "run it again when the machine is idle, or with --on virtual"
)


async def check_paths(
    testbed: Testbed, plan: Plan, run_dir: RunDir, *, full_matrix: bool = False, emulated: bool = False
) -> int:
    """Ping every path of the plan until it is as configured; returns the base RTT between the special hosts in ns.

    Later attempts ping what is off, and share what is left of 30 s, but for those of a ``full_matrix``. ``emulated``:
    in real time, on a machine that may be busy; terrestrial RTTs that are off are measured for all of the 30 s then.
    What was measured, and what was off at each attempt, become events. Raises RunError naming the paths that are off.
    """
    began_ns = time.monotonic_ns()
    wrong: list[Off] = []
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
    more = f"\n... and {len(wrong) - _PATHS_TOLD} more paths" if len(wrong) > _PATHS_TOLD else ""
    lines = "\n".join(off.message for off in wrong[:_PATHS_TOLD])
    if emulated and any(off.terrestrial for off in wrong):
        more += f"\n{_BUSY}"
    raise RunError(f"the configuration test failed; the experiment's load was not started\n{lines}{more}")


async def check_links(
    testbed: Testbed, experiment: Experiment, base_ns: int, run_dir: RunDir, drained: Callable[[], Awaitable[None]]
) -> None:
    """Fill every link for a moment: a wrong rate or queue passes any test of an idle path.

    ``base_ns``: what ``check_paths`` returned. ``drained``: returns when nothing of the test is under way any more.
    Raises RunError naming what does not do as it is configured to.
    """
    off: list[CalibrationFigure] = []
    for attempt in range(1, _LINK_ATTEMPTS + 1):
        rows = await brief(testbed, experiment, base_ns)
        off = [row for row in rows if row.state is State.OFF]
        for row in rows:
            run_dir.event("calibration", time.time_ns(), attempt=attempt, **to_json(row))
        await drained()
        if not off:
            return
    lines = "\n".join(str(row) for row in off)
    raise RunError(f"a link does not do what it is configured to; the experiment's load was not started\n{lines}")


def _record(plan: Plan, measured: Measured, network: Network, run_dir: RunDir) -> int:
    """Write the paths' figures down; returns the base RTT between the special hosts in ns."""
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
    for server, configured_ns, measured_ns in terrestrial(plan, measured, network):
        event("terrestrial", server=server, configured_ns=configured_ns, measured_ns=measured_ns)
    special = network.with_role(HostRole.WORLD_SPECIAL)[0].name
    island = network.with_role(HostRole.ISLAND_SPECIAL)[0].name
    jitter_ns = next(check.jitter_ns for check in plan.checks if (check.src, check.dst) == (special, island))
    base_ns = base_rtt(measured[special, island], jitter_ns)
    event("base_rtt", rtt_ns=base_ns)
    return base_ns
