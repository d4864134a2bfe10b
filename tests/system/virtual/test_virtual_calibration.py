# SPDX-License-Identifier: Apache-2.0
"""Calibration of a link that is as described and of one that is not: where nothing blurs it, to the last digit."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.sandbox import QUICK
from tests.support.virtual_runs import run_virtually, said_inside

pytestmark = pytest.mark.virtual

MTU_KB = 1.5
RATES = 1e-4  # a steady rate is found from the stamps of two packets

Rows = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Rows of both calibrations, full and brief; see narrow_link.py."""
    return said_inside("tests.guests.narrow_link", Path(tmp_path_factory.mktemp("calibration")), QUICK)


def figures(rows: list[dict[str, Any]], direction: str = "to_island") -> Rows:
    return {row["name"]: row for row in rows if row["direction"] == direction}


def test_a_link_as_described_is_found_to_be_so(found: dict[str, dict[str, list[dict[str, Any]]]]) -> None:
    """16 Mbit/s, 10 ms, 30 kB, IP bytes; every figure, in the full test and in the brief one."""
    for rows in found["as described"].values():
        assert [row for row in rows if row["state"] != "ok"] == []
    full = figures(found["as described"]["full"])
    measured = {name: row["measured"] for name, row in full.items()}
    assert measured["delay"] == pytest.approx(10, abs=0.005)
    assert measured["jitter (interquartile)"] < 0.005
    assert measured["rate of IP packets"] == pytest.approx(16, rel=RATES)
    assert measured["counted in addition to IP"] == pytest.approx(0, abs=0.1)
    assert 30 - MTU_KB < measured["queue"] <= 30
    assert 0 <= full["RTT under load"]["configured"] - measured["RTT under load"] <= 8 * MTU_KB / 16


def test_the_special_servers_latency_is_no_delay_of_the_link(found: dict[str, dict[str, list[dict[str, Any]]]]) -> None:
    """25 ms of its 50 on a one-way delay, all of them on an RTT under load."""
    for rows in found["delayed"].values():
        assert [row for row in rows if row["state"] != "ok"] == []
    delayed, plain = (figures(found[name]["full"]) for name in ("delayed", "as described"))
    assert delayed["delay"]["measured"] == pytest.approx(10, abs=0.005)
    more_ms = delayed["RTT under load"]["configured"] - plain["RTT under load"]["configured"]
    assert more_ms == pytest.approx(50, abs=0.02)


def test_a_link_with_other_settings_is_found_out(found: dict[str, dict[str, list[dict[str, Any]]]]) -> None:
    """It has 8 Mbit/s and 20 kB and is 20 ms away: each figure of these is off, and says what it is instead."""
    full, brief = (figures(rows) for rows in found["narrowed"].values())
    for name in ("delay", "rate of IP packets", "queue", "RTT under load"):
        assert full[name]["state"] == "off", full[name]
    assert full["delay"]["measured"] == pytest.approx(20, abs=0.05)
    assert full["rate of IP packets"]["measured"] == pytest.approx(8, rel=RATES)
    assert 20 - MTU_KB < full["queue"]["measured"] <= 20
    assert brief["rate of IP packets"]["state"] == "off"
    assert brief["queue"]["state"] == "off"


@pytest.mark.parametrize("queue", ["500 kB", "1 MB"])
def test_an_island_bound_queue_that_holds_a_ping_for_long_is_no_fault(tmp_path: Path, queue: str) -> None:
    """Its reply still meets a full queue on its way back, a quarter or half a second later than without that queue."""
    queues = ("--set", f"links.sat.to_island.queue={queue}", "--set", "links.sat.to_world.queue=100 kB")
    run_virtually(tmp_path, QUICK, "--duration", "2 s", *queues)
