# SPDX-License-Identifier: Apache-2.0
"""Planning: a network and an experiment become one value that says everything the testbed is asked for. Pure."""

import hashlib
import json

from atoll.control.hosts import host_settings
from atoll.control.jobs import capture_points, jobs
from atoll.control.traffic_jobs import placement
from atoll.model.codec import to_json
from atoll.model.experiment import Chain, Experiment, Protocol
from atoll.model.layout import HOME, Layout
from atoll.model.network import LatencyClass, Network
from atoll.model.plan import Backend, PathCheck, Plan
from atoll.model.tc import TIMER_SLACK
from atoll.model.units import Duration
from atoll.switches.profiles import refuse_unsupported
from atoll_apps.steering import steer


def make_plan(
    network: Network,
    experiment: Experiment,
    backend: Backend = Backend.ENGINE,
    layout: Layout = HOME,
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
    return json.dumps(to_json(plan), sort_keys=True, separators=(",", ":"))


def plan_sha256(plan: Plan) -> str:
    """The SHA-256 of the canonical JSON, hexadecimal: names a plan in a run's manifest."""
    return hashlib.sha256(plan_json(plan).encode()).hexdigest()


def path_checks(network: Network, experiment: Experiment) -> tuple[PathCheck, ...]:
    """Every path from a world host to an island host with the round-trip time its configuration adds up to.

    Links that follow a trace are where it begins: the paths are tested before the load.
    """
    known = {each.name: each for box in network.delay_boxes for each in box.classes}
    delayed: dict[str, LatencyClass] = {host: known[name] for host, name in experiment.latency}
    by_chain = {chain.name: _link_rtt(experiment, chain) for chain in experiment.chains}
    checks: list[PathCheck] = []
    for world in network.world_hosts:
        latency = delayed.get(world.name)
        terrestrial, shake = (latency.rtt.ns, 2 * latency.jitter.ns) if latency else (0, 0)
        for island in network.island_hosts:
            # Paths are tested by pings.
            rtt, jitter = by_chain[experiment.carrier(world.address, island.address, Protocol.ICMP).name]
            checks.append(
                PathCheck(world.name, island.name, str(island.address), rtt + terrestrial, terrestrial, jitter + shake)
            )
    return tuple(checks)


def _link_rtt(experiment: Experiment, chain: Chain) -> tuple[int, int]:
    """The round-trip time of a chain's links, and the most by which their jitter can move it, in nanoseconds."""
    links = [link for link in experiment.links if link.box in chain.hops]
    ways = [way for link in links for way in (link.to_island, link.to_world)]
    return sum(way.delay_at_start.ns for way in ways), sum(way.jitter.reach.ns for way in ways if way.jitter)
