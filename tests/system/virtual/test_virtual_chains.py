# SPDX-License-Identifier: Apache-2.0
"""Chains of every sort at once, to the packet: who crosses which box, how long every path takes."""

import json
from pathlib import Path
from typing import Any

import pytest

from atoll_emulation.uml.guest_init import OUTPUT
from tests.support import many_chains
from tests.support.virtual_runs import RESOLUTION_NS, checks, run_virtually

pytestmark = pytest.mark.virtual


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("chains")
    return Path(run_virtually(directory, many_chains.describe(directory, OUTPUT))["run_dir"])


@pytest.fixture(scope="module")
def ports(run_dir: Path) -> dict[tuple[str, str], dict[str, int]]:
    """Counters of every switch port that a box hangs from."""
    counters: dict[str, Any] = json.loads((run_dir / "manifest.json").read_text())["switch_counters"]
    legs = [*many_chains.LEFT_OUT, *(leg for legs in many_chains.CROSSED.values() for leg in legs)]
    return {(switch, port): counters[switch]["ports"][port] for switch, port in legs}


def test_every_path_has_the_round_trip_time_of_its_own_chain(run_dir: Path) -> None:
    beyond = checks(run_dir)
    assert {dst for _, dst in beyond} >= {"i1", "i2", "i3", "i4"}, "through the branch and beside it"
    assert all(0 <= each <= RESOLUTION_NS for each in beyond.values()), beyond


def test_each_box_sends_on_what_the_switch_sends_it(ports: dict[tuple[str, str], dict[str, int]]) -> None:
    """In both directions, but for what the link's full queue drops; what no chain names gets nothing."""
    for box, (world, island) in many_chains.CROSSED.items():
        for into, out_of in ((world, island), (island, world)):
            entered, left = ports[into]["tx_packets"], ports[out_of]["rx_packets"]
            assert entered > 100, box
            assert left <= entered if box == "sat" else left == entered, box
    assert all(ports[leg]["tx_packets"] == ports[leg]["rx_packets"] == 0 for leg in many_chains.LEFT_OUT)


def test_every_frame_into_the_link_came_out_of_one_of_the_chains(ports: dict[tuple[str, str], dict[str, int]]) -> None:
    """The main chain's box before it and the branch's: nothing goes past them."""
    before = sum(ports[many_chains.CROSSED[box][1]]["rx_packets"] for box in ("pep-w", "coder-w"))
    assert ports[many_chains.CROSSED["sat"][0]]["tx_packets"] == before


def test_a_users_program_is_heard(run_dir: Path) -> None:
    heard = (run_dir / "logs" / "report-pep-w.out").read_text(encoding="utf-8")
    assert heard == f"pep-w-w is up\n{OUTPUT}/started\n"
