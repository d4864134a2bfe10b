# SPDX-License-Identifier: Apache-2.0
"""Boxes that have to be renewed when another experiment is applied: no packet may pass one meanwhile. Pure."""

from dataclasses import replace
from typing import Any

from atoll_controller.planner.box_config import box_uses
from atoll_controller.planner.host_config import host_settings
from atoll_controller.planner.running_changes import differing
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.plan import HostSettings


def renewed_boxes(network: Network, old: Experiment, new: Experiment) -> frozenset[str]:
    """The boxes that chains of both versions pass, but with another program or another set of packet rules.

    Routes and sysctls of a machine, and settings that the program takes while it runs, are not among the reasons: they
    change without a loss while packets pass.
    """
    if (old.boxes, old.all_chains) == (new.boxes, new.all_chains):
        return frozenset()
    passed, still = (frozenset(hop for chain in each.chains for hop in chain.hops) for each in (old, new))
    before, after = (_programs(network, each) for each in (old, new))
    both = passed & still & (before.keys() | after.keys())
    return frozenset(name for name in both if not _goes_on(network, name, before.get(name), after.get(name)))


def _goes_on(network: Network, box: str, was: "_Program | None", now: "_Program | None") -> bool:
    if was is None or now is None or was[1] != now[1]:
        return was == now
    try:
        differing(was[0], now[0], network.box(box).kind.settable)
    except PlanError:
        return False
    return True


_Program = tuple[dict[str, Any], HostSettings]


def _programs(network: Network, experiment: Experiment) -> dict[str, _Program]:
    """What the program of each box reads, and the settings of the box's machine that bring packets to it."""
    uses = box_uses(network, experiment)
    machines = {each.host: each for each in host_settings(network, experiment)} if uses else {}
    return {
        box.name: (box.kind.configuration(uses[box.name]), without_routes(machines[box.name]))
        for box in network.boxes
        if box.name in uses
    }


def without_routes(settings: HostSettings) -> HostSettings:
    """The settings of a machine but for routes and sysctls."""
    interfaces = tuple(replace(each, routes=()) for each in settings.interfaces)
    return replace(settings, interfaces=interfaces, sysctls=())
