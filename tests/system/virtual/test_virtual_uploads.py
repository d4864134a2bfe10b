# SPDX-License-Identifier: Apache-2.0
"""Uploads in virtual time: they take the time that they must, through every kind of box, and captures agree."""

import csv
from pathlib import Path
from typing import Any

import pytest

from tests.support.result_schema import assert_as_documented
from tests.support.virtual_runs import run_virtually

pytestmark = pytest.mark.virtual

DURATION_S = 14
TRANSFERS = """transfers={
  small: {size: 10 kB, direction: upload, from: i1, to: w1, start: 1 s},
  down: {size: 10 kB, from: w1, to: i1, start: 3 s},
  large: {size: 2 MB, direction: upload, start: 5 s}}"""
REQUEST_BYTES = RECEIPT_BYTES = 8


def ran(directory: Path, example: Path, *settings: str) -> dict[str, Any]:
    """A valid run of an example with these settings, whose tables are as documented."""
    directory.mkdir(exist_ok=True)
    given = [word for setting in settings for word in ("--set", setting)]
    summary = run_virtually(directory, example, *given)
    assert (summary["reasons"], summary["caveats"]) == ([], [])
    assert_as_documented(Path(summary["run_dir"]))
    return summary


def goodput_bytes(figures: dict[str, Any]) -> int:
    return round(figures["goodput_mbit_s"] * DURATION_S * 1e6 / 8)


def test_an_upload_takes_the_time_that_the_link_takes(tmp_path: Path, project: Path) -> None:
    """Links of 500 ms: one round trip to connect, one for what the initial window holds and the receipt."""
    settings = ("traffic.channels=0", "transfer=null", TRANSFERS, f"duration={DURATION_S} s", "latency={}")
    link = "links={sat: {to_island: {rate: 16 Mbit/s, delay: 250 ms, queue: 1 MB}, to_world: {rate: 4 Mbit/s, delay: "
    summary = ran(tmp_path, project / "examples/geo.yaml", *settings, f"{link} 250 ms, queue: 1 MB}}}}}}")
    transfers = summary["transfers"]
    assert [each["complete"] for each in transfers.values()] == [True] * 3
    assert (transfers["small"]["sender"], transfers["small"]["receiver"]) == ("i1", "w1")
    sent_s, packet_s = 8 * 10_000 / 4e6, 8 * 1500 / 4e6  # tc sends the first packet behind an idle time at once
    assert 1.0 + sent_s - packet_s < transfers["small"]["seconds"] < 1.0 + 1.2 * sent_s
    assert 1.0 < transfers["down"]["seconds"] < transfers["small"]["seconds"]
    alone_s = 1.0 + 8 * 2_000_000 / 4e6
    assert alone_s < transfers["large"]["seconds"] < alone_s + 6 * 0.5, "slow start takes up to five round trips"
    assert goodput_bytes(summary["to_world"]) == 2_010_000 + 2 * REQUEST_BYTES
    assert goodput_bytes(summary) == 10_000 + 2 * RECEIPT_BYTES
    assert summary["to_world"]["loss_bytes_captures"] == summary["to_world"]["loss_bytes_link"] == 0
    assert [each["links"] for each in summary["to_world"]["stretches"]] == [[], ["sat"], []]


@pytest.mark.parametrize("example", ["pep-both", "pep-multiplexed", "coder-both"])
def test_uploads_alone_pass_boxes_that_change_packets(tmp_path: Path, project: Path, example: str) -> None:
    """All payload that enters at the island leaves in the world, and servers confirm it."""
    load = "traffic={channels: 6, direction: upload, flow_sizes: 50 kB}"
    transfer = "transfer={size: 300 kB, direction: upload, start: 2 s}"
    summary = ran(tmp_path, project / f"examples/{example}.yaml", load, transfer, "duration=12 s")
    assert summary["flows_completed"] > 10
    assert summary["flows_failed"] == 0
    assert summary["transfer_complete"]
    payload = summary["to_world"]["payload"]
    assert payload["wrong"] == []
    assert payload["received_bytes"] >= summary["flows_completed"] * (50_000 + REQUEST_BYTES)
    assert payload["world_bytes"] >= payload["received_bytes"] + 300_000
    assert summary["to_world"]["goodput_mbit_s"] > 10 * summary["goodput_mbit_s"]


def flows(run: Path, client: str) -> dict[tuple[str, str], tuple[str, str]]:
    """Size and server of the flows of a client, by channel and number."""
    rows = csv.DictReader((run / "logs" / f"flows-{client}.csv").open(newline=""))
    return {(row["channel"], row["flow"]): (row["size_bytes"], row["server"]) for row in rows}


def test_groups_that_download_and_upload_have_figures_of_their_direction(tmp_path: Path, project: Path) -> None:
    """The example; and with the group that uploads as one that downloads, which draws the same sizes and servers."""
    example = project / "examples/uploads.yaml"
    summary = ran(tmp_path / "mixed", example, "duration=12 s", "transfer=null")
    cameras, rest = summary["groups"]["cameras"], summary["groups"]["rest"]
    to_world = summary["to_world"]
    of_direction = {name: each["goodput_mbit_s"] for name, each in (*to_world["clients"].items(),)}
    assert cameras["flows_completed"] > 5
    assert cameras["goodput_mbit_s"] == pytest.approx(of_direction["i5"] + of_direction["i6"])
    assert rest["goodput_mbit_s"] == pytest.approx(
        sum(summary["clients"][f"i{n}"]["goodput_mbit_s"] for n in (1, 2, 3, 4))
    )
    assert not any(each for name, each in of_direction.items() if name not in ("i5", "i6")), "requests are no uploads"
    assert to_world["goodput_mbit_s"] > cameras["goodput_mbit_s"]
    assert to_world["flow_packets"]["all"]["flows"] < summary["connections"]

    other = run_virtually(
        tmp_path / "mixed",
        example,
        *("--set", "duration=12 s"),
        *("--set", "transfer=null"),
        *("--set", "traffic.groups.cameras.direction=download"),
    )
    assert "to_world" not in other
    for client in ("i1", "i5"):
        uploaded, downloaded = (flows(Path(each["run_dir"]), client) for each in (summary, other))
        both = uploaded.keys() & downloaded.keys()
        assert len(both) > 2
        assert all(uploaded[flow] == downloaded[flow] for flow in both)
