# SPDX-License-Identifier: Apache-2.0
"""World servers' latencies and links as points: their configuration, from when to when, and what was measured of it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.metrics_spool import SPOOL, read_spool
from atoll_core.description.loader import load_experiment
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.metrics.line_protocol import MetricPoint
from atoll_core.units import Duration, Rate
from atoll_testbed.metrics.metric_points import latency_config_points
from atoll_testbed.metrics.metrics_recorder import MetricsRecorder

_MS_NS = 1_000_000


@pytest.fixture
def described(project: Path) -> tuple[Network, Experiment]:
    """The demo experiment on its laboratory."""
    return load_experiment(project / "examples/geo.yaml")


def test_what_each_world_server_is_configured_to_is_a_point(described: tuple[Network, Experiment]) -> None:
    """The round-trip time of its class; 0 of a server that none delays."""
    network, experiment = described
    undelayed = replace(experiment, latency=experiment.latency[1:])
    points = list(latency_config_points(network, undelayed, 7))
    assert [(point.tags, point.fields["rtt_ns"]) for point in points] == [
        ({"host": f"w{number}"}, ms * _MS_NS) for number, ms in enumerate((0, 20, 50, 90, 140, 200), start=1)
    ]
    assert {(point.measurement, point.t_ns, point.fields["jitter_ns"]) for point in points} == {
        ("latency_config", 7, 0)
    }


def test_a_change_of_a_link_is_recorded_when_it_is_over(described: tuple[Network, Experiment], tmp_path: Path) -> None:
    network, experiment = described
    (sat,) = experiment.links
    slower = replace(sat, to_island=replace(sat.to_island, rate=Rate(8_000_000)))
    first, second = Duration(5 * 10**9), Duration(6 * 10**9)
    start = experiment.versions[0]
    versions = (start, replace(start, at=first, links=(slower,)), replace(start, at=second, links=(slower,)))
    run_dir = RunDir.create(tmp_path, "geo", 0)
    metering = MetricsRecorder(run_dir, network, replace(experiment, schedule=versions))
    for number, t_ns in ((1, 5), (2, 7)):
        metering.event("change", t_ns, {"state": "begin", "change": number})
        metering.event("change", t_ns + 1, {"state": "end", "change": number})
    metering.close()
    points = [MetricPoint.parse(line) for line in read_spool(run_dir.path / SPOOL)]
    rates = [(each.t_ns, each.fields["rate_bit_s"]) for each in points if each.measurement == "link_config"]
    assert rates == [(6, 8_000_000), (6, 4_000_000)]


async def test_a_configuration_is_told_from_the_begin_of_a_run_to_its_end(
    described: tuple[Network, Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step in between is where its swap turned, and not where the next look would be; links are told with it."""

    @contextlib.asynccontextmanager
    async def no_agents(*_: Any) -> AsyncGenerator[None]:
        yield

    monkeypatch.setattr("atoll_testbed.metrics.metrics_recorder._agent_metrics", no_agents)
    network, experiment = described
    run_dir = RunDir.create(tmp_path, "geo", 0)
    metering = MetricsRecorder(run_dir, network, experiment)
    testbed: Any = SimpleNamespace(experiment=experiment, network=SimpleNamespace(switches=()))
    async with metering.sampling(testbed):
        await asyncio.sleep(0)
        metering.event("swap", 5, {"state": "begin", "change": 1, "stages": [], "moved": []})
        testbed.experiment = replace(experiment, latency=(("w1", "rtt-200"), *experiment.latency[1:]))
        metering.event("swap", 6, {"state": "turned", "change": 1})
    metering.close()
    points = [MetricPoint.parse(line) for line in read_spool(run_dir.path / SPOOL)]
    held = [point for point in points if point.measurement == "latency_config" and point.tags["host"] == "w1"]
    assert [point.fields["rtt_ns"] for point in held] == [5 * _MS_NS, 200 * _MS_NS, 200 * _MS_NS]
    assert held[1].t_ns == 6
    links = [point for point in points if point.measurement == "link_config"]
    assert {point.t_ns for point in links} >= {6}
    assert len(links) == 2 * len(held)


def test_of_the_test_before_a_run_servers_are_told_and_pairs_of_hosts_are_not(
    described: tuple[Network, Experiment], tmp_path: Path
) -> None:
    """A laboratory of 140 hosts has thousands of pairs, each of which would be a series of the database."""
    run_dir = RunDir.create(tmp_path, "geo", 0)
    metering = MetricsRecorder(run_dir, *described)
    metering.event("check", 4, {"src": "w1", "dst": "i1", "received": 5, "rtt_min_ns": 5, "terrestrial_ns": 5})
    metering.event("terrestrial", 5, {"server": "w1", "configured_ns": 5 * _MS_NS, "measured_ns": 5_100_000})
    metering.event("base_rtt", 5, {"rtt_ns": 5})
    metering.close()
    (point,) = (MetricPoint.parse(line) for line in read_spool(run_dir.path / SPOOL))
    assert (point.measurement, point.tags["host"], point.t_ns) == ("latency_check", "w1", 5)
    assert point.fields == {"configured_ns": 5 * _MS_NS, "measured_ns": 5_100_000}
