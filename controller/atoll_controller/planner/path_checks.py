# SPDX-License-Identifier: Apache-2.0
"""The paths that the configuration test pings: interval and expected round-trip time of each. Pure.

The cost grows with the number of hosts, not of pairs: every host is on a path, and so is every chain that pings take.
Probe packets prove the entries of other pairs when a plan is applied (``atoll_controller.tracing.probe_paths``).
"""

import itertools
import math
from collections.abc import Collection
from dataclasses import replace

from atoll_controller.planner.traffic_jobs import PING_MARGIN_NS, PING_PACKET_BYTES, PING_TIMEOUT_NS, ping_job
from atoll_core.experiment.experiment import Chain, Counted, Experiment, Protocol
from atoll_core.experiment.host_groups import Sides
from atoll_core.experiment.residence import longest_residence_ns
from atoll_core.lab.network import Host, HostRole, Network
from atoll_core.plan.plan import JobSpec, PathCheck, Phase, Plan

MAX_PING_SHARE = 0.05
"""The largest share of a link direction for pings, so that they do not cause a queue themselves."""
LONGEST_TEST_NS = 30 * 10**9

_Pair = tuple[Host, Host]  # of the world and of the island

_NS_PER_S = 10**9
_ETHERNET_HEADER = 14
_PINGS_PER_PATH = 10
_SHORTEST_INTERVAL_NS = 50_000_000  # from one ping of a path to its next
_SHORTEST_SPACING_NS = 1_000_000  # from one ping to the next of any path: software switches carry these
# Hosts that ping in step would queue behind each other at the link every time: each has an interval of its own.
_INTERVAL_STEP_NS = 3_700_000
_IDENTIFIER = 0xA780  # ICMP; a host's index among the world hosts is added


def path_checks(network: Network, experiment: Experiment, *, full_matrix: bool = False) -> tuple[PathCheck, ...]:
    """Paths from world hosts to island hosts, each with the round-trip time that its configuration adds up to.

    Every host is on one of them, and so are the two special hosts and every chain that pings take; ``full_matrix``: all
    pairs. Links that follow a trace are where it begins: the paths are tested before the load.
    """
    classes = {latency.name: latency for box in network.delay_boxes for latency in box.classes}
    class_by_host = {host: classes[name] for host, name in experiment.latency}
    link_rtts = {chain.name: _link_rtt(experiment, chain) for chain in experiment.chains}
    serialisation_ns = {c.name: math.ceil(sum(_serialisation_ns(experiment, c.hops))) for c in experiment.chains}
    checks: list[PathCheck] = []
    all_pairs = itertools.product(network.world_hosts, network.island_hosts)
    for world, island in all_pairs if full_matrix else _sample_pairs(network, experiment):
        latency = class_by_host.get(world.name)
        terrestrial_rtt_ns, terrestrial_jitter_ns = (latency.rtt.ns, 2 * latency.jitter.ns) if latency else (0, 0)
        chain = _carrier(experiment, world, island).name
        rtt_ns, jitter_ns = link_rtts[chain]
        ends = world.name, island.name, str(island.address)
        rtts_ns = rtt_ns + terrestrial_rtt_ns, terrestrial_rtt_ns
        checks.append(PathCheck(*ends, *rtts_ns, jitter_ns + terrestrial_jitter_ns, serialisation_ns[chain]))
    return tuple(checks)


def _sample_pairs(network: Network, experiment: Experiment) -> list[_Pair]:
    """Pairs in turn, so that every host is in one; the special hosts; of each chain that none of these takes a pair.

    In the order of the description.
    """
    worlds, islands = network.world_hosts, network.island_hosts
    if not (worlds and islands):
        return []
    indices = range(max(len(worlds), len(islands)))
    pairs = [(worlds[index % len(worlds)], islands[index % len(islands)]) for index in indices]
    pairs += itertools.product(network.with_role(HostRole.WORLD_SPECIAL), network.with_role(HostRole.ISLAND_SPECIAL))
    chains = {_carrier(experiment, *pair).name for pair in pairs}
    blocks = Sides(network, experiment).blocks() if len(chains) < len(experiment.chains) else ()
    for world_group, island_group in blocks:
        pair = world_group[0], island_group[0]
        if (chain := _carrier(experiment, *pair).name) not in chains:
            chains.add(chain)
            pairs.append(pair)
    rank = {host.name: number for number, host in enumerate((*worlds, *islands))}
    by_rank = {(rank[world.name], rank[island.name]): (world, island) for world, island in pairs}
    return [by_rank[ranks] for ranks in sorted(by_rank)]


def _carrier(experiment: Experiment, world: Host, island: Host) -> Chain:
    return experiment.carrier(world.address, island.address, Protocol.ICMP)


def _link_rtt(experiment: Experiment, chain: Chain) -> tuple[int, int]:
    """The round-trip time of a chain's links, and the most by which their jitter can move it, in nanoseconds."""
    links = [link for link in experiment.links if link.box in chain.hops]
    directions = [d for link in links for d in (link.to_island, link.to_world)]
    return sum(d.delay_at_start.ns for d in directions), sum(d.jitter.bound.ns for d in directions if d.jitter)


def check_jobs(
    network: Network, experiment: Experiment, checks: tuple[PathCheck, ...], *, full_matrix: bool = False
) -> tuple[JobSpec, ...]:
    """The pings of the checks, a job for each world host.

    Together they take at most 5 % of the slowest link's direction and, but for ``full_matrix``, end within 30 s, with
    fewer pings a path if need be. One ping a path may take longer on a link of a few kbit/s.
    """
    hosts = {host.name: host for host in network.hosts}
    targets = {src: [hosts[check.dst] for check in group] for src, group in itertools.groupby(checks, lambda c: c.src)}
    interval_ns = max(_SHORTEST_INTERVAL_NS, len(checks) * _spacing_ns(experiment))
    longest_interval_ns = interval_ns + _INTERVAL_STEP_NS * len(targets)
    rtt_ns = max((check.rtt_ns + check.jitter_ns + check.serialisation_ns for check in checks), default=0)
    count = _PINGS_PER_PATH if full_matrix else max(1, min(_PINGS_PER_PATH, LONGEST_TEST_NS // longest_interval_ns))
    return tuple(
        ping_job(
            f"check-{host}",
            hosts[host],
            Phase.CHECK,
            group,
            identifier=_IDENTIFIER + index,
            payload="atoll check",
            count=count,
            interval_ns=interval_ns + index * _INTERVAL_STEP_NS,
            timeout_ns=max(PING_TIMEOUT_NS, rtt_ns + PING_MARGIN_NS) + 2 * longest_residence_ns(network, experiment),
        )
        for index, (host, group) in enumerate(targets.items())
    )


def with_full_matrix(plan: Plan, network: Network, experiment: Experiment) -> Plan:
    """The plan with every pair of a world host and an island host tested."""
    checks = path_checks(network, experiment, full_matrix=True)
    other_jobs = [job for job in plan.jobs if job.phase is not Phase.CHECK]
    first = next((index for index, job in enumerate(plan.jobs) if job.phase is Phase.CHECK), len(other_jobs))
    pings = check_jobs(network, experiment, checks, full_matrix=True)
    return replace(plan, checks=checks, jobs=(*other_jobs[:first], *pings, *other_jobs[first:]))


def retest_plan(plan: Plan, paths: Collection[tuple[str, str]], budget_ns: int | None, *, attempts: int) -> Plan | None:
    """The plan with these paths only, pinged at no higher rate in all.

    ``budget_ns``: the time for this many attempts, None if it is not bounded. Returns None without attempts, and if a
    ping of each path does not fit in that time.
    """
    if not attempts:
        return None
    checks = tuple(check for check in plan.checks if (check.src, check.dst) in paths)
    configs = [job.config or {} for job in plan.jobs if job.phase is Phase.CHECK]
    shortest_ns = min(config["interval_ns"] for config in configs)
    interval_ns = max(_SHORTEST_INTERVAL_NS, len(checks) * math.ceil(shortest_ns / len(plan.checks)))
    round_ns = interval_ns + _INTERVAL_STEP_NS * len(configs)
    round_ns += max(check.rtt_ns for check in checks)
    if budget_ns is not None and budget_ns < round_ns:
        return None
    count = _PINGS_PER_PATH if budget_ns is None else max(1, min(_PINGS_PER_PATH, budget_ns // attempts // round_ns))
    jobs: list[JobSpec] = []
    for job in plan.jobs:
        config = job.config or {}
        if job.phase is not Phase.CHECK:
            jobs.append(job)
        elif targets := [target for target in config["targets"] if (job.host, target["name"]) in paths]:
            job_interval_ns = interval_ns + config["interval_ns"] - shortest_ns
            config = {**config, "targets": targets, "count": count, "interval_ns": job_interval_ns}
            jobs.append(replace(job, config=config))
    return replace(plan, checks=checks, jobs=tuple(jobs))


def pinging_ns(plan: Plan) -> int:
    """How long all pings of a plan's test take, once."""
    configs = [job.config or {} for job in plan.jobs if job.phase is Phase.CHECK]
    longest_job_ns = max((config["count"] * config["interval_ns"] for config in configs), default=0)
    return longest_job_ns + max((check.rtt_ns for check in plan.checks), default=0)


def _spacing_ns(experiment: Experiment) -> int:
    """The least time between two pings: they use no more than their share of any link direction."""
    boxes = [link.box for link in experiment.links]
    longest_serialisation_ns = max(_serialisation_ns(experiment, boxes), default=0)
    return math.ceil(max(longest_serialisation_ns / MAX_PING_SHARE, _SHORTEST_SPACING_NS))


def _serialisation_ns(experiment: Experiment, boxes: Collection[str]) -> list[float]:
    """The serialisation time of a ping on each direction of the links of these boxes."""
    return [
        8 * size * _NS_PER_S / direction.rate_at_start.bit_s
        for link in experiment.links
        if link.box in boxes
        for size in [PING_PACKET_BYTES + (_ETHERNET_HEADER if link.counts is Counted.ETHERNET else 0)]
        for direction in (link.to_island, link.to_world)
    ]
