# SPDX-License-Identifier: Apache-2.0
"""Transfers of an experiment: defaults, mistakes, warnings and jobs of several."""

# ruff: noqa: E501, ISC004 (the table of mistakes reads best with a message on a line)

from pathlib import Path

import pytest

from atoll_controller.planner.description_warnings import description_warnings
from atoll_controller.planner.job_plan import jobs
from atoll_core.codec import from_json, to_json
from atoll_core.description.loader import load_experiment
from atoll_core.errors import DescriptionError
from atoll_core.experiment.experiment import Experiment
from atoll_core.experiment.setting_texts import settings_tree
from atoll_core.lab.network import Network
from atoll_core.units import Duration

TWO = "transfers={coded: {size: 5 MB, to: i1, every: 20 s, chain: coded}, uncoded: {size: 5 MB, from: w2, to: i5}}"


@pytest.fixture
def half_coded(project: Path) -> Path:
    """Hosts i1 to i3 are behind the coders."""
    return project / "examples" / "half-coded.yaml"


def loaded(path: Path, transfers: str) -> tuple[Network, Experiment]:
    return load_experiment(path, ["transfer=null", transfers])


def mistakes_of(path: Path, *settings: str) -> list[str]:
    with pytest.raises(DescriptionError) as refused:
        load_experiment(path, settings)
    return [text.split("...: ")[-1].split("\u2026': ")[-1] for text in str(refused.value).splitlines()]


def test_transfers_have_ports_of_their_own_and_the_special_hosts_by_default(half_coded: Path) -> None:
    network, experiment = loaded(half_coded, TWO)
    ends = [[host.name for host in transfer.ends(network)] for transfer in experiment.all_transfers]
    assert ends == [["ws", "i1"], ["w2", "i5"]]
    assert [transfer.port for transfer in experiment.all_transfers] == [5201, 5202]
    assert experiment.transfer is None


def test_a_single_transfer_is_a_list_of_one(half_coded: Path) -> None:
    network, experiment = load_experiment(half_coded)
    (transfer,) = experiment.all_transfers
    assert transfer == experiment.transfer
    assert [host.name for host in transfer.ends(network)] == ["ws", "is"]
    assert (transfer.job("send"), transfer.every) == ("transfer-send", None)


def test_transfers_are_recorded_and_shown_by_their_names(half_coded: Path) -> None:
    network, experiment = loaded(half_coded, TWO)
    assert from_json(Experiment, to_json(experiment)) == experiment
    tree = settings_tree(experiment, network)["transfers"]
    assert (tree["coded"]["every"], tree["coded"]["to"], tree["uncoded"]["from"]) == ("20 s", "i1", "w2")


def test_each_transfer_has_a_job_at_both_of_its_hosts(half_coded: Path) -> None:
    planned = {job.name: job for job in jobs(*loaded(half_coded, TWO)) if job.name.startswith("transfer-")}
    assert {name: job.host for name, job in planned.items()} == {
        "transfer-send-coded": "ws",
        "transfer-receive-coded": "i1",
        "transfer-send-uncoded": "w2",
        "transfer-receive-uncoded": "i5",
    }
    configs = {name: job.config or {} for name, job in planned.items()}
    assert configs["transfer-send-coded"]["repeats"]
    assert configs["transfer-receive-coded"]["every_ns"] == 20 * 10**9
    assert "every_ns" not in configs["transfer-receive-uncoded"]


def test_starts_are_counted_until_the_end_of_the_run(half_coded: Path) -> None:
    _, experiment = loaded(half_coded, TWO)
    coded, uncoded = experiment.all_transfers
    assert [coded.starts(Duration.parse(end)) for end in ("10 s", "11 s", "30 s", "60 s")] == [0, 1, 1, 3]
    assert uncoded.starts(Duration.parse("60 s")) == 1


MISTAKES = [
    (
        "{a: {size: 1 MB, from: i1, to: w1}}",
        [
            "transfer 'a': from: 'i1' is a host of role island-client; known hosts of the right roles: w1, w2, w3, w4, "
            "w5, w6, ws, or write 'direction: upload'",
            "transfer 'a': to: 'w1' is a host of role world-server; known hosts of the right roles: i1, i2, i3, i4, i5, "
            "i6, is, or write 'direction: upload'",
        ],
    ),
    (
        "{a: {size: 1 MB, port: 5202}, b: {size: 1 MB}}",
        [
            "transfer 'b': port: 5202 is the port of transfer 'a', and captures tell transfers apart by their ports; "
            "give each its own"
        ],
    ),
    (
        "{a: {size: 1 MB, from: w1, port: 5001}}",
        ["transfer 'a': port: 5001 is the port of the channels at 'w1'; choose another one"],
    ),
    (
        "{a: {size: 1 MB, start: 60 s}}",
        ["transfer 'a': start: 60 s is not before the end at 60 s; start it earlier"],
    ),
    (
        "{a: {size: 1 MB, to: i4, chain: coded}}",
        [
            "transfer 'a': chain: 'main' carries TCP from 'ws' to 'i4', not 'coded'; write 'to' with one of i1, i2 "
            "and i3"
        ],
    ),
    (
        "{a: {size: 1 MB, to: i1, chain: codec}}",
        ["transfer 'a': chain: unknown chain 'codec'; did you mean 'coded'? known chains: coded, main"],
    ),
    (
        "{a: {size: 1 MB, tool: iperf3, every: 20 s}}",
        ["transfer 'a': every: iperf3 makes one transfer; leave it out, or write 'tool: atoll'"],
    ),
    (
        "{transfer: {size: 1 MB}}",
        ["transfer 'transfer': this name is that of the key 'transfer'; choose another one"],
    ),
]


@pytest.mark.parametrize(("transfers", "messages"), MISTAKES, ids=[messages[0][:60] for _, messages in MISTAKES])
def test_a_mistake_of_a_transfer_names_it_and_a_remedy(half_coded: Path, transfers: str, messages: list[str]) -> None:
    found = mistakes_of(half_coded, "transfer=null", f"transfers={transfers}")
    assert [text[text.index("transfer '") :] for text in found] == messages


def test_a_chain_is_compared_at_every_start(half_coded: Path) -> None:
    """The branch is removed after 30 s: the third download would begin on the main chain."""
    change = "changes=[{at: 30 s, branches: {coded: null}, chain: [tap-w, coder-w, sat, coder-i, tap-i]}]"
    (message,) = mistakes_of(half_coded, "transfer=null", TWO, change)
    assert message.endswith("transfer 'coded': chain: unknown chain 'coded'; known chains: main")


def test_a_time_between_starts_that_no_download_can_keep_causes_a_warning(half_coded: Path) -> None:
    described = loaded(half_coded, "transfers={a: {size: 5 MB, every: 2 s}, b: {size: 5 MB, every: 3 s}}")
    (warning,) = (str(each) for each in description_warnings(*described) if "download" in str(each))
    assert warning.endswith(
        "transfer 'a': every: 2 s is too short: 5 MB takes at least 2.5 s at 16 Mbit/s, and starts during a download "
        "are left out; usual is at least twice the time that the transfer takes: 5.0 s"
    )
