# SPDX-License-Identifier: Apache-2.0
"""A rack as laboratories have it: clients behind an ordinary switch, splitters in cables that copy one direction."""

import json
import re
from pathlib import Path

import pytest

from tests.support.rack import EXPERIMENT, LAB, rack_of
from tests.support.sandbox import ATOLL, wait_for_line

pytestmark = pytest.mark.lab

_CLIENTS = """
  i1: {role: island-client, ip: 10.20.0.1, port: lan-1/1}
  i2: {role: island-client, ip: 10.20.0.2, port: lan-1/2}
  i3: {role: island-client, ip: 10.20.0.3, port: lan-1/3}"""


def test_clients_behind_a_learning_switch_and_taps_of_one_direction(tmp_path: Path) -> None:
    """All flows of three clients pass one port of sw-i; captures have packets to the island, and figures are whole."""
    lab, experiment = tmp_path / "lab.yaml", tmp_path / "experiment.yaml"
    text = LAB.read_text()
    for old, new in {
        "hosts:": "learning_switches: {lan-1: {uplink: sw-i/1, rate: 1 Gbit/s}}\nhosts:",
        "\n  i1: {role: island-client, ip: 10.20.0.1, port: sw-i/1}": _CLIENTS,
        "port: sw-w/21}": "cable: sw-w/15, direction: to_island}",
        "port: sw-i/22}": "cable: sw-i/16, direction: to_island}",
    }.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    lab.write_text(text)
    experiment.write_text(EXPERIMENT.read_text().replace("rack-lab.yaml", "lab.yaml"))
    with rack_of(lab, tmp_path / "rack") as rack:
        rack.prepare()
        runs = rack.directory / "runs"
        words = ["run", experiment, "--duration", "4 s", "--runs", runs, "--on", "hardware"]
        process = rack.start(ATOLL, *words, "--inventory", rack.inventory)
        wait_for_line(process, "measure:")
        learned = rack.run("ip", "netns", "exec", "switches", "bridge", "fdb", "show", "br", "lan-1").stdout
        _, errors = process.communicate(timeout=110)
        assert process.returncode in (0, 3), errors
        (made,) = (runs / "rack").iterdir()
        summary = json.loads((made / "summary.json").read_text())
        flows = {name: (made / "logs" / f"flows-{name}.csv").read_text().count("\n") for name in ("i1", "i2", "i3")}
    assert min(flows.values()) > 1, flows
    for number in (1, 2, 3):
        assert re.search(f"dev lan-1-i{number} master lan-1 $", learned, re.MULTILINE), learned
    assert summary["goodput_mbit_s"] > 0
    assert summary["loss_fraction"] is not None
    assert {"LOSS_DIFFERS", "PAYLOAD_DIFFERS", "SERVER_UNSEEN"}.isdisjoint(summary["reason_codes"]), summary["reasons"]
