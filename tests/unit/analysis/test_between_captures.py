# SPDX-License-Identifier: Apache-2.0
"""Where a packet can be lost that one capture has and the other has not."""

from dataclasses import replace
from pathlib import Path

import pytest

from atoll_analysis import analyse
from atoll_analysis.tables.run_data import read_run_data
from atoll_core.description.loader import load_experiment
from atoll_core.experiment.experiment import Chain, Experiment, Protocol, TrafficSelector
from atoll_core.lab.network import Network
from atoll_hosts.binary import find_binary
from tests.support.synthetic_run import begin

GEO = "examples/geo.yaml"
COUNTED = {"on_cables_packets": None, "backlog_limit_packets": 1000}


@pytest.fixture(scope="module")
def described(project: Path) -> tuple[Network, Experiment]:
    return load_experiment(project / GEO)


def between(folder: Path, experiment: Experiment, network: Network) -> frozenset[str]:
    return read_run_data(begin(folder, experiment, network)).topology.places_between_captures


def test_captures_the_link_and_the_port_behind_it(tmp_path: Path, described: tuple[Network, Experiment]) -> None:
    """Not the world servers, delay boxes and clients, and no box that the chain does not pass."""
    network, experiment = described
    assert between(tmp_path, experiment, network) == {"cap-w", "cap-i", "sat", "sw-c/16"}


def test_boxes_before_and_behind_the_captures_are_not_between(
    tmp_path: Path, described: tuple[Network, Experiment]
) -> None:
    network, experiment = described
    chain = replace(experiment.chain, hops=("pep-w", "tap-w", "coder-w", "sat", "coder-i", "tap-i", "pep-i"))
    boxes = {"coder-w", "sat", "coder-i"}
    ports = {"sw-c/14", "sw-c/16", "sw-c/18"}
    found = between(tmp_path, replace(experiment, chain=chain), network)
    assert found == {"cap-w", "cap-i", *boxes, *ports}


def test_boxes_of_branches_are_between(tmp_path: Path, described: tuple[Network, Experiment]) -> None:
    network, experiment = described
    branch = Chain("coded", ("tap-w", "coder-w", "sat", "coder-i", "tap-i"), TrafficSelector(protocol=Protocol.TCP))
    found = between(tmp_path, replace(experiment, branches=(branch,)), network)
    assert {"coder-w", "coder-i"} <= found


def test_without_two_taps_there_is_nothing_between(tmp_path: Path, described: tuple[Network, Experiment]) -> None:
    network, experiment = described
    chain = replace(experiment.chain, hops=("sat", "tap-i"))
    run = begin(tmp_path, replace(experiment, chain=chain), network, ("island", "link-sat"))
    assert read_run_data(run).topology.places_between_captures == frozenset()


def test_a_summary_says_which_machines_stand_beside(tmp_path: Path, described: tuple[Network, Experiment]) -> None:
    network, experiment = described
    run = begin(tmp_path, experiment, network)
    machines = {name: {"backlog_dropped_packets": 3, **COUNTED} for name in ("sat", "w1", "i2")}
    machines["cap-w"] = {"backlog_dropped_packets": 0, **COUNTED}
    run.update_manifest({"lost_outside": {"machines": machines, "hosts": {}, "ports": None, "uncounted": {}}})
    summary = analyse(run, find_binary())
    assert summary["lost_outside"]["beside"] == ["w1", "i2"]
    answer = [caveat for caveat in summary["caveats"] if "waited for a processor" in caveat]
    assert [caveat.split(" dropped")[0] for caveat in answer] == [
        *("sat", "w1 (not between the captures)", "i2 (not between the captures)")
    ]
