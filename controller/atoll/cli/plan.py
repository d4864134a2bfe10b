# SPDX-License-Identifier: Apache-2.0
"""`plan`: what would be done, as text or JSON."""

import json
from pathlib import Path

from atoll.cli.load import place_slack
from atoll.cli.output_files import require_ending, written
from atoll.cli.telling import estimated
from atoll.cli.warning import warn
from atoll.control.doubts import doubts
from atoll.control.graph import graph
from atoll.control.plan import make_plan, plan_sha256
from atoll.control.schedule import plan_schedule
from atoll.control.show import plan_text, schedule_text
from atoll.control.virtual_cost import memory, wall_time
from atoll.model.codec import to_json
from atoll.model.experiment import Experiment
from atoll.model.network import Network
from atoll.model.places import MININET, VIRTUAL
from atoll.model.plan import Backend
from atoll.model.tc import inexact
from atoll.switches.profiles import unverified
from atoll_emulation.congestion import offered_by_virtual_kernel, require_controls


def print_plan(
    described: tuple[Network, Experiment],
    backend: Backend,
    place: str = MININET,
    *,
    as_json: bool,
    strict: bool = False,
    drawing: Path | None = None,
) -> None:
    """`atoll plan` for a place; with ``drawing``, lab and chains go to that file as SVG.

    Raises PlanError, also for a congestion control that the place does not have; DescriptionError for a scheduled
    change that cannot be carried out; UsageError for a drawing that is not to be SVG or cannot be written.
    """
    require_ending("--graph", drawing, [".svg"])
    if place == VIRTUAL:
        require_controls(described[1], offered_by_virtual_kernel())
    slack = place_slack(place)
    warnings = warn(doubts(*described, backend, place), strict=strict)
    plan = make_plan(*described, backend, slack=slack)
    schedule = plan_schedule(*described)
    notes = [*inexact(described[1].links, slack)] if backend is Backend.TC else []
    notes += [estimated(wall_time(*described, backend), memory(*described))] if place == VIRTUAL else []
    if drawing is not None:
        written("--graph", drawing, graph(*described))
    if as_json:
        changes = [
            {"change": each.number, "at_ns": each.version.at.ns, "swap": to_json(each.swap)} for each in schedule
        ]
        told = {"sha256": plan_sha256(plan), "plan": to_json(plan), "changes": changes}
        told |= {"warnings": warnings, "notes": notes}
        print(json.dumps(told, indent=2))
    else:
        print(plan_text(plan))
        if schedule:
            print(f"\n{schedule_text(described[1], schedule)}")
        for line in (*unverified(described[0]), *notes):
            print(f"\n{line}")
