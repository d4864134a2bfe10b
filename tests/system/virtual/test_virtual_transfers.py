# SPDX-License-Identifier: Apache-2.0
"""Several transfers in virtual time, without other load: each on its own chain, repeated ones at their instants."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.virtual_runs import run_virtually

pytestmark = pytest.mark.virtual

DURATION_S = 10
TRANSFERS = """transfers={
  coded: {size: 10 kB, to: i1, start: 1 s, every: 2 s, chain: coded},
  uncoded: {size: 1 MB, to: i5, start: 1 s, chain: main},
  slow: {size: 100 kB, from: w1, to: i6, start: 1 s, every: 2 s}}"""


@pytest.fixture(scope="module")
def summary(project: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Hosts i1 to i3 have the branch ``coded``; both chains pass a link with an RTT of 500 ms."""
    settings = ("traffic.channels=0", "transfer=null", TRANSFERS, f"duration={DURATION_S} s")
    given = [word for setting in settings for word in ("--set", setting)]
    return run_virtually(tmp_path_factory.mktemp("transfers"), project / "examples/half-coded.yaml", *given)


def downloads(summary: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return summary["transfers"][name]["downloads"]


def test_repeated_downloads_begin_at_their_instants(summary: dict[str, Any]) -> None:
    """10 kB fit into the initial window: they take two round trips. The end of the run cuts the fifth download."""
    found = downloads(summary, "coded")
    assert [round(download["start_s"], 3) for download in found] == [1, 3, 5, 7, 9]
    assert [download["complete"] for download in found] == [True] * 4 + [False]
    assert all(1.0 < download["seconds"] < 1.02 for download in found[:4])
    assert (summary["transfers"]["coded"]["skipped"], summary["transfers"]["coded"]["complete"]) == (0, True)


def test_a_start_during_a_download_is_left_out(summary: dict[str, Any]) -> None:
    """100 kB take four round trips, a little more than 2 s; the end of the run cuts the third."""
    found = downloads(summary, "slow")
    assert [round(download["start_s"], 3) for download in found] == [1, 5, 9]
    assert [download["complete"] for download in found] == [True, True, False]
    assert (summary["transfers"]["slow"]["skipped"], summary["transfers"]["slow"]["complete"]) == (2, True)


def test_each_chain_carries_its_transfers_and_nothing_else(summary: dict[str, Any]) -> None:
    assert {name: transfer["chains"] for name, transfer in summary["transfers"].items()} == {
        "coded": ["coded"],
        "uncoded": ["main"],
        "slow": ["main"],
    }
    goodput_bytes = {
        name: round(chain["goodput_mbit_s"] * DURATION_S * 1e6 / 8) for name, chain in summary["chains"].items()
    }
    assert goodput_bytes == {"coded": 4 * 10_000, "main": 1_000_000 + 2 * 100_000}


def test_volumes_of_servers_and_clients_do_not_contain_transfers(summary: dict[str, Any]) -> None:
    volumes = {**summary["servers"], **summary["clients"]}
    assert {volume["goodput_bytes"] for volume in volumes.values()} == {0}


def test_the_keys_of_a_single_transfer_are_empty(summary: dict[str, Any]) -> None:
    assert summary["transfer_bytes"] is summary["transfer_s"] is None
