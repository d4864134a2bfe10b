# SPDX-License-Identifier: Apache-2.0
"""`atoll plan`: print the plan of an experiment as text or JSON."""

import json
from pathlib import Path

from atoll_cli.terminal.diagnostics import warn
from atoll_cli.terminal.output import require_ending, write_file
from atoll_cli.terminal.progress import estimate_text
from atoll_controller.planner.change_schedule import plan_schedule
from atoll_controller.planner.description_warnings import description_warnings
from atoll_controller.planner.plan_text import plan_text, schedule_text
from atoll_controller.planner.planner import make_plan, plan_sha256
from atoll_controller.planner.virtual_cost import memory, wall_time
from atoll_core.codec import to_json
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend
from atoll_core.plan.tc_settings import inexact, timer_slack
from atoll_core.platforms import MININET, VIRTUAL
from atoll_dashboards.diagram.lab_diagram import graph
from atoll_switches.capability_profile import unverified
from atoll_testbed.preflight.requirements import require_platform_controls


def print_plan(
    described: tuple[Network, Experiment],
    backend: Backend,
    platform: str = MININET,
    *,
    as_json: bool,
    strict: bool = False,
    drawing: Path | None = None,
) -> None:
    """`atoll plan` for a platform; with ``drawing``, lab and chains are drawn to that file as SVG.

    Raises PlanError, also for a congestion control that the platform does not have; DescriptionError for a scheduled
    change that cannot be carried out; UsageError for a drawing that has another ending or cannot be written.
    """
    require_ending("--graph", drawing, [".svg"])
    if platform == VIRTUAL:
        require_platform_controls(described[1], platform)
    slack = timer_slack(platform)
    warnings = warn(description_warnings(*described, backend, platform), strict=strict)
    plan = make_plan(*described, backend, slack=slack)
    schedule = plan_schedule(*described, plan, backend, slack)
    notes = [*inexact(described[0], described[1].links, slack)] if backend is Backend.TC else []
    notes += [estimate_text(wall_time(*described, backend), memory(*described))] if platform == VIRTUAL else []
    if drawing is not None:
        write_file("--graph", drawing, graph(*described))
    if as_json:
        changes = [
            {"change": each.number, "at_ns": each.version.at.ns, "swap": to_json(each.swap)} for each in schedule
        ]
        answer = {"sha256": plan_sha256(plan), "plan": to_json(plan), "changes": changes}
        answer |= {"warnings": warnings, "notes": notes}
        print(json.dumps(answer, indent=2))
    else:
        print(plan_text(plan))
        if schedule:
            print(f"\n{schedule_text(described[1], schedule)}")
        for line in (*unverified(described[0]), *notes):
            print(f"\n{line}")
