# SPDX-License-Identifier: Apache-2.0
"""`plan`: what would be done, as text or JSON."""

import json
from pathlib import Path

from atoll.cli.output_files import require_ending, written
from atoll.cli.warning import warn
from atoll.control.doubts import doubts
from atoll.control.graph import graph
from atoll.control.plan import make_plan, plan_sha256
from atoll.control.schedule import plan_schedule
from atoll.control.show import plan_text, schedule_text
from atoll.model.codec import to_json
from atoll.model.experiment import Experiment
from atoll.model.network import Network
from atoll.model.plan import Backend
from atoll.model.tc import TIMER_SLACK, inexact
from atoll.model.units import Duration
from atoll.switches.profiles import unverified


def print_plan(
    described: tuple[Network, Experiment],
    backend: Backend,
    slack: Duration = TIMER_SLACK,
    *,
    as_json: bool,
    strict: bool = False,
    drawing: Path | None = None,
) -> None:
    """`atoll plan` where timers may be late by ``slack``; with ``drawing``, lab and chains go to that file as SVG.

    Raises PlanError, DescriptionError for a scheduled change that cannot be carried out, or UsageError for a drawing
    that is not to be SVG or cannot be written.
    """
    require_ending("--graph", drawing, [".svg"])
    warnings = warn(doubts(*described, backend), strict=strict)
    plan = make_plan(*described, backend, slack=slack)
    schedule = plan_schedule(*described)
    notes = [*inexact(described[1].links, slack)] if backend is Backend.TC else []
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
