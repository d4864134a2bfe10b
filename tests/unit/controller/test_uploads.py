# SPDX-License-Identifier: Apache-2.0
"""Uploads in descriptions: what is refused, the jobs that follow, and that those of downloads stay as they are."""

# ruff: noqa: E501 (the table of mistakes reads best with a message on a line)

from pathlib import Path
from typing import Any

import pytest

from atoll_controller.planner.description_warnings import description_warnings
from atoll_controller.planner.job_plan import jobs
from atoll_core.codec import from_json, to_json
from atoll_core.description.loader import load_experiment
from atoll_core.errors import DescriptionError
from atoll_core.experiment.experiment import Experiment
from atoll_core.experiment.setting_texts import settings_tree
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Phase

MIXED = "traffic={channels: 10, write_rate: 2 Mbit/s, write_chunk: 64 kB, groups: {up: {clients: [i1, i2], direction: upload}}}"


@pytest.fixture
def geo(project: Path) -> Path:
    return project / "examples" / "geo.yaml"


def configs(described: tuple[Network, Experiment], prefix: str) -> dict[str, dict[str, Any]]:
    """The configurations of the jobs whose names begin so."""
    return {job.name: job.config for job in jobs(*described) if job.config and job.name.startswith(prefix)}


def test_clients_of_a_group_that_uploads_send_and_are_paced(geo: Path) -> None:
    clients = configs(load_experiment(geo, [MIXED]), "load-")
    assert {name for name, config in clients.items() if config.get("direction") == "upload"} == {"load-i1", "load-i2"}
    assert clients["load-i1"]["write_rate_bit_s"] == 2_000_000
    assert "write_chunk_bytes" not in clients["load-i1"]
    assert "write_rate_bit_s" not in clients["load-i3"]
    servers = configs(load_experiment(geo, [MIXED]), "serve-")
    assert {config["write_chunk_bytes"] for config in servers.values()} == {64_000}


def test_a_direction_changes_no_channel_and_no_draw(geo: Path) -> None:
    """Only the direction differs from the configurations of downloads."""
    up, down = (
        configs(load_experiment(geo, [f"traffic={{channels: 10{more}}}"]), "load-")
        for more in (", direction: upload", "")
    )
    assert [{**config, "direction": "upload"} for config in down.values()] == list(up.values())


def test_an_upload_is_sent_by_the_host_of_the_island_that_connects(geo: Path) -> None:
    described = load_experiment(
        geo, ["transfer={size: 1 MB, direction: upload, from: i1, to: w1, write_rate: 1 Mbit/s}"]
    )
    client, server = (
        next(job for job in jobs(*described) if job.phase is phase) for phase in (Phase.TRANSFER, Phase.TRANSFER_SERVER)
    )
    assert (client.name, client.host, client.argv[-1]) == ("transfer-send", "i1", "transfer")
    assert (server.name, server.host, server.argv[-1]) == ("transfer-receive", "w1", "serve")
    assert client.config is not None
    assert server.config is not None
    assert client.config["connect"] == server.config["listen"] == "10.10.0.1:5201"
    assert (client.config["role"], client.config["write_rate_bit_s"]) == ("upload", 1_000_000)
    (transfer,) = described[1].all_transfers
    assert [host.name for host in transfer.ends(described[0])] == ["w1", "i1"]


def test_iperf3_sends_without_its_reverse_mode(geo: Path) -> None:
    for direction, is_reverse in (("download", True), ("upload", False)):
        described = load_experiment(geo, [f"transfer={{size: 1 MB, tool: iperf3, direction: {direction}}}"])
        (client,) = (job for job in jobs(*described) if job.phase is Phase.TRANSFER)
        assert (client.host, "-R" in client.argv) == ("is", is_reverse)


def test_captures_at_links_have_both_directions_if_there_are_uploads(geo: Path) -> None:
    for traffic, expected in (
        ("{channels: 1}", {"link-sat": "out"}),
        ("{channels: 1, direction: upload}", {"link-sat": "both", "into-sat": "both"}),
    ):
        found = configs(load_experiment(geo, [f"traffic={traffic}"]), "capture-")
        assert {
            name.removeprefix("capture-"): each["direction"] for name, each in found.items() if "sat" in name
        } == expected


def test_a_direction_is_recorded_and_shown_if_it_is_upload(geo: Path) -> None:
    network, experiment = load_experiment(geo, [MIXED, "transfer={size: 1 MB, direction: upload}"])
    assert from_json(Experiment, to_json(experiment)) == experiment
    tree = settings_tree(experiment, network)
    assert tree["traffic"]["groups"]["up"]["direction"] == tree["transfer"]["direction"] == "upload"
    assert "direction" not in settings_tree(load_experiment(geo)[1], network)["traffic"]
    assert experiment.has_uploads
    assert not load_experiment(geo, ["traffic={channels: 0, direction: upload}"])[1].has_uploads


MISTAKES = [
    ("traffic={channels: 1, direction: up}", "direction: unknown direction 'up'; known directions: download, upload"),
    (
        "traffic={channels: 1, direction: upload, flow_sizes: {counts: ip}}",
        "'counts: ip' is for recorded flows from servers to clients; of uploads, write 'counts: payload'",
    ),
    (
        "traffic={channels: 1, direction: upload, write_rate: 1 Mbit/s, write_chunk: 10 kB}",
        "write_chunk is a setting of servers that send, and all flows are uploads; keep write_rate alone",
    ),
    (
        "traffic={channels: 1, write_rate: 1 Mbit/s, write_chunk: 10 kB, groups: {down: {clients: [i1], channels: 0}, up: {clients: [i2, i3, i4, i5, i6], direction: upload}}}",
        "write_chunk is a setting of servers that send, and all flows are uploads; keep write_rate alone",
    ),
    (
        "transfer={size: 1 MB, from: i1}",
        "'i1' is a host of role island-client; known hosts of the right roles: w1, w2, w3, w4, w5, w6, ws, or write 'direction: upload'",
    ),
    (
        "transfer={size: 1 MB, direction: upload, from: w1}",
        "'w1' is a host of role world-server; known hosts of the right roles: i1, i2, i3, i4, i5, i6, is, or write 'direction: download'",
    ),
    (
        "transfer={size: 1 MB, direction: upload, to: w1, port: 5001}",
        "5001 is the port of the channels at 'w1'; choose another one",
    ),
]


@pytest.mark.parametrize(("setting", "message"), MISTAKES)
def test_mistakes_are_one_line_each(geo: Path, setting: str, message: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        load_experiment(geo, [setting])
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("traffic", "change", "where"),
    [
        ("{channels: 1, direction: upload}", "{flow_sizes: {counts: ip}}", "traffic: flow_sizes"),
        (
            MIXED.removeprefix("traffic="),
            "{groups: {up: {flow_sizes: {counts: ip}}}}",
            "traffic: group 'up': flow_sizes",
        ),
    ],
)
def test_a_change_cannot_make_uploads_count_ip_bytes(geo: Path, traffic: str, change: str, where: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        load_experiment(geo, [f"traffic={traffic}", f"changes=[{{at: 10 s, traffic: {change}}}]"])
    assert f"{where}: 'counts: ip' is for recorded flows" in str(refused.value)


def test_a_group_that_downloads_within_uploads_is_shown(geo: Path) -> None:
    traffic = "traffic={channels: 1, direction: upload, groups: {down: {clients: [i1], direction: download}}}"
    network, experiment = load_experiment(geo, [traffic])
    assert settings_tree(experiment, network)["traffic"]["groups"]["down"]["direction"] == "download"


def test_a_timeout_shorter_than_a_full_buffer_of_the_near_pep_is_warned_of(project: Path) -> None:
    """200 kB take 32 s at 50 kbit/s; only the PEP at the island acknowledges before the link."""
    settings = ["links.sat.to_world.rate=50 kbit/s", "duration=60 s"]
    load = "traffic={channels: 1, direction: upload, flow_sizes: 200 kB, timeout: "
    for example, timeout, is_warned in (
        ("pep-both", "30 s", True), ("pep-both", "33 s", False), ("pep-world", "30 s", False)
    ):  # fmt: skip
        described = load_experiment(project / f"examples/{example}.yaml", [f"{load}{timeout}}}", *settings])
        found = [str(warning) for warning in description_warnings(*described) if "32.0 s for 200 kB" in str(warning)]
        assert len(found) == is_warned


def test_warnings_are_of_the_direction_that_carries_the_bytes(geo: Path) -> None:
    """The link has 16 Mbit/s to the island and 4 Mbit/s to the world."""
    for direction, is_warned in (("download", False), ("upload", True)):
        load = f"traffic={{channels: 10, flows_per_s: 250, flow_sizes: 10 kB, direction: {direction}}}"
        transfer = f"transfer={{size: 40 MB, direction: {direction}}}"
        found = [
            str(warning) for warning in description_warnings(*load_experiment(geo, [load, transfer, "duration=60 s"]))
        ]
        assert any("times the 4 Mbit/s of 'sat'" in text for text in found) == is_warned
        assert any("takes at least 80.0 s at 4 Mbit/s" in text for text in found) == is_warned
