# SPDX-License-Identifier: Apache-2.0
"""The control variate is the mean of the sizes that a run's channels draw; the largest flow is what a link carries."""

import csv
import json
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from atoll_core.description.loader import load_experiment
from atoll_core.experiment.flow_sizes import FlowSizes, curve, fixed, from_counts, published
from atoll_core.experiment.traffic import Load, Traffic
from atoll_core.units import Rate
from atoll_hosts.binary import find_binary
from atoll_studies.statistics.flow_sample import ControlVariate, first_sizes, flow_bound, largest_flow_bytes
from tests.support.sandbox import QUICK

COUNTED = from_counts("counted", {100: 3, 1500: 5, 40_000: 1, 2_000_000: 1})


@pytest.mark.parametrize(
    "sizes", [published(), COUNTED, fixed("one", 10_000), curve("c", [(0, 10), (0.5, 10), (1, 9000)])]
)
@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_first_sizes_are_those_that_hosts_draw(sizes: FlowSizes, seed: int) -> None:
    drawn = first_sizes(sizes, seed, 3, 40)
    for channel in range(3):
        argv = [
            find_binary(),
            "flows",
            "--seed",
            str(seed),
            "--channel",
            str(channel),
            "--count",
            "40",
            "--servers",
            "6",
        ]
        text = sizes.config if isinstance(sizes.config, str) else json.dumps(sizes.config)
        done = subprocess.run([*argv, "--sizes", text], capture_output=True, text=True, check=True)
        asked = [int(row["size_bytes"]) for row in csv.DictReader(done.stdout.splitlines())]
        assert drawn[channel] == pytest.approx(asked, abs=1.0)  # hosts round down


@pytest.mark.parametrize("largest", [1000, 1_000_000, 10**9])
def test_the_expectation_is_that_of_sizes_cut_at_the_largest(largest: int) -> None:
    for sizes in (published(), COUNTED):
        probabilities = (np.arange(200_000) + 0.5) / 200_000
        mean = float(np.mean([min(sizes.quantile(each), largest) for each in probabilities]))
        assert sizes.capped_mean(largest) == pytest.approx(mean, rel=2e-3)


def test_the_control_of_runs_has_its_expectation() -> None:
    traffic = Traffic(20, "published", 5001)
    control = ControlVariate(10, 100_000)
    values = [control.of_run(traffic, seed) for seed in range(400)]
    error = np.std(values) / 20
    assert abs(np.mean(values) - control.expectation(traffic)) < 4 * error


def test_the_largest_flow_is_what_the_link_carries_in_the_duration() -> None:
    network, experiment = load_experiment(QUICK, ("duration=10 s",))
    (link,) = experiment.links
    largest = largest_flow_bytes(network, experiment)
    assert largest is not None
    bound = link.to_island.rate.bit_s * 10 / 8
    assert 0.5 * bound < largest < bound
    slow = replace(experiment, traffic=replace(experiment.traffic, write_rate=Rate(8000)))
    assert 0 < (largest_flow_bytes(network, slow) or 0) < 10_000
    assert largest_flow_bytes(network, replace(experiment, links=())) is None


def test_the_largest_upload_is_what_the_link_carries_to_the_world() -> None:
    setting = "links.sat.to_world.rate=1 Mbit/s"
    down, up = (
        flow_bound(*load_experiment(QUICK, (setting, f"traffic={{channels: 9, direction: {direction}}}")))
        for direction in ("download", "upload")
    )
    assert down is not None
    assert up is not None
    assert up.largest_bytes < 0.2 * down.largest_bytes
    assert up.share_of_bytes > down.share_of_bytes


def test_flows_that_only_begin_with_a_change_have_a_bound() -> None:
    crowd = "changes=[{at: 2 s, traffic: {channels: 40}}]"
    for settings in (("traffic.channels=0", crowd), (crowd,)):
        network, experiment = load_experiment(QUICK, ("duration=10 s", *settings))
        assert experiment.max_channels == 40
        assert experiment.first_load.channels == (40 if len(settings) == 2 else experiment.traffic.channels)
        assert flow_bound(network, experiment) is not None
    network, experiment = load_experiment(QUICK, ("traffic.channels=0", "transfer={size: 100 kB, start: 1 s}"))
    assert flow_bound(network, experiment) is None


def test_the_control_of_groups_has_the_expectation_of_all_their_channels() -> None:
    groups = (Load(2, "1 kB", 5001, fixed("1 kB", 1000)), Load(6, "2 kB", 5001, fixed("2 kB", 2000), first_channel=9))
    traffic = replace(Traffic(20, "published", 5001), groups=groups)
    control = ControlVariate(3, 100_000)
    assert control.expectation(traffic) == control.of_run(traffic, 1) == 1750
    assert first_sizes(published(), 1, 2, 5, 7).tolist() == first_sizes(published(), 1, 9, 5)[7:].tolist()
