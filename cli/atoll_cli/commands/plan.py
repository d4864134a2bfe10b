# SPDX-License-Identifier: Apache-2.0
"""`atoll plan`: print the plan of an experiment as text or JSON."""

import json
from dataclasses import replace
from pathlib import Path

from atoll_cli.terminal.options import require_one_of
from atoll_cli.terminal.output import require_ending, warn, write_file
from atoll_cli.terminal.progress import estimate_text
from atoll_controller.planner.change_schedule import plan_schedule
from atoll_controller.planner.description_warnings import description_warnings
from atoll_controller.planner.placement import place_plan, placement_text
from atoll_controller.planner.plan_text import plan_text, schedule_text, swap_json
from atoll_controller.planner.planner import make_plan, plan_sha256
from atoll_controller.planner.transfer_size import propose_transfer
from atoll_controller.planner.virtual_cost import memory, wall_time
from atoll_core.codec import to_json
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend
from atoll_core.plan.tc_settings import burst_lines, timer_slack
from atoll_core.platforms import MININET, VIRTUAL
from atoll_dashboards.diagram.lab_diagram import graph
from atoll_switches.capability_profile import drivers, refuse_unsupported, unverified
from atoll_testbed.preflight.requirements import require_tcp_settings


def print_plan(
    described: tuple[Network, Experiment],
    backend: Backend,
    platform: str = MININET,
    *,
    as_json: bool,
    strict: bool = False,
    drawing: Path | None = None,
    driver: str | None = None,
) -> None:
    """`atoll plan` for a platform; with ``drawing``, lab and chains are drawn to that file as SVG.

    ``driver``: as if all switches were of this kind. Raises PlanError, also for a congestion control that the platform
    does not have, and after the placement if entries are not in hardware; DescriptionError for a scheduled change that
    cannot be carried out; UsageError for a drawing that has another ending or cannot be written, and for a driver that
    does not exist.
    """
    require_ending("--graph", drawing, [".svg"])
    if platform == VIRTUAL:
        require_tcp_settings(described[1], platform)
    if driver is not None:
        described = _with_driver(described[0], driver), described[1]
    slack = timer_slack(platform)
    warnings = warn(description_warnings(*described, backend, platform), strict=strict)
    plan = make_plan(*described, backend, slack=slack, hardware_only=False)
    schedule = plan_schedule(*described, plan, backend, slack, hardware_only=False)
    placement = place_plan(*described, plan, schedule)
    notes = [*burst_lines(described[0], described[1].links, slack)] if backend is Backend.TC else []
    notes += [estimate_text(wall_time(*described, backend), memory(*described))] if platform == VIRTUAL else []
    notes += [str(proposed)] if (proposed := propose_transfer(*described)) else []
    if drawing is not None:
        write_file("--graph", drawing, graph(*described, placement.notes()))
    if as_json:
        changes = [
            {"change": change.number, "at_ns": change.version.at.ns, "swap": swap_json(change.swap)}
            for change in schedule
        ]
        answer = {"sha256": plan_sha256(plan), "plan": to_json(plan), "changes": changes}
        answer |= {"placement": placement.to_json(), "warnings": warnings, "notes": notes}
        print(json.dumps(answer, indent=2))
    else:
        print(placement_text(placement) if driver else plan_text(plan, placement))
        if schedule and not driver:
            print(f"\n{schedule_text(described[1], schedule)}")
        for line in (*unverified(described[0]), *notes):
            print(f"\n{line}")
    refuse_unsupported(described[0], plan.flows)
    plan_schedule(*described, plan, backend, slack)


def _with_driver(network: Network, driver: str) -> Network:
    """The same lab with all switches of one kind, and without their twins."""
    require_one_of("--driver", driver, "drivers", drivers())
    return replace(network, switches=tuple(replace(switch, driver=driver, twin=None) for switch in network.switches))
