# SPDX-License-Identifier: Apache-2.0
"""Planning: a network and an experiment become one value that says everything the testbed is asked for. Pure."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any, cast

from atoll_apps.steering import steer
from atoll_controller.planner.host_config import host_settings
from atoll_controller.planner.job_plan import capture_points, jobs
from atoll_controller.planner.path_checks import path_checks
from atoll_controller.planner.traffic_jobs import placement
from atoll_core.codec import to_json
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend, Plan
from atoll_core.plan.tag_layout import UNTAGGED, Layout
from atoll_core.plan.tc_settings import TIMER_SLACK
from atoll_core.units import Duration
from atoll_switches.capability_profile import refuse_unsupported


def make_plan(
    network: Network,
    experiment: Experiment,
    backend: Backend = Backend.ENGINE,
    layout: Layout = UNTAGGED,
    slack: Duration = TIMER_SLACK,
) -> Plan:
    """The plan of an experiment, its links and delay boxes played by ``backend``.

    ``layout``: that of a swap, if the experiment stands on the switches by one. ``slack``: how late the timers of the
    place may be. Raises PlanError when its steering cannot be realised: two legs that no entry can tell apart, an entry
    that another leaves nothing to do or the switch could not hold in hardware, a link that the backend cannot play.
    """
    steering = steer(network, experiment, layout)
    flows = steering.entries
    refuse_unsupported(network, flows)
    return Plan(
        lab=network.name,
        experiment=experiment.name,
        flows=flows,
        hosts=host_settings(network),
        jobs=jobs(network, experiment, backend, slack),
        captures=capture_points(network, experiment),
        checks=path_checks(network, experiment),
        seed=experiment.seed,
        placement=placement(network, experiment),
        layout=steering.layout,
    )


def plan_json(plan: Plan) -> str:
    """The plan as canonical JSON: equal plans, equal bytes."""
    return "".join(_canonical(to_json(plan)))


def plan_sha256(plan: Plan) -> str:
    """The SHA-256 of the canonical JSON, hexadecimal: names a plan in a run's manifest."""
    total = hashlib.sha256()
    for part in _canonical(to_json(plan)):
        total.update(part.encode())
    return total.hexdigest()


def _canonical(plan: dict[str, Any]) -> Iterator[str]:
    """As ``json.dumps`` with sorted keys, but item by item: no other thread runs while it makes a text."""
    for number, (name, part) in enumerate(sorted(plan.items())):
        yield f"{',' if number else '{'}{json.dumps(name)}:"
        if not isinstance(part, list):
            yield _dumps(part)
            continue
        for place, item in enumerate(cast("list[Any]", part)):
            yield f"{',' if place else '['}{_dumps(item)}"
        yield "]" if part else "[]"
    yield "}"


def _dumps(part: Any) -> str:
    return json.dumps(part, sort_keys=True, separators=(",", ":"))
