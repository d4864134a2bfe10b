# SPDX-License-Identifier: Apache-2.0
"""Bodies of the API: whole experiments, and changes of the one that stands."""

from pathlib import Path
from typing import Any

import pytest

from atoll_core.description.loader import parse_lab
from atoll_core.description.resolve_lab import Lab
from atoll_core.description.yaml_document import read_document
from atoll_core.errors import DescriptionError, PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend
from atoll_daemon.http.experiment_bodies import (
    DescribedExperiment,
    apply_merge_patch,
    chain_patch,
    current_description,
    described_by_body,
    described_by_file,
    patch_document,
    removal_patch,
)
from atoll_daemon.http.http_errors import RequestError, error_json

CODED = ["tap-w", "coder-w", "sat", "coder-i", "tap-i"]


@pytest.fixture(scope="module")
def lab(project: Path) -> Lab:
    """The island laboratory."""
    return Lab.read(read_document(project / "emulation" / "labs" / "island.yaml"))


@pytest.fixture(scope="module")
def network(lab: Lab) -> Network:
    """It as resolved."""
    assert lab.network is not None
    return lab.network


@pytest.fixture(scope="module")
def geo(project: Path) -> DescribedExperiment:
    """The demo as `atoll apply` has it applied."""
    path = project / "examples" / "geo.yaml"
    return described_by_file(read_document(path), path, (), Backend.ENGINE)[1]


@pytest.fixture
def change(lab: Lab, network: Network, geo: DescribedExperiment):
    """What a body makes of the demo, or of what is given."""

    def change(
        body: dict[str, Any], standing: DescribedExperiment | None = geo, settings: tuple[str, ...] = ()
    ) -> DescribedExperiment:
        return described_by_body(patch_document(body), lab, network, standing, settings)

    return change


def test_a_setting_of_the_lab_is_of_files_only_and_makes_another_lab(
    change, project: Path, lab: Lab, network: Network
) -> None:
    setting = "lab.delay_boxes.delay.rate=300 Mbit/s"
    for refused in (setting, "lab=other.yaml"):
        with pytest.raises(PlanError, match="the lab is up and keeps its settings"):
            change({"traffic": {"channels": 5}}, settings=(refused,))
    path = project / "examples" / "geo.yaml"
    other, _ = described_by_file(read_document(path), path, (setting,), Backend.ENGINE, lab)
    assert other != network
    parsed = parse_lab(lab.document, (setting,))
    same, _ = described_by_file(read_document(path), path, (setting,), Backend.ENGINE, parsed)
    assert same == other


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # RFC 7396, appendix A, those whose patch is an object
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_patches_are_those_of_the_rfc(target: dict[str, Any], patch: dict[str, Any], result: dict[str, Any]) -> None:
    assert apply_merge_patch(target, patch) == result


def test_nothing_at_all_is_what_stands(change: Any, geo: DescribedExperiment) -> None:
    assert change({}).experiment == geo.experiment


def test_a_chain_and_a_latency_change_and_nothing_else(change: Any, geo: DescribedExperiment) -> None:
    changed: Experiment = change({"chain": CODED, "latency": {"w1": "rtt-90"}}).experiment
    assert list(changed.chain.hops) == CODED
    assert dict(changed.latency) == {**dict(geo.experiment.latency), "w1": "rtt-90"}
    assert (changed.links, changed.traffic, changed.seed) == (
        geo.experiment.links,
        geo.experiment.traffic,
        geo.experiment.seed,
    )


def test_a_latency_may_be_the_round_trip_time_of_a_class(change: Any) -> None:
    assert dict(change({"latency": {"w1": "90 ms"}}).experiment.latency)["w1"] == "rtt-90"
    with pytest.raises(DescriptionError, match=r"'91 ms'; .*known classes: rtt-5"):
        change({"latency": {"w1": "91 ms"}})


def test_null_takes_a_server_out(change: Any) -> None:
    assert "w1" not in dict(change({"latency": {"w1": None}}).experiment.latency)


def test_a_link_waits_with_its_settings_until_a_chain_passes_it_again(change: Any, geo: DescribedExperiment) -> None:
    """Or the empty chain could never be asked for, nor left again."""
    without = change({"chain": []})
    assert without.experiment.links == ()
    again = change({"chain": ["sat"]}, without)
    assert again.experiment.links == geo.experiment.links


def test_settings_of_a_link_that_no_chain_passes_are_refused_if_just_given(change: Any) -> None:
    with pytest.raises(DescriptionError, match="not in the chain"):
        change({"chain": [], "links": {"sat": {"counts": "ethernet"}}})


def test_a_whole_experiment_needs_no_lab_but_may_not_be_for_another(
    change: Any, geo: DescribedExperiment, network: Network
) -> None:
    whole = {key: part for key, part in geo.tree.items() if key != "lab"}
    assert change(whole, None).experiment == geo.experiment
    assert change(geo.tree, None).experiment == geo.experiment
    with pytest.raises(DescriptionError) as refused:
        change(whole | {"lab": "labs/other.yaml"}, None)
    (mistake,) = error_json(refused.value)["mistakes"]
    assert mistake["where"] == "lab"
    assert network.file in mistake["message"]


def test_a_change_needs_something_that_stands(change: Any) -> None:
    with pytest.raises(RequestError) as refused:
        change({"chain": []}, None)
    assert refused.value.status == 409


def test_every_mistake_is_told_with_its_place(change: Any) -> None:
    with pytest.raises(DescriptionError) as refused:
        change({"latency": {"w1": 5}, "seeed": 1})
    assert {mistake["where"] for mistake in error_json(refused.value)["mistakes"]} == {"latency.w1", "seeed"}
    with pytest.raises(DescriptionError) as refused:
        change({"chain": ["tap-w", "sax", "tap-w"], "latency": {"i1": "rtt-5"}})
    places = {mistake["where"] for mistake in error_json(refused.value)["mistakes"]}
    assert places >= {"chain[1]", "chain[2]", "latency.i1"}


def test_settings_stand_in_place_of_the_bodys_own(change: Any) -> None:
    assert change({}, settings=("seed=7", "tcp.congestion_control=reno")).experiment.seed == 7


def test_a_body_names_no_files_outside_its_folder(change: Any, tmp_path: Path) -> None:
    """Neither by their path nor by a way up: the token is no right to read this machine."""
    secret = tmp_path / "secret.csv"
    secret.write_text("t_s,rate_mbit_s\n0,1\n")
    for name in (str(secret), "../../../../../../../../etc/passwd", "traces/../../pyproject.toml", "nul\0"):
        link = {"to_island": {"rate": "16 Mbit/s", "delay": "1 ms", "queue": "100 kB", "trace": name}}
        with pytest.raises(DescriptionError, match="outside the folder"):
            change({"links": {"sat": link}})


def test_branches_come_change_and_go(change: Any) -> None:
    """A branch that is put is what was put, nothing of what had its name before."""
    one = change(chain_patch("coded", CODED, {"island": "10.20.0.0/30", "protocol": "tcp"}))
    (branch,) = one.experiment.branches
    assert (branch.name, list(branch.hops), str(branch.carries)) == ("coded", CODED, "island 10.20.0.0/30, TCP")
    two = change(chain_patch("coded", ["sat"], {"protocol": "udp"}), one)
    assert str(two.experiment.branches[0].carries) == "UDP"
    assert change(removal_patch("coded", two), two).experiment.branches == ()


def test_the_main_chain_can_neither_be_removed_nor_be_told_what_it_carries(geo: DescribedExperiment) -> None:
    with pytest.raises(RequestError, match="cannot be removed"):
        removal_patch("main", geo)
    with pytest.raises(RequestError, match="remove `carries`"):
        chain_patch("main", [], {"protocol": "tcp"})
    with pytest.raises(RequestError, match="no chain 'coded'; known chains: main") as refused:
        removal_patch("coded", geo)
    assert refused.value.status == 404


def test_changes_that_were_to_come_are_not_part_of_what_stands(change: Any, geo: DescribedExperiment) -> None:
    """Their instants were those of a run, and their start was a steering that is not there any more."""
    tree = geo.tree | {"changes": [{"at": "20 s", "chain": CODED}]}
    scheduled = change(tree, None)
    assert scheduled.experiment.schedule
    turned = current_description(scheduled, change({"chain": CODED}, scheduled).experiment)
    assert turned.tree["chain"] == CODED
    assert "changes" not in turned.tree
    assert change({"chain": ["tap-w", "sat"]}, scheduled).experiment.schedule == ()
