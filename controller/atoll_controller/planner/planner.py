# SPDX-License-Identifier: Apache-2.0
"""Compute the plan of an experiment: flow entries, host settings, jobs, captures and checks. Pure."""

import hashlib
import json
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

from atoll_apps.steering import steer
from atoll_controller.planner.host_config import host_settings
from atoll_controller.planner.job_plan import capture_points, jobs
from atoll_controller.planner.path_checks import path_checks
from atoll_controller.planner.traffic_jobs import channel_allocations
from atoll_core.codec import to_json
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend, Plan
from atoll_core.plan.tag_layout import UNTAGGED, Layout
from atoll_core.plan.tc_settings import TIMER_SLACK
from atoll_core.units import Duration
from atoll_switches.capability_profile import refuse_long_packets, refuse_unsupported


def make_plan(
    network: Network,
    experiment: Experiment,
    backend: Backend = Backend.ENGINE,
    layout: Layout = UNTAGGED,
    slack: Duration = TIMER_SLACK,
    *,
    hardware_only: bool = True,
) -> Plan:
    """The plan of an experiment with links and delay boxes emulated by ``backend``.

    ``layout``: the tags after a swap. ``slack``: the lateness of the platform's timers. ``hardware_only``: refuse
    entries that a switch does not process in hardware. Raises PlanError when frames of
    two segments cannot be distinguished, when an entry is never reached or not supported by the switch's hardware, or
    when the backend cannot emulate a link.
    """
    steering = steer(network, experiment, layout)
    flows = steering.entries
    if hardware_only:
        refuse_unsupported(network, flows)
    refuse_long_packets(network, experiment)
    return Plan(
        lab=network.name,
        experiment=experiment.name,
        flows=flows,
        hosts=host_settings(network, experiment),
        jobs=jobs(network, experiment, backend, slack),
        captures=capture_points(network, experiment),
        checks=path_checks(network, experiment),
        seed=experiment.seed,
        placement=channel_allocations(network, experiment),
        layout=steering.layout,
    )


def plan_sha256(plan: Plan) -> str:
    """The SHA-256 of the canonical JSON, hexadecimal: names a plan in a run's manifest. Equal plans, equal bytes."""
    total = hashlib.sha256()
    for part in _canonical(to_json(plan)):
        total.update(part.encode())
    return total.hexdigest()


def _canonical(plan: dict[str, Any]) -> Iterator[str]:
    """As ``json.dumps`` with sorted keys, but item by item: no other thread runs while it makes a text."""
    dumps = partial(json.dumps, sort_keys=True, separators=(",", ":"))
    for number, (name, part) in enumerate(sorted(plan.items())):
        yield f"{',' if number else '{'}{json.dumps(name)}:"
        if not isinstance(part, list):
            yield dumps(part)
            continue
        for index, item in enumerate(cast("list[Any]", part)):
            yield f"{',' if index else '['}{dumps(item)}"
        yield "]" if part else "[]"
    yield "}"
