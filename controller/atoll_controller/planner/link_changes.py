# SPDX-License-Identifier: Apache-2.0
"""Changes of links while they run: the requests to the jobs of boxes (docs/contracts.md, "link" and "tc"). Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from atoll_controller.planner.link_config import direction_config
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import DIRECTIONS, Experiment, SteeringVersion
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend
from atoll_core.plan.tc_settings import USE_ENGINE, Qdisc, TcSettings, link_settings
from atoll_core.units import Duration

_CHANGED = ("rate_bit_s", "delay_ns", "queue_bytes")
_NO_LOSS = {"kind": "bernoulli", "probability": 0.0}


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """A request to the job of a link, without its id."""

    box: str
    request: dict[str, Any] = field(hash=False)


def link_requests(
    network: Network,
    experiment: Experiment,
    before: SteeringVersion,
    after: SteeringVersion,
    backend: Backend,
    slack: Duration,
) -> Iterator[LinkRequest]:
    """The requests that change links to another version. Raises PlanError if the backend cannot do that."""
    for was, link, over_time in zip(before.links, after.links, experiment.links_over_time, strict=False):
        if was == link:
            continue
        if backend is Backend.TC:
            box = network.box(link.box)
            settings = (link_settings(box, each, slack, over_time) for each in (was, link))
            yield LinkRequest(link.box, _tc_request(*settings))
        else:
            for way in DIRECTIONS:
                if changed := _changed_keys(direction_config(getattr(was, way)), direction_config(getattr(link, way))):
                    yield LinkRequest(link.box, {"op": "set", "direction": way, **changed})


def _changed_keys(was: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    changed = {key: now[key] for key in _CHANGED if now[key] != was[key]}
    if now.get("loss") != was.get("loss"):
        changed["loss"] = now.get("loss", _NO_LOSS)
    return changed


def _tc_request(was: TcSettings, now: TcSettings) -> dict[str, Any]:
    pairs = list(zip(was.commands, now.commands, strict=False))
    if any(_place(one) != _place(other) for one, other in pairs) or len(was.commands) != len(now.commands):
        raise PlanError(
            f"links.{now.box}: the tc backend cannot add or remove a loss before the queue while a link runs; "
            f"give it a loss of 0 % before, or use {USE_ENGINE}"
        )
    changed = [now for was, now in pairs if was != now and isinstance(now, Qdisc)]
    return {
        "op": "set",
        "tc": [replace(qdisc, command="change").line for qdisc in changed],
        "expect": [qdisc.expected for qdisc in changed],
        **now.counters,
    }


def _place(command: object) -> object:
    return (command.dev, command.handle, command.parent, command.kind) if isinstance(command, Qdisc) else command
