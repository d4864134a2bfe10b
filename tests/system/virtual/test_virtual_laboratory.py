# SPDX-License-Identifier: Apache-2.0
"""The full-size laboratory, 139 machines with 106 clients, in virtual time: it comes up, and all begin together."""

import json
from pathlib import Path

import pytest

from tests.support.sandbox import ROOT
from tests.support.virtual_runs import RESOLUTION_NS, atoll, said_inside

pytestmark = pytest.mark.virtual


def test_every_path_of_the_full_laboratory_is_proven_and_its_clients_begin_together(tmp_path: Path) -> None:
    """Linux takes cables into use a hundred ends a second: probes wait for the last of three hundred."""
    settings = ("--duration", "2 s", "--set", "traffic.channels=192", "--set", "transfer=null")
    done = atoll(tmp_path, "run", ROOT / "examples" / "laboratory.yaml", "--on", "virtual", "--json", *settings)
    assert done.returncode == 0, done.stderr + done.stdout
    summary = json.loads(done.stdout)
    assert len(summary["start"]["hosts"]) == 106
    assert summary["start"]["silent"] == []
    assert summary["start"]["spread_ms"] < 1


def test_the_full_laboratory_passes_its_configuration_test_on_the_slowest_and_the_fastest_link(tmp_path: Path) -> None:
    """GEO 8/2 and MEO 320/80 Mbit/s, at the first attempt, every path exact; the base RTT holds the server's 60 ms."""
    for name, found in said_inside("tests.guests.scenarios_guest", tmp_path, "geo-8", "meo-320").items():
        assert (found["off"], found["attempts"], found["paths"]) == ("", 1, 108), name
        assert found["paths_s"] < 10, name
        base_ns = {"geo": 560_000_000, "meo": 185_000_000}[name[:3]]
        assert 0 <= found["base_rtt_ns"] - base_ns <= RESOLUTION_NS, name
        assert 0 <= found["beyond_ns"] <= RESOLUTION_NS, name
        assert found["terrestrial"].keys() == {*(f"w{n}" for n in range(1, 23)), "ws", "wh"}
        assert all(abs(measured - answer) <= RESOLUTION_NS for answer, measured in found["terrestrial"].values()), name


def test_the_full_laboratory_runs_on_twins_of_its_switches(tmp_path: Path) -> None:
    """PEPs over a coded tunnel on four ProCurve switches, clients behind learning switches, five taps: it is valid."""
    settings = ("--duration", "3 s", "--set", "traffic.channels=192", "--set", "transfer=null")
    lab = ROOT / "examples" / "laboratory-procurve.yaml"
    done = atoll(tmp_path, "run", lab, "--on", "virtual", "--json", *settings)
    assert done.returncode == 0, done.stderr + done.stdout
    summary = json.loads(done.stdout)
    assert len(summary["start"]["hosts"]) == 106
    assert summary["boxes"]["pep-w"]["connections"] > 192
    assert summary["boxes"]["coder-i"]["arrived_source_packets"] > 1000
    assert summary["boxes"]["coder-i"]["arrived_repair_packets"] > 100
