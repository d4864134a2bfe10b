# SPDX-License-Identifier: Apache-2.0
"""The demo experiment on a rack and in the emulated lab: the same lab.yaml, the same figures."""

import csv
import json
import subprocess
from pathlib import Path

import pytest

from tests.support.rack import rack_of
from tests.support.sandbox import ATOLL, ROOT

pytestmark = [pytest.mark.lab, pytest.mark.figures]

DEMO = ROOT / "examples" / "geo.yaml"
SHORT = ["--duration", "15 s", "--set", "transfer.size=2 MB", "--set", "transfer.start=3 s"]


def summary(done: subprocess.CompletedProcess[str]) -> dict:
    """Of a run that was completed; what makes one invalid on a busy machine (lateness) is not what is tested here."""
    assert done.returncode in (0, 3), done.stderr
    return json.loads(done.stdout)


def drawn(run: Path) -> dict[tuple[str, str], str]:
    """Sizes of the flows that were begun, by channel and flow."""
    rows = [row for log in (run / "logs").glob("flows-*.csv") for row in csv.DictReader(log.open())]
    return {(row["channel"], row["flow"]): row["size_bytes"] for row in rows}


def test_the_demo_on_a_rack_gives_the_figures_of_the_emulated_lab(tmp_path: Path) -> None:
    """Whether switches and machines were made by atoll or found by it: delays, rate, queue, traffic are the same."""
    with rack_of(ROOT / "emulation" / "labs" / "island.yaml", tmp_path) as rack:
        rack.prepare()
        before = rack.states()
        where = ["--on", "hardware", "--inventory", rack.inventory]
        there = summary(rack.run(ATOLL, "run", DEMO, *SHORT, *where, "--runs", tmp_path / "there", "--json"))
        assert rack.states() == before
        assert [jobs for machine in rack.addresses if (jobs := rack.jobs(machine))] == []
        here = summary(rack.run(ATOLL, "run", DEMO, *SHORT, "--runs", tmp_path / "here", "--json"))

    manifest = json.loads((Path(there["run_dir"]) / "manifest.json").read_text())
    assert manifest["place"] == "hardware"
    assert manifest["machines"]["sat"]["interfaces"] == {"world": "exp0", "island": "exp1"}
    assert manifest["lost_outside"]["machines"].keys() == manifest["machines"].keys(), "each agent told what it drops"
    assert there["lost_outside"]["uncounted"] == here["lost_outside"]["uncounted"] == {}

    assert set(there["start"]["hosts"]) == set(here["start"]["hosts"]) == {f"i{number}" for number in range(1, 7)}
    assert here["start"]["clock_bound_ms"] is None, "an emulated lab has one clock"
    assert 0 < there["start"]["clock_bound_ms"] < 20, "as has a rack of namespaces, which nobody can know"
    assert there["base_rtt_ms"] == pytest.approx(here["base_rtt_ms"], abs=3)
    for server, measured in here["terrestrial_rtt_ms"].items():
        assert there["terrestrial_rtt_ms"][server]["measured"] == pytest.approx(measured["measured"], abs=3)
    assert min(there["sojourn_max_ms"], here["sojourn_max_ms"]) > 40, "100 kB at 16 Mbit/s: 50 ms"
    assert there["utilisation"] == pytest.approx(here["utilisation"], rel=0.2)
    assert there["goodput_mbit_s"] == pytest.approx(here["goodput_mbit_s"], rel=0.2)
    assert there["transfer_s"] == pytest.approx(here["transfer_s"], rel=0.35)
    assert there["oversize_packets"] == there["unknown_vlan_packets"] == 0
    assert there["loss_bytes_captures"] == there["loss_bytes_link"], "captures and counters speak of the same packets"
    sizes = drawn(Path(there["run_dir"])), drawn(Path(here["run_dir"]))
    common = sizes[0].keys() & sizes[1].keys()
    assert len(common) > 50
    assert all(sizes[0][flow] == sizes[1][flow] for flow in common), "traffic is a function of the seed"
