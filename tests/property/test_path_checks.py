# SPDX-License-Identifier: Apache-2.0
"""What the configuration test pings: every host and every chain, at a cost that grows with hosts and not with pairs."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll_controller.planner.path_checks import (
    LONGEST_TEST_NS,
    check_jobs,
    path_checks,
    pinging_ns,
    retest_plan,
    with_full_matrix,
)
from atoll_controller.planner.planner import make_plan
from atoll_controller.planner.traffic_jobs import PING_PACKET_BYTES
from atoll_core.description.loader import load_experiment
from atoll_core.experiment.experiment import Experiment, Protocol
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Phase
from atoll_core.units import Rate
from tests.support.labs import experiments, laboratories

LABORATORY = Path(__file__).parents[2] / "examples/laboratory.yaml"
BASE_SCENARIOS = [  # Mbit/s to the island; to the world a quarter of it
    *(("GEO", rate) for rate in (8, 16, 32, 64)),
    *(("MEO", rate) for rate in (32, 64, 160, 320)),
]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_host_and_every_chain_of_pings_is_tested_once_or_more(data: st.DataObject) -> None:
    network = data.draw(laboratories())
    experiment = data.draw(experiments(network))
    checks = path_checks(network, experiment)
    worlds, islands = network.world_hosts, network.island_hosts
    assert {check.src for check in checks} == {host.name for host in worlds}
    assert {check.dst for check in checks} == {host.name for host in islands}
    assert ("ws", "is") in {(check.src, check.dst) for check in checks}

    def carriers(pairs: set[tuple[str, str]]) -> set[str]:
        ends = {host.name: host.address for host in network.hosts}
        return {experiment.carrier(ends[src], ends[dst], Protocol.ICMP).name for src, dst in pairs}

    every = set(itertools.product([host.name for host in worlds], [host.name for host in islands]))
    assert carriers({(check.src, check.dst) for check in checks}) == carriers(every)
    assert len(checks) <= max(len(worlds), len(islands)) + len(experiment.chains)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_full_matrix_tests_every_pair(data: st.DataObject) -> None:
    network = data.draw(laboratories())
    experiment = data.draw(experiments(network, branches=False))
    few = make_plan(network, experiment)
    every = with_full_matrix(few, network, experiment)
    assert {(check.src, check.dst) for check in every.checks} == {
        (world.name, island.name) for world in network.world_hosts for island in network.island_hosts
    }
    assert set(few.checks) <= set(every.checks)
    assert [job.name for job in every.jobs] == [job.name for job in few.jobs]


def at_rates(experiment: Experiment, to_island: Rate, to_world: Rate) -> Experiment:
    (link,) = experiment.links
    changed = replace(
        link, to_island=replace(link.to_island, rate=to_island), to_world=replace(link.to_world, rate=to_world)
    )
    return replace(experiment, links=(changed,))


def bit_s(network: Network, experiment: Experiment, *, full_matrix: bool = False) -> float:
    """What all pings of the test take of a link's direction."""
    checks = path_checks(network, experiment, full_matrix=full_matrix)
    configs = [job.config or {} for job in check_jobs(network, experiment, checks, full_matrix=full_matrix)]
    return sum(8 * PING_PACKET_BYTES * len(config["targets"]) * 1e9 / config["interval_ns"] for config in configs)


@settings(max_examples=50, deadline=None)
@given(st.integers(1_000, 10**10), st.integers(1_000, 10**10), st.booleans())
def test_pings_never_take_more_than_5_per_cent_of_the_slower_direction(
    to_island: int, to_world: int, full: bool
) -> None:
    network, experiment = load_experiment(LABORATORY)
    experiment = at_rates(experiment, Rate(to_island), Rate(to_world))
    assert bit_s(network, experiment, full_matrix=full) <= 0.05 * min(to_island, to_world)


@pytest.mark.parametrize(("orbit", "rate"), BASE_SCENARIOS)
def test_the_full_laboratory_is_tested_within_its_bounds_at_every_base_scenario(orbit: str, rate: int) -> None:
    """108 paths with ten pings each, where there were 2,568 paths and 30,223 pings a second."""
    network, experiment = load_experiment(LABORATORY)
    experiment = at_rates(experiment, Rate(rate * 10**6), Rate(rate * 10**6 // 4))
    plan = make_plan(network, experiment)
    assert len(plan.checks) == 108
    assert {(job.config or {})["count"] for job in plan.jobs if job.name.startswith("check-")} == {10}
    assert bit_s(network, experiment) <= 0.05 * rate * 10**6 / 4
    assert pinging_ns(plan) <= LONGEST_TEST_NS / 3, "and could be repeated twice"


def test_a_slow_link_is_tested_by_fewer_pings_within_the_same_time() -> None:
    network, experiment = load_experiment(LABORATORY)
    plan = make_plan(network, at_rates(experiment, Rate(10**6), Rate(256_000)))
    assert {(job.config or {})["count"] for job in plan.jobs if job.name.startswith("check-")} == {5}
    assert pinging_ns(plan) <= LONGEST_TEST_NS + max(check.rtt_ns for check in plan.checks)


@settings(max_examples=60, deadline=None)
@given(st.integers(10_000, 10**10), st.integers(1, 30 * 10**9), st.integers(1, 4), st.data())
def test_what_is_pinged_again_keeps_to_the_share_and_to_the_time_left(
    rate: int, left_ns: int, attempts: int, data: st.DataObject
) -> None:
    network, experiment = load_experiment(LABORATORY)
    plan = make_plan(network, at_rates(experiment, Rate(rate), Rate(rate)))
    every = [(check.src, check.dst) for check in plan.checks]
    paths = data.draw(st.sets(st.sampled_from(every), min_size=1))
    again = retest_plan(plan, paths, left_ns, attempts=attempts)
    if again is None:
        return
    configs = [(job.host, job.config or {}) for job in again.jobs if job.phase is Phase.CHECK]
    assert {(host, target["name"]) for host, config in configs for target in config["targets"]} == paths
    assert {(check.src, check.dst) for check in again.checks} == paths
    assert pinging_ns(again) <= left_ns
    taken = sum(8 * PING_PACKET_BYTES * len(config["targets"]) * 1e9 / config["interval_ns"] for _, config in configs)
    assert taken <= 0.05 * rate
